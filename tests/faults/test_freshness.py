"""Freshness: changes of a server are noticed without a request, in both eras, over every transport."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import Host
from mooring.testing import VirtualClock
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server, methods, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


def _fresh(host: Host) -> float | None:
    return host.status()[0].fresh_within


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_added_by_a_stdio_server_appears_by_itself(era: str, hosting: Any) -> None:
    async with hosting(lab_server(era=era, tools=["grow"])) as host:
        await host.call("mcp_lab_grow", {"name": "extra"})
        await until(lambda: "mcp_lab_extra" in host.catalog.tools, 10)
        assert not (await host.call("mcp_lab_extra")).is_error


async def test_a_tool_added_by_an_old_http_server_appears_by_itself(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        await lab.until(lambda: lab.open_streams == 1)
        lab.tools.append("extra")
        lab.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(lambda: "mcp_web_extra" in host.catalog.tools, 2)


async def test_a_tool_added_by_a_modern_http_server_appears_by_itself(hosting: Any) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config()) as host:
        await until(lambda: lab.subscriptions == 1)
        lab.tools.append("extra")
        lab.publish_change()
        await until(lambda: "mcp_web_extra" in host.catalog.tools, 2)


async def test_FA63_a_subscription_that_was_cut_is_opened_again_and_followed_by_a_listing(
    hosting: Any,
) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config()) as host:
        await until(lambda: lab.subscriptions == 1)
        lab.cut_subscriptions()
        lab.tools.append("meanwhile")  # without a notification
        await until(lambda: lab.subscriptions == 1)
        await until(lambda: "mcp_web_meanwhile" in host.catalog.tools, 3)
        lab.tools.append("later")
        lab.publish_change()
        await until(lambda: "mcp_web_later" in host.catalog.tools, 2)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_after_a_restart_of_an_http_server_its_new_tools_appear(era: str, hosting: Any) -> None:
    async with HttpLab(era=era) as lab:
        port = lab.port
        async with hosting(lab.config()) as host:
            await lab.__aexit__()
            again = HttpLab(era=era, tools=("echo", "fresh"))
            again.port = port
            async with again:
                await until(lambda: "mcp_web_fresh" in host.catalog.tools, 10)
                again.tools.append("fresher")
                await until(lambda: again.subscriptions + again.open_streams >= 1)
                again.publish_change()
                again.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                await until(lambda: "mcp_web_fresher" in host.catalog.tools, 3)
            lab._runner = None  # pyright: ignore[reportPrivateUsage]


async def test_after_a_restart_of_a_stdio_server_its_tools_are_listed_again(
    hosting: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["grow", "crash"], log=str(log))) as host:
        await host.call("mcp_lab_grow", {"name": "extra"})
        await until(lambda: "mcp_lab_extra" in host.catalog.tools)
        await host.call("mcp_lab_crash")
        await until(lambda: "mcp_lab_extra" not in host.catalog.tools)
        await until(lambda: host.status()[0].state == "connected")
        await host.call("mcp_lab_grow", {"name": "later"})
        await until(lambda: "mcp_lab_later" in host.catalog.tools)


async def test_FA39_a_storm_of_a_thousand_notices_costs_a_handful_of_lists(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        await lab.until(lambda: lab.open_streams == 1)
        before = lab.methods().count("tools/list")
        lab.tools.append("extra")
        for _ in range(1000):
            lab.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(lambda: "mcp_web_extra" in host.catalog.tools)
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert lab.methods().count("tools/list") - before <= 5


async def test_FA40_a_notice_during_a_listing_is_not_lost(hosting: Any) -> None:
    listing, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, message: dict[str, Any]) -> web.Response:
        reply, _ = await lab.reply(message, modern=False)
        listing.set()
        await go_on.wait()
        return web.json_response(reply)

    notice = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        await lab.until(lambda: lab.open_streams == 1)
        lab.faults["tools/list"] = slow
        lab.announce(notice)
        await asyncio.wait_for(listing.wait(), 5)
        lab.tools.append("late")
        lab.announce(notice)
        go_on.set()
        await until(lambda: "mcp_web_late" in host.catalog.tools, 3)


async def test_many_who_ask_for_a_refresh_at_once_share_one_listing(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        before = lab.methods().count("tools/list")
        await asyncio.gather(*(host.refresh("web") for _ in range(50)))
        assert lab.methods().count("tools/list") - before <= 2


async def test_a_server_that_announces_nothing_is_swept(hosting: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = lab_server(
        era="legacy", capabilities={}, tools=["echo"], log=str(log), settings={"sweep_interval": 0.2}
    )
    async with hosting(server) as host:
        await until(lambda: _fresh(host) == 1.0)  # no shorter bound is stated
        await until(lambda: methods(log).count("tools/list") >= 3)


async def test_a_failed_listing_keeps_what_was_known_and_is_tried_again(hosting: Any) -> None:
    failing = True

    async def fail(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        return web.Response(status=500) if failing else None

    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.faults["tools/list"] = fail
        report = await host.refresh("web")
        assert not report["web"].ok
        assert "500" in (report["web"].error or "")
        assert "mcp_web_echo" in host.catalog.tools
        lab.tools.append("extra")
        failing = False
        await until(lambda: "mcp_web_extra" in host.catalog.tools, 6)


def test_the_sdk_is_not_loaded_by_listing_and_calling(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = f"""
import asyncio, sys
sys.path[:0] = {json.dumps([str(Path(__file__).parents[2]), *sys.path])}
from mooring import Host
from tests.lab.stdio import lab_server
async def main():
    async with Host([lab_server()]) as host:
        print((await host.call("mcp_lab_echo", {{"text": "hi"}})).text, "mcp" in sys.modules)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "hi False\n"


