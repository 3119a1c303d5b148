"""FA01-FA12, FA27, FA28: children that do not start, exit at once, or crash repeatedly."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, MooringError, ServerConfig, ServerLost, StateChanged
from mooring.servers import status
from mooring.testing import VirtualClock
from tests.lab.stdio import cue, lab_server, methods, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


def _status(host: Host, name: str = "lab") -> Any:
    return next(status for status in host.status() if status.name == name)


async def test_FA01_a_file_that_may_not_be_run_is_named_and_not_tried_again(
    tmp_path: Path, hosting: Any
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    async with hosting(ServerConfig(name="plain", command=str(plain)), lab_server()) as host:
        status = _status(host, "plain")
        assert (status.state, status.retry_in) == ("failed", None)
        assert str(plain) in status.error
        assert (await host.call("mcp_lab_echo", {"text": "fine"})).text == "fine"


async def test_FA02_an_exit_before_the_first_message_is_reported_with_code_and_last_lines_of_stderr(
    hosting: Any,
) -> None:
    words = "old\n" * 30 + "ModuleNotFoundError: No module named 'mcp'\n"
    async with hosting(lab_server(crash_at_start=1, stderr=words)) as host:
        error = _status(host).error
        assert "exited with code 1" in error
        assert "No module named 'mcp'" in error
        assert error.count("old") == 19  # the last 20 lines, not all of them


async def test_FA03_half_a_message_and_then_the_end_is_an_exit_during_the_greeting(hosting: Any) -> None:
    half = cue(b'{"jsonrpc":"2.0","id":@ID@,"resu', then="exit")
    async with hosting(lab_server(cues={"server/discover": half, "initialize": half})) as host:
        assert _status(host).state == "failed"
        assert "exited with code 9" in _status(host).error


async def test_FA08_one_that_hangs_in_its_list_delays_no_other_server(hosting: Any) -> None:
    hung = lab_server("hung", hang_on_list=True)
    async with hosting(hung, lab_server("fine"), ready=False) as host:
        await until(lambda: "mcp_fine_echo" in host.catalog.tools)
        assert (await host.call("mcp_fine_echo", {"text": "x"})).text == "x"
        assert _status(host, "hung").state == "pending"


async def test_FA11_a_death_in_idle_time_is_seen_reported_and_repaired_without_a_call(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(log=str(log))) as host:
        events = host.events()
        os.kill(starts(log)[0], signal.SIGKILL)
        await until(lambda: len(starts(log)) == 2)
        await until(lambda: _status(host).state == "connected")
        events.end()
        heard = [event async for event in events]
        (lost,) = [event for event in heard if isinstance(event, ServerLost)]
        assert "signal 9" in lost.reason
        changes = [(event.old, event.new) for event in heard if isinstance(event, StateChanged)]
        assert changes == [("connected", "pending"), ("pending", "connected")]


async def test_FA12_a_crash_loop_is_given_up_politely_however_many_call(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(crash_at_start=5, log=str(log), era="legacy")) as host:
        for _ in range(20):
            results = await asyncio.gather(*(host.ping("lab", 5) for _ in range(10)), return_exceptions=True)
            assert all(isinstance(result, Exception) for result in results)
        await until(lambda: _status(host).state == "failed")
        assert "next try in" in _status(host).error
        assert _status(host).retry_in > 20
        assert len(starts(log)) == 5


@pytest.mark.parametrize("start", ["background", "lazy"])
@pytest.mark.parametrize("verb", ["ping", "call"])
async def test_FA12_a_call_that_joins_an_attempt_under_way_causes_no_other_one(
    verb: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(status, "backoff", lambda failures, chance: 60.0)  # no rest ends by itself
    slow = ServerConfig(
        name="lab", command="/bin/sh", args=("-c", f"echo started >> {log}; sleep 0.5; exit 5"), start=start
    )
    async with Host([slow]) as host:
        if start == "background":
            await until(log.exists)
        with pytest.raises(MooringError, match="exited with code 5"):
            if verb == "ping":
                await host.ping("lab", 20)
            else:
                await host.call("mcp_lab_echo", timeout=20, check=True)
        await asyncio.sleep(0.5)
        assert _status(host).state == "failed"
        assert log.read_text().splitlines() == ["started"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_FA12_a_child_that_exits_at_once_is_started_once_per_attempt(
    era: str, tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(crash_at_start=5, log=str(log), era=era)) as host:
        for attempt in range(1, 4):
            assert len(starts(log)) == attempt
            await host.refresh()  # ends the rest


async def test_FA12_a_child_that_reads_and_exits_is_started_in_both_eras_only_once(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    gone = cue(then="exit")
    server = lab_server(cues={"server/discover": gone, "initialize": gone}, log=str(log))
    async with hosting(server) as host:
        assert methods(log) == ["server/discover", "initialize"]
        for _ in range(2):
            await host.refresh()
        assert methods(log)[2:] == ["server/discover", "initialize"]


async def test_FA12_rests_double_while_nothing_asks_for_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(crash_at_start=5, log=str(log))]) as host:
        clock = VirtualClock()
        for number, expected in enumerate((1, 2, 4, 8, 16, 30), start=1):
            await until(lambda number=number: len(starts(log)) == number)
            await until(lambda: _status(host).retry_in is not None)
            assert expected / 2 < _status(host).retry_in <= 1.2 * expected
            await clock.advance(_status(host).retry_in + 0.01)


async def test_FA12_a_server_that_fell_is_tried_again_by_itself_and_says_when(hosting: Any) -> None:
    async with hosting(lab_server(crash_at_start=5)) as host:
        assert 0 < _status(host).retry_in <= 1.2


async def test_FA27_a_bad_exit_code_after_a_clean_close_is_no_crash(tmp_path: Path) -> None:
    log = tmp_path / "log"
    host = Host([lab_server("rude", exit_code=1, log=str(log)), lab_server("fine")])
    events = host.events()
    async with host:
        await host.ready(10)
        await host.remove("rude")
        assert (await host.call("mcp_fine_echo", {"text": "x"})).text == "x"
    assert not [event async for event in events if isinstance(event, ServerLost)]
    assert len(starts(log)) == 1


async def test_FA28_what_a_child_says_of_its_environment_reaches_the_user(hosting: Any) -> None:
    server = lab_server(crash_at_start=2, stderr="error: SSL_CERT_FILE is not set\n")
    async with hosting(server) as host:
        assert "SSL_CERT_FILE is not set" in _status(host).error


async def test_FA05_a_probe_answered_with_an_unusual_error_leads_to_the_handshake(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    odd = cue(b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32602,"message":"eh?"}}\n', then="silence")
    async with hosting(lab_server(cues={"server/discover": odd}, log=str(log))) as host:
        assert _status(host).protocol == "2025-11-25"
        assert methods(log)[:2] == ["server/discover", "initialize"]
