"""Connecting servers: concurrently, independently, in either era."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from mooring import Host, MooringError, ServerConfig, StateChanged
from tests.lab.http import HttpLab
from tests.lab.program import running
from tests.lab.stdio import lab_server, methods, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


def _states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


def _error(host: Host, name: str) -> str:
    return next(status.error for status in host.status() if status.name == name) or ""


@pytest.mark.parametrize(
    ("era", "protocol"),
    [("legacy", "2025-11-25"), ("modern", "2026-07-28"), ("dual", "2026-07-28")],
)
async def test_a_stdio_server_is_met_in_the_newest_era_it_speaks(
    era: str, protocol: str, hosting: Any
) -> None:
    async with hosting(lab_server(era=era)) as host:
        (status,) = host.status()
        assert (status.state, status.protocol, status.tools) == ("connected", protocol, 2)
        assert (await host.call("mcp_lab_echo", {"text": "hi"})).text == "hi"


async def test_FA04_a_server_that_dies_on_the_probe_is_greeted_the_old_way_in_two_starts(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(era="dies-on-discover", log=str(log))) as host:
        assert _states(host) == {"lab": "connected"}
        assert len(starts(log)) == 2


async def test_the_era_is_remembered_when_the_server_starts_again(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    server = lab_server(era="dies-on-discover", log=str(log), tools=["crash", "echo"])
    async with hosting(server) as host:
        await host.call("mcp_lab_crash")
        assert (await host.call("mcp_lab_echo", {"text": "again"})).text == "again"
        assert len(starts(log)) == 3
        assert methods(log).count("server/discover") == 1


async def test_FA05_a_server_that_ignores_the_probe_connects_after_the_probe_time(hosting: Any) -> None:
    server = lab_server(era="silent-on-discover", settings={"probe_timeout": 0.2})
    async with hosting(server) as host:
        (status,) = host.status()
        assert status.protocol == "2025-11-25"


async def test_FA06_a_slow_modern_server_is_not_taken_for_an_old_one(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    server = lab_server(era="dual", start_delay=0.6, log=str(log), settings={"probe_timeout": 0.2})
    async with hosting(server) as host:
        (status,) = host.status()
        assert status.protocol == "2026-07-28"
        assert len(starts(log)) == 1


async def test_twelve_servers_of_which_four_are_bad_cost_the_good_ones_nothing() -> None:
    async def unauthorised(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async with HttpLab() as lab, HttpLab() as locked:
        for method in ("server/discover", "initialize"):
            locked.faults[method] = unauthorised
        good = [lab_server(f"good{n}", start_delay=0.3) for n in range(6)]
        good += [lab.config("web"), ServerConfig(name="old", url=lab.url.replace("/mcp", "/sse"))]
        bad = [
            lab_server("hangs", hang=True),
            lab_server("exits", crash_at_start=3, stderr="no licence found\n"),
            lab_server("babbles", hang=True, banner="Welcome!\n\x1b[31mnot json\n" * 50),
            locked.config("locked"),
        ]
        async with Host([*bad, *good]) as host:
            with anyio.fail_after(20):
                for server in good:
                    result = await host.call(f"mcp_{server.name}_echo", {"text": server.name})
                    assert result.text == server.name
            states = _states(host)
            assert {name for name, state in states.items() if state == "connected"} == {s.name for s in good}
            # The two that never answer are still within their own deadline.
            assert states["hangs"] == states["babbles"] == "pending"
            await until(lambda: _states(host)["exits"] == "failed")  # pending while it is tried again
            await until(lambda: _states(host)["locked"] == "needs-auth")
            assert "code 3" in _error(host, "exits")
            assert "no licence found" in _error(host, "exits")
            assert "401" in _error(host, "locked")


async def test_FA07_a_server_that_never_answers_fails_at_its_own_deadline(hosting: Any) -> None:
    server = lab_server(hang=True, stderr="waiting for a key\n", settings={"connect_timeout": 0.4})
    async with hosting(server) as host:
        assert _states(host) == {"lab": "failed"}
        assert "0.4 s" in _error(host, "lab")
        assert "waiting for a key" in _error(host, "lab")


async def test_FA08_a_server_that_hangs_while_listing_fails_at_the_listing_deadline(hosting: Any) -> None:
    async with hosting(lab_server(hang_on_list=True, settings={"list_timeout": 0.3})) as host:
        assert _states(host) == {"lab": "failed"}
        assert "`list_timeout`" in _error(host, "lab")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_connect_timeout_covers_the_first_listing_of_a_child(era: str, hosting: Any) -> None:
    server = lab_server(hang_on_list=True, era=era, settings={"connect_timeout": 0.5})
    async with hosting(server, ready=False) as host:
        call = asyncio.create_task(host.call("mcp_lab_echo", {"text": "x"}))
        refresh = asyncio.create_task(host.refresh("lab"))
        await host.ready(20)
        assert _states(host) == {"lab": "failed"}
        assert "`connect_timeout`" in _error(host, "lab")
        assert (await call).is_error
        assert "0.5 s" in str((await refresh)["lab"].error)


@pytest.mark.parametrize("way", ["http-legacy", "http-modern", "sse"])
async def test_connect_timeout_covers_the_first_listing_over_http(way: str, hosting: Any) -> None:
    async def hang(request: web.Request, message: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    async with HttpLab(era=way.removeprefix("http-")) as lab:
        lab.faults["tools/list"] = hang
        more = {"transport": "sse", "url": f"{lab.origin}/sse"} if way == "sse" else {}
        async with hosting(lab.config(connect_timeout=0.5, **more), ready=False) as host:
            await host.ready(20)
            assert _states(host) == {"web": "failed"}
            assert "`connect_timeout`" in _error(host, "web")


async def test_callers_are_released_before_the_child_that_failed_is_ended(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(
        *("stubborn",),
        hang=True,
        log=str(log),
        settings={"connect_timeout": 0.5, "shutdown_grace": 3, "start": "lazy"},
    )
    async with hosting(server) as host:
        refresh = asyncio.create_task(host.refresh())
        ping = asyncio.create_task(host.ping("stubborn", 20))
        assert "0.5 s" in str((await refresh)["stubborn"].error)
        with pytest.raises(MooringError, match=r"0\.5 s"):
            await ping
        await host.ready()
        (child,) = starts(log)
        assert running(child)  # it has 3 s to end by itself
        os.kill(child, signal.SIGKILL)


async def test_a_call_after_a_hanging_listing_does_not_wait_out_the_grace_of_the_old_child(
    hosting: Any,
) -> None:
    server = lab_server(
        cues={"tools/list": {"then": "silence"}},
        ignore_eof=True,
        settings={"connect_timeout": 0.5, "shutdown_grace": 60},
    )
    async with asyncio.timeout(20), hosting(server) as host:
        result = await host.call("mcp_lab_echo", {"text": "x"})
        assert "no answer within 0.5 s" in result.text


async def test_a_stopped_host_releases_callers_before_the_child_is_ended(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(hang=True, log=str(log), settings={"shutdown_grace": 3})
    async with hosting(server, ready=False) as host:
        refresh = asyncio.create_task(host.refresh("lab"))
        await until(lambda: bool(starts(log)))
        removal = asyncio.create_task(host.remove("lab"))
        assert "closed" in str((await refresh)["lab"].error)
        (child,) = starts(log)
        assert running(child)
        os.kill(child, signal.SIGKILL)
        await removal


async def test_a_server_that_ignores_the_probe_connects_within_a_connect_timeout_below_the_probe_time(
    hosting: Any,
) -> None:
    server = lab_server(era="silent-on-discover", settings={"connect_timeout": 4})
    async with hosting(server) as host:
        assert _states(host) == {"lab": "connected"}


async def test_FA01_a_command_that_is_not_there_is_named(hosting: Any) -> None:
    async with hosting(ServerConfig(name="gone", command="no-such-program-here")) as host:
        assert "'no-such-program-here' was not found" in _error(host, "gone")


async def test_FA01_a_working_directory_that_is_not_there_is_named(tmp_path: Path, hosting: Any) -> None:
    missing = str(tmp_path / "missing")
    async with hosting(lab_server(settings={"cwd": missing})) as host:
        assert missing in _error(host, "lab")


async def test_FA13_junk_on_stdout_is_passed_over(hosting: Any) -> None:
    async with hosting(lab_server(banner="Starting…\n{broken\n\xff\xfe\n[1,2]\n")) as host:
        assert (await host.call("mcp_lab_echo", {"text": "fine"})).text == "fine"


async def test_FA30_an_unknown_protocol_version_is_an_error_that_names_both_sides(hosting: Any) -> None:
    async with hosting(lab_server(era="legacy", protocol="2031-01-01")) as host:
        assert "2031-01-01" in _error(host, "lab")
        assert "2025-11-25" in _error(host, "lab")


async def test_FA50_a_closed_port_is_named(hosting: Any) -> None:
    async with HttpLab() as lab:
        url = lab.url
    async with hosting(ServerConfig(name="web", url=url)) as host:
        assert _states(host) == {"web": "failed"}
        assert "127.0.0.1" in _error(host, "web")
        assert "Connection refused" in _error(host, "web")


@pytest.mark.parametrize("answers", ["json", "sse"])
@pytest.mark.parametrize(("era", "protocol"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
async def test_http_works_in_both_eras_with_both_kinds_of_answers(
    era: str, protocol: str, answers: str, hosting: Any
) -> None:
    async with HttpLab(era=era, answers=answers) as lab, hosting(lab.config()) as host:
        (status,) = host.status()
        assert (status.transport, status.protocol) == ("http", protocol)
        assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"


async def test_FA54_old_sse_is_found_behind_a_405(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab:
        async with hosting(ServerConfig(name="old", url=lab.url.replace("/mcp", "/sse"))) as host:
            (status,) = host.status()
            assert (status.transport, status.state) == ("sse", "connected")
            assert (await host.call("mcp_old_echo", {"text": "hi"})).text == "hi"


async def test_streamable_http_by_name_does_not_fall_back(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab:
        url = lab.url.replace("/mcp", "/sse")
        async with hosting(ServerConfig(name="old", url=url, transport="streamable-http")) as host:
            assert _states(host) == {"old": "failed"}
            assert "GET /sse" not in lab.methods()


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_FA54_a_refusal_is_no_reason_to_fall_back_to_sse(status: int, hosting: Any) -> None:
    async def refuse(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=status, text="go away")

    async with HttpLab() as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = refuse
        async with hosting(lab.config()) as host:
            assert _states(host) == {"web": "failed"}
            assert str(status) in _error(host, "web")
            assert "go away" in _error(host, "web")
        assert lab.methods() == ["server/discover"]


async def test_a_disabled_server_is_shown_and_never_started(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log), settings={"disabled": True})) as host:
        assert _states(host) == {"lab": "disabled"}
        result = await host.call("mcp_lab_echo", {"text": "x"})
        assert result.is_error
    assert starts(log) == []


async def test_a_lazy_server_starts_with_the_first_call(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log), settings={"start": "lazy"})) as host:
        assert starts(log) == []
        assert (await host.call("mcp_lab_echo", {"text": "hi"})).text == "hi"
        assert len(starts(log)) == 1


async def test_an_eager_server_is_connected_when_the_host_is_entered() -> None:
    async with Host([lab_server(start_delay=0.1, settings={"start": "eager"})]) as host:
        assert _states(host) == {"lab": "connected"}


async def test_every_change_of_state_has_one_event_in_order() -> None:
    host = Host([lab_server(tools=["crash", "echo"])])
    events = host.events()
    async with host:
        await host.ready(10)
        await host.call("mcp_lab_crash")
        await host.call("mcp_lab_echo", {"text": "x"})
    changes = [(event.old, event.new) async for event in events if isinstance(event, StateChanged)]
    assert changes == [("pending", "connected"), ("connected", "pending"), ("pending", "connected")]


async def test_ten_servers_start_side_by_side() -> None:
    started = time.monotonic()
    async with Host([lab_server(f"s{n}", start_delay=0.5) for n in range(10)]) as host:
        assert await host.ready(20)
        # One after the other they would need five seconds.
        assert time.monotonic() - started < 4
        assert set(_states(host).values()) == {"connected"}


async def test_a_missing_variable_fails_that_server_alone_and_is_named(hosting: Any) -> None:
    broken = lab_server("broken", settings={"env": {"TOKEN": "${NOT_SET_ANYWHERE}"}})
    async with hosting(broken, lab_server("fine")) as host:
        assert _states(host) == {"broken": "failed", "fine": "connected"}
        assert "NOT_SET_ANYWHERE" in _error(host, "broken")


async def test_FA28_a_child_gets_a_small_environment_and_what_its_entry_names(
    monkeypatch: pytest.MonkeyPatch, hosting: Any
) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "planted")
    monkeypatch.setenv("WANTED", "yes")
    settings = {"env": {"GIVEN": "${MY_SECRET_TOKEN}-1"}, "inherit_env": ["WANTED"]}
    async with hosting(lab_server(tools=["env"], settings=settings)) as host:
        text = (await host.call("mcp_lab_env")).text
        assert '"GIVEN": "planted-1"' in text
        assert '"WANTED": "yes"' in text
        assert "MY_SECRET_TOKEN" not in text
