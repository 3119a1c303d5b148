"""A server that floods one of its streams is disconnected; other servers and callers are hardly affected."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import Host, ServerConfig, ServerLost
from mooring.transport import base
from mooring.transport.base import MAX_INBOUND
from mooring.transport.limits import MESSAGES, STARTS, FloodLimit
from tests.lab.http import HttpLab
from tests.lab.stdio import cue, lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).parents[1] / "lab" / "flood.py"
COMMAND = (sys.executable, "-I", "-S", str(SCRIPT))
MIB = 2**20


@contextmanager
def _flooding(where: str, flood: str, **settings: Any) -> Iterator[ServerConfig]:
    """The configuration of a server that floods, running where it needs to run beside us."""
    if where == "stdio":
        args = (*COMMAND[1:], where, flood)
        yield ServerConfig(name="flood", command=COMMAND[0], args=args, **settings)
        return
    with subprocess.Popen([*COMMAND, where, flood], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        transport = "sse" if where == "sse" else "streamable-http"
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            yield ServerConfig(name="flood", url=url, transport=transport, **settings)
        finally:
            server.kill()


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def _until_cut_off(host: Host) -> str:
    """Why the flooding server was cut off; its neighbour is called all the time."""
    events = host.events(ServerLost)
    calls: list[float] = []
    trigger = asyncio.create_task(host.call("mcp_flood_flood", timeout=20))

    async def neighbour() -> None:
        while True:
            started = time.process_time()
            assert (await host.call("mcp_good_echo", {"text": "x"}, timeout=30)).text == "x"
            calls.append(time.process_time() - started)

    beside = asyncio.create_task(neighbour())
    async for event in events:
        if event.server == "flood":
            await until(lambda: len(calls) > 5)
            beside.cancel()
            trigger.cancel()
            await asyncio.gather(beside, trigger, return_exceptions=True)
            assert beside.cancelled(), beside
            # CPU time of the host, which does not depend on the load. Without slices it was 0.1 s and more.
            assert sorted(calls)[len(calls) // 2] < 0.1
            return event.reason
    raise AssertionError("it was never cut off")


@pytest.mark.parametrize(
    "flood", ["blank", "garbage", "brace", "notice-line", "changed-line", "foreign-line", "request-line"]
)
async def test_a_child_that_floods_its_output_is_cut_off_and_left_alone_for_a_while(
    flood: str, hosting: Any
) -> None:
    with _flooding("stdio", flood, shutdown_grace=0.1) as config:
        async with hosting(config, lab_server("good")) as host:
            assert "floods" in await _until_cut_off(host)
            await until(lambda: host.status()[0].state == "failed")
            assert "floods" in str(host.status()[0].error)
            # A call does not make it come back before its time.
            result = await host.call("mcp_flood_echo", {"text": "x"}, timeout=10)
            assert result.is_error
            assert "floods" in result.text


@pytest.mark.parametrize(
    ("where", "flood"),
    [
        ("post", "comment"),
        ("post", "ids"),
        ("post", "notice"),
        ("post", "foreign"),
        ("post", "request"),
        ("post", "crumbs"),
        ("sse", "blank"),
        ("sse", "event"),
        ("sse", "notice"),
        ("sse", "foreign"),
        ("sse", "request"),
        ("sse", "crumbs"),
    ],
)
async def test_an_http_server_that_floods_a_stream_is_cut_off(where: str, flood: str, hosting: Any) -> None:
    with _flooding(where, flood) as config:
        async with hosting(config, lab_server("good")) as host:
            assert "floods" in await _until_cut_off(host)


@pytest.mark.parametrize("where", ["get", "listen"])
@pytest.mark.parametrize(
    "flood", ["data", "comment", "blank", "event", "id", "ids", "unknown", "notice", "foreign", "crumbs"]
)
async def test_a_stream_on_which_nothing_was_asked_for_cannot_be_flooded(
    where: str, flood: str, hosting: Any
) -> None:
    with _flooding(where, flood) as config:
        async with hosting(config, lab_server("good"), ready=False) as host:
            await host.ready(20)
            before = _memory()
            assert "floods" in await _until_cut_off(host)
            assert _memory() - before < 24 * MIB


@pytest.mark.parametrize(("where", "flood"), [("get", "endless"), ("listen", "endless"), ("sse", "endless")])
async def test_an_event_without_end_ends_the_connection_at_max_message(
    where: str, flood: str, hosting: Any
) -> None:
    with _flooding(where, flood, max_message=2 * MIB) as config:
        async with hosting(config, lab_server("good"), ready=False) as host:
            await host.ready(20)
            assert "max_message" in await _until_cut_off(host)


@pytest.mark.parametrize("where", ["post", "body"])
async def test_an_answer_without_end_costs_the_call_that_asked_for_it(where: str, hosting: Any) -> None:
    with _flooding(where, "endless", max_message=2 * MIB) as config:
        async with hosting(config, lab_server("good")) as host:
            result = await host.call("mcp_flood_flood", timeout=20)
            assert "max_message" in result.text
            assert (await host.call("mcp_flood_echo", {"text": "x"})).text == "x"


async def test_a_body_in_tiny_chunks_takes_no_more_memory_than_its_bytes(hosting: Any) -> None:
    with _flooding("body", "crumbs", max_message=4 * MIB) as config:
        async with hosting(config, lab_server("good")) as host:
            before = most = _memory()
            call = asyncio.create_task(host.call("mcp_flood_flood", timeout=60))
            while not call.done():
                await asyncio.wait({call}, timeout=0.02)
                most = max(most, _memory())
            assert "max_message" in (await call).text
            assert most - before < 24 * MIB


async def test_empty_data_lines_count_toward_max_message_in_an_answer(hosting: Any) -> None:
    with _flooding("post", "data", max_message=MIB) as config:
        async with hosting(config, lab_server("good")) as host:
            result = await host.call("mcp_flood_flood", timeout=20)
            assert "max_message" in result.text


@pytest.mark.parametrize("flood", ["stderr", "stderr-blank"])
async def test_a_flood_on_stderr_slows_the_one_who_writes_it(flood: str, hosting: Any) -> None:
    with _flooding("stdio", flood, shutdown_grace=0.1) as config:
        async with hosting(config, lab_server("good")) as host:
            trigger = asyncio.create_task(host.call("mcp_flood_flood", timeout=20))
            times: list[float] = []
            for _ in range(50):
                started = time.monotonic()
                assert (await host.call("mcp_good_echo", {"text": "x"})).text == "x"
                assert (await host.call("mcp_flood_echo", {"text": "x"})).text == "x"
                times.append(time.monotonic() - started)
            assert sorted(times)[25] < 0.2
            trigger.cancel()
            await asyncio.gather(trigger, return_exceptions=True)


async def test_responses_that_a_server_does_not_accept_are_limited_in_number(hosting: Any) -> None:
    released = asyncio.Event()

    async def hang(request: web.Request, message: dict[str, Any]) -> web.Response:
        await released.wait()
        return web.Response(status=202)

    async with HttpLab(era="legacy") as lab:
        lab.faults["answer"] = hang
        async with hosting(lab.config()) as host:
            await lab.until(lambda: "GET" in lab.methods())
            for number in range(4 * MAX_INBOUND):
                lab.announce({"jsonrpc": "2.0", "id": f"ping-{number}", "method": "ping"})
            listed = lab.methods().count("tools/list")
            lab.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await lab.until(lambda: lab.methods().count("tools/list") > listed, 30)  # all pings were read
            assert 0 < lab.methods().count("answer") <= MAX_INBOUND
            assert not (await host.call("mcp_web_echo", {"text": "x"}, timeout=20)).is_error
            released.set()


def _pings(count: int) -> bytes:
    return b"".join(b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}\n' % number for number in range(count))


async def test_requests_of_a_server_are_answered_a_few_at_a_time_between_other_tasks(hosting: Any) -> None:
    answered: list[int] = []
    turns = 0

    def count(seen: base.Passing) -> None:
        if seen.way == "sent" and isinstance(seen.said, dict) and "result" in seen.said:
            answered.append(turns)

    async with hosting(lab_server(tools=["say", "echo"])) as host:
        call = asyncio.create_task(host.call("mcp_lab_say", cue(_pings(1_000)), timeout=30))
        base.taps.append(count)
        try:
            while len(answered) < 1_000:  # none is dropped
                await asyncio.sleep(0)
                turns += 1
        finally:
            base.taps.remove(count)
        assert (await call).text == "said"
        assert max(Counter(answered).values()) <= 2 * STARTS


async def test_a_server_that_sends_thousands_of_requests_is_cut_off(hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        result = await host.call("mcp_lab_say", cue(_pings(20_000)), timeout=30)
        assert "floods" in result.text


async def test_a_burst_of_thousands_of_notices_is_no_flood(hosting: Any) -> None:
    notice = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        assert (await host.call("mcp_lab_say", cue(notice, times=30_000), timeout=30)).text == "said"
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


def test_the_allowance_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("mooring.transport.limits.monotonic", lambda: now)
    allowance = FloodLimit(16 * MIB)
    assert all(allowance.take(1, 10) for _ in range(MESSAGES))
    assert not allowance.take(1, 10)
    now += 2
    assert all(allowance.take(1, 10) for _ in range(9_000))
    assert not all(allowance.take(1, 10) for _ in range(2_000))
