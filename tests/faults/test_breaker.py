"""FA81, FA43: when calls to a failing server are stopped, and when they are tried again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import CallTimeout, CircuitOpen, ConnectionLost, Host, ServerConfig, ServerError
from mooring.core.breaker import Breaker
from tests.lab.http import HttpLab
from tests.lab.stdio import COMMAND, lab_server, methods
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Answers:
    """A fault that answers every call with `status` and counts them; 0 lets the laboratory answer."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.seen = 0

    async def __call__(self, request: web.Request, message: dict[str, Any]) -> web.Response | None:
        self.seen += 1
        return web.Response(status=self.status, text="on purpose") if self.status else None


async def _calls(host: Host, count: int) -> list[type]:
    return [type((await host.call("mcp_web_echo", {"text": "x"})).error) for _ in range(count)]


def _state(host: Host) -> str:
    return host.status()[0].breaker


async def test_FA81_five_transport_failures_in_a_row_open_it_and_then_nothing_is_sent(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        fault = lab.faults["tools/call"] = Answers(502)
        assert await _calls(host, 4) == [ServerError] * 4
        assert _state(host) == "closed"
        assert await _calls(host, 1) == [ServerError]
        assert _state(host) == "open"
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, CircuitOpen)
        assert result.error.outcome == "not sent"
        assert 0 < result.error.retry_after <= 10
        assert fault.seen == 5


async def test_FA81_after_the_rest_one_probe_goes_out_and_two_successes_close_it(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Breaker, "FIRST_REST", 0.2)
    async with HttpLab() as lab, hosting(lab.config()) as host:
        fault = lab.faults["tools/call"] = Answers(502)
        await _calls(host, 5)
        await until(lambda: _state(host) == "half-open")
        results = await asyncio.gather(*(host.call("mcp_web_echo", {"text": "x"}) for _ in range(20)))
        kinds = [type(result.error) for result in results]
        assert kinds.count(ServerError) == 1
        assert kinds.count(CircuitOpen) == 19
        assert fault.seen == 6
        fault.status = 0
        await until(lambda: _state(host) == "half-open")
        assert await _calls(host, 1) == [type(None)]
        assert _state(host) == "half-open"
        assert await _calls(host, 1) == [type(None)]
        assert _state(host) == "closed"


async def test_FA81_calls_that_time_out_together_open_it_for_the_first_rest_only(hosting: Any) -> None:
    async with hosting(lab_server(tools=["sleep"], settings={"call_timeout": 0.2})) as host:
        calls = [host.call("mcp_lab_sleep", {"seconds": 30}) for _ in range(20)]
        results = await asyncio.gather(*calls)
        assert {type(result.error) for result in results} == {CallTimeout}
        refused = await host.call("mcp_lab_sleep", {"seconds": 0})
        assert isinstance(refused.error, CircuitOpen)
        assert refused.error.retry_after <= 10


@pytest.mark.parametrize("together", [False, True])
async def test_timeouts_of_impatient_callers_do_not_stop_the_calls_of_others(
    together: bool, hosting: Any
) -> None:
    async with hosting(lab_server(tools=["sleep", "echo"])) as host:
        calls = [host.call("mcp_lab_sleep", {"seconds": 30}, timeout=0.05) for _ in range(8)]
        results = await asyncio.gather(*calls) if together else [await call for call in calls]
        assert {type(result.error) for result in results} == {CallTimeout}
        assert _state(host) == "closed"
        assert (await host.call("mcp_lab_echo", {"text": "patient"})).text == "patient"


async def test_impatient_callers_of_a_server_that_is_still_starting_do_not_stop_the_calls_of_others(
    tmp_path: Path, hosting: Any
) -> None:
    gate = tmp_path / "open"
    waits = f"until [ -e '{gate}' ]; do sleep 0.05; done; exec \"$@\""
    args = ("-c", waits, "sh", *COMMAND, json.dumps({"tools": ["echo"]}))
    server = ServerConfig(name="late", command="/bin/sh", args=args)
    async with hosting(server, ready=False) as host:
        for _ in range(8):
            with pytest.raises(ConnectionLost):
                await host.read("memo:///a", "late", timeout=0.05)
        gate.touch()
        assert (await host.call("mcp_late_echo", {"text": "patient"})).text == "patient"
        assert _state(host) == "closed"