# --- the stated bound is true -------------------------------------------------------------------

SILENT = {
    "a stdio server without listChanged": {"era": "legacy", "capabilities": {"tools": {}}, "quiet": True},
    "a stdio server that promises notices and sends none": {"era": "legacy", "quiet": True},
    "a modern stdio server that sends nothing on its subscription": {"era": "modern", "quiet": True},
}


async def _known_within_the_bound(host: Host, clock: VirtualClock, tool: str) -> float:
    """Let the stated bound pass; the tool that the server has added silently must be known then."""
    bound = _fresh(host)
    assert bound is not None
    assert tool not in host.catalog.tools
    await clock.advance(bound)
    await until(lambda: tool in host.catalog.tools, 10)
    return bound


@pytest.mark.parametrize("script", SILENT.values(), ids=SILENT.keys())
async def test_the_bound_of_a_server_that_announces_nothing_is_true_idle_and_in_use(
    script: dict[str, Any], tmp_path: Path
) -> None:
    async with Host([lab_server(tools=["echo", "grow"], **script)]) as host:
        await host.ready(20)
        clock = VirtualClock()
        assert _fresh(host) == 300  # nothing uses it
        await host.call("mcp_lab_grow", {"name": "extra"})
        assert await _known_within_the_bound(host, clock, "mcp_lab_extra") == 30
        await host.call("mcp_lab_grow", {"name": "more"})
        assert await _known_within_the_bound(host, clock, "mcp_lab_more") == 30
        await clock.advance(30)  # nothing uses it any more
        await until(lambda: _fresh(host) == 300)


@pytest.mark.parametrize("kind", ["405 on GET", "a dead stream", "an old subscription"])
async def test_the_bound_of_an_http_server_whose_stream_brings_nothing_is_true(kind: str) -> None:
    era = "modern" if kind == "an old subscription" else "legacy"
    async with HttpLab(era=era, stream=kind != "405 on GET") as lab, Host([lab.config()]) as host:
        await host.ready(20)
        if kind != "405 on GET":
            await until(lambda: lab.open_streams + lab.subscriptions == 1)
        await host.refresh()
        clock = VirtualClock()
        lab.tools.append("extra")  # and the stream stays open without a word
        assert await _known_within_the_bound(host, clock, "mcp_web_extra") == 300
        await host.call("mcp_web_echo", {"text": "x"})
        lab.tools.append("more")
        assert await _known_within_the_bound(host, clock, "mcp_web_more") == 30


async def test_an_announcement_over_http_does_not_shorten_the_bound(hosting: Any) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config()) as host:
        await until(lambda: lab.subscriptions == 1)
        lab.tools.append("extra")
        lab.publish_change()
        await until(lambda: "mcp_web_extra" in host.catalog.tools)
        assert _fresh(host) == 300


async def test_announcements_over_sse_prove_nothing_about_the_process_that_replaces_the_server(
    hosting: Any,
) -> None:
    async with (
        HttpLab(era="legacy") as lab,
        hosting(lab.config(url=f"{lab.origin}/sse", transport="sse")) as host,
    ):
        for name in ("extra", "more"):
            lab.tools.append(name)
            for kind in ("prompts", "resources", "tools"):
                lab.announce({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
            await until(lambda name=name: f"mcp_web_{name}" in host.catalog.tools)
        assert (_fresh(host), host.status()[0].announced_within) == (300, None)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_bound_is_true_for_a_server_that_stops_announcing_and_the_short_one_is_withdrawn(
    era: str,
) -> None:
    async with Host([lab_server(era=era, tools=["grow"])]) as host:
        await host.ready(20)
        assert (_fresh(host), host.status()[0].announced_within) == (300, None)  # not proved yet
        await host.call("mcp_lab_grow", {"name": "extra"})
        await until(lambda: "mcp_lab_extra" in host.catalog.tools)
        await until(lambda: (host.status()[0].announced_within or 300) < 30)
        clock = VirtualClock()
        await host.call("mcp_lab_grow", {"name": "quiet"})  # from now on it announces nothing
        assert await _known_within_the_bound(host, clock, "mcp_lab_quiet") == 30
        await until(lambda: _fresh(host) is not None)
        assert host.status()[0].announced_within is None
        await host.call("mcp_lab_grow", {"name": "more"})
        await clock.advance(30)
        await until(lambda: "mcp_lab_more" in host.catalog.tools)
        assert host.status()[0].announced_within is None  # for the rest of this connection


async def test_no_bound_is_stated_while_a_listing_is_overdue(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = lab_server(era="legacy", capabilities={"tools": {}}, log=str(log))
    async with Host([server]) as host:
        await host.ready(20)
        clock = VirtualClock()
        os.kill(starts(log)[0], signal.SIGSTOP)
        await clock.advance(301)
        assert _fresh(host) is None
        os.kill(starts(log)[0], signal.SIGKILL)


async def test_an_idle_server_is_listed_once_in_a_sweep_interval(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(era="legacy", log=str(log))]) as host:
        await host.ready(20)
        clock = VirtualClock()
        for _ in range(10):
            await clock.advance(20)
        await host.ping("lab")  # a ping is no use of its tools
        assert methods(log).count("tools/list") == 1
