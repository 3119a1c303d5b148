"""After the end of a host nothing is left: no child, grandchild, thread, file descriptor or task, however a
host ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Host
from tests.lab.http import HttpLab
from tests.lab.program import processes, program, running
from tests.lab.stdio import lab_server, methods
from tests.lab.wait import until, until_true

pytestmark = pytest.mark.anyio

STUBBORN: dict[str, Any] = {"ignore_sigterm": True, "ignore_eof": True, "spawn_grandchild": True}
QUICK = {"settings": {"shutdown_grace": 0.1}}


@pytest.mark.usefixtures("leaves_nothing")
async def test_closing_leaves_nothing_behind() -> None:
    async with HttpLab() as lab:
        async with Host([lab_server("a"), lab_server("b", era="legacy"), lab.config("web")]) as host:
            await host.ready(10)
            await host.call("mcp_a_echo", {"text": "x"})
        tasks = [task for task in asyncio.all_tasks() if "mooring" in repr(task.get_coro())]
        assert tasks == []


async def test_FA22_a_child_that_ignores_everything_is_ended_with_its_grandchildren(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), **STUBBORN, **QUICK)]) as host:
        await host.ready(10)
        pids = processes(log)
        assert len(pids) == 2
        assert all(running(pid) for pid in pids)
    assert not any(running(pid) for pid in pids)


async def test_FA23_grandchildren_of_a_child_that_ends_politely_are_ended_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), spawn_grandchild=True)]) as host:
        await host.ready(10)
    assert not any(running(pid) for pid in processes(log))


async def test_an_exception_in_the_body_comes_out_as_it_is_and_ends_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ZeroDivisionError):
        async with Host([lab_server(log=str(log), spawn_grandchild=True)]) as host:
            await host.ready(10)
            _ = 1 / 0
    assert not any(running(pid) for pid in processes(log))


async def test_a_cancelled_body_ends_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with anyio.move_on_after(30) as scope:
        async with Host([lab_server(log=str(log), spawn_grandchild=True)]) as host:
            await host.ready(10)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert not any(running(pid) for pid in processes(log))


async def test_closing_cancels_calls_in_flight_on_the_wire_and_answers_their_callers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), tools=["sleep"])]) as host:
        call = asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": 30}))
        await until(lambda: "tools/call" in methods(log))
    result = await call
    assert result.is_error
    assert "notifications/cancelled" in methods(log)


async def test_closing_twice_is_closing_once() -> None:
    async with Host([lab_server()]) as host:
        await host.ready(10)
        await host.close()
        await host.close()
        assert (await host.call("mcp_lab_echo")).is_error


async def test_FA22_many_stubborn_servers_are_ended_side_by_side(tmp_path: Path) -> None:
    logs = [tmp_path / f"log{n}" for n in range(8)]
    servers = [lab_server(f"s{n}", log=str(log), **STUBBORN, **QUICK) for n, log in enumerate(logs)]
    async with Host(servers) as host:
        await host.ready(20)
        started = time.monotonic()
    # One after the other they would need 8 × 1.6 s.
    assert time.monotonic() - started < 8
    assert not any(running(pid) for log in logs for pid in processes(log))


@pytest.mark.usefixtures("leaves_nothing")
async def test_FA25_starting_and_stopping_two_hundred_children_leaves_nothing() -> None:
    for _ in range(25):
        async with Host([lab_server(f"s{n}") for n in range(8)]) as host:
            assert await host.ready(20)


def _program(log: Path, body: str) -> subprocess.Popen[str]:
    return program(body, f"lab_server(log={str(log)!r}, **{STUBBORN | QUICK!r})")


def test_FA75_ctrl_c_ends_a_stubborn_child_and_its_grandchildren(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _program(log, "await asyncio.sleep(60)")
    pids = processes(log)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert "loop is closed" not in errors
    assert not any(running(pid) for pid in pids)


def test_FA75_an_interpreter_that_exits_without_closing_ends_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _program(log, "sys.exit(0)")
    process.communicate(timeout=20)
    assert not any(running(pid) for pid in processes(log))


def test_FA26_a_host_killed_with_9_leaves_no_server_and_no_grandchild(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _program(log, "await asyncio.sleep(60)")
    pids = processes(log)
    process.kill()
    process.communicate(timeout=10)
    until_true(lambda: not any(running(pid) for pid in pids))


async def test_FA24_a_grandchild_in_a_session_of_its_own_is_found_and_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Host([lab_server(log=str(log), spawn_grandchild="own session")]) as host:
        await host.ready(10)
        pids = processes(log)
        assert len(pids) == 2
    assert not any(running(pid) for pid in pids)