async def test_short_timeouts_open_it_once_a_server_was_silent_for_as_long_as_its_own_limit(
    hosting: Any,
) -> None:
    quiet = lab_server(tools=["sleep", "pid"], settings={"call_timeout": 1.0})
    async with hosting(quiet) as host:
        pid = int((await host.call("mcp_lab_pid")).text)
        os.kill(pid, signal.SIGSTOP)
        try:
            kinds: list[type] = []
            while CircuitOpen not in kinds:
                assert len(kinds) < 60
                kinds.append(type((await host.call("mcp_lab_pid", timeout=0.1)).error))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert set(kinds) == {CallTimeout, CircuitOpen}
        assert kinds.index(CircuitOpen) > Breaker.THRESHOLD


async def test_FA81_a_probe_whose_caller_goes_away_makes_room_for_the_next(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Breaker, "FIRST_REST", 0.05)
    async with HttpLab() as lab, hosting(lab.config()) as host:
        fault = lab.faults["tools/call"] = Answers(502)
        await _calls(host, 5)
        await until(lambda: _state(host) == "half-open")
        fault.status = 0
        probe = asyncio.create_task(host.call("mcp_web_sleep", {"seconds": 30}))
        await lab.until(lambda: lab.running == 1)
        assert await _calls(host, 1) == [CircuitOpen]
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        assert await _calls(host, 2) == [type(None)] * 2
        assert _state(host) == "closed"


async def test_FA10_a_crash_with_many_calls_under_way_is_one_failure(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["sleep", "pid", "echo"], log=str(log))) as host:
        pid = int((await host.call("mcp_lab_pid")).text)
        calls = [asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": 30})) for _ in range(20)]
        await until(lambda: methods(log).count("tools/call") == 21)
        os.kill(pid, signal.SIGKILL)
        results = await asyncio.gather(*calls)
        assert {type(result.error) for result in results} == {ConnectionLost}
        assert _state(host) == "closed"
        assert (await host.call("mcp_lab_echo", {"text": "again"})).text == "again"


@pytest.mark.parametrize("tool", ["fail", "refuse"])
async def test_FA43_what_a_tool_calls_an_error_never_counts(tool: str, hosting: Any) -> None:
    async with hosting(lab_server(tools=[tool, "pid"])) as host:
        pid = (await host.call("mcp_lab_pid")).text
        for _ in range(12):
            assert (await host.call(f"mcp_lab_{tool}")).is_error
        assert _state(host) == "closed"
        assert (await host.call("mcp_lab_pid")).text == pid


@pytest.mark.parametrize("status", [403, 404, 406, 418])
async def test_FA52_a_refusal_of_one_call_never_counts(status: int, hosting: Any) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = Answers(status)
        results = [await host.call("mcp_web_echo", {"text": "x"}) for _ in range(8)]
        assert all(str(status) in result.text for result in results)
        assert _state(host) == "closed"


async def test_the_breaker_of_one_server_is_nothing_to_another(hosting: Any) -> None:
    async with HttpLab() as bad, HttpLab() as good:
        async with hosting(bad.config("web"), good.config("fine")) as host:
            bad.faults["tools/call"] = Answers(500)
            await _calls(host, 5)
            assert await _calls(host, 1) == [CircuitOpen]
            assert (await host.call("mcp_fine_echo", {"text": "x"})).text == "x"


def stumbling(folder: Path, *bad: int) -> ServerConfig:
    """A server whose starts of these numbers fail; the first start is number 1."""
    count, cases = folder / "starts", " ".join(map(str, bad))
    script = (
        f"n=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo $n > {count}; "
        f'for b in {cases}; do [ $n = $b ] && exit 1; done; exec "$@"'
    )
    lab = json.dumps({"tools": ["echo", "crash"]})
    return ServerConfig(name="lab", command="/bin/sh", args=("-c", script, "sh", *COMMAND, lab))


async def test_a_caller_that_waits_for_a_server_that_fails_again_is_served_by_the_next_attempt(
    hosting: Any, tmp_path: Path
) -> None:
    async with hosting(stumbling(tmp_path, 2, 3), style="raw") as host:
        assert (await host.call("crash")).is_error
        results = await asyncio.gather(*(host.call("echo", {"text": f"{n}"}) for n in range(10)))
        assert [result.text for result in results] == [f"{n}" for n in range(10)]
        assert (tmp_path / "starts").read_text().strip() == "4"


async def test_a_start_that_fails_counts_once_however_many_waited_for_it(
    hosting: Any, tmp_path: Path
) -> None:
    async with hosting(stumbling(tmp_path, *range(2, 9)), style="raw") as host:
        assert (await host.call("crash")).is_error
        results = await asyncio.gather(*(host.call("echo", {"text": "x"}) for _ in range(10)))
        assert {getattr(result.error, "outcome", None) for result in results} == {"not sent"}
        [status] = host.status()
        assert status.breaker == "closed"
