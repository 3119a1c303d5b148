"""FA70-FA77, FA82: faults of the host's own process: races, cancellation, a blocked loop, a full system."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, LoopLagged, telemetry
from tests.lab.http import HttpLab
from tests.lab.program import processes, program, running
from tests.lab.stdio import cue, lab_server, methods, starts
from tests.lab.wait import until, until_true

pytestmark = pytest.mark.anyio


def _our_tasks() -> int:
    return sum("mooring" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_FA70_a_hundred_callers_of_a_server_that_is_not_there_yet_share_one_start(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(era="legacy", log=str(log), settings={"start": "lazy"})
    async with hosting(server) as host:
        results = await asyncio.gather(*(host.call("mcp_lab_echo", {"text": str(n)}) for n in range(100)))
        assert [result.text for result in results] == [str(n) for n in range(100)]
        assert len(starts(log)) == 1
        assert methods(log).count("initialize") == 1
        assert methods(log).count("tools/list") == 1


@pytest.mark.parametrize("wire", ["stdio", "legacy", "modern"])
async def test_FA71_a_thousand_random_cancellations_leak_nothing(wire: str, hosting: Any) -> None:
    chance = random.Random(71)
    async with HttpLab(era=wire if wire != "stdio" else "dual") as lab:
        server = lab_server("s", tools=["echo"]) if wire == "stdio" else lab.config("s")
        async with hosting(server) as host:
            await host.call("mcp_s_echo", {"text": "x"})
            # The server's own stream or subscription comes up in its own time.
            await until(lambda: wire == "stdio" or lab.open_streams + lab.subscriptions == 1)
            before = _our_tasks()
            for _ in range(20):
                calls = [asyncio.create_task(host.call("mcp_s_echo", {"text": "x"})) for _ in range(50)]
                for call in calls:
                    asyncio.get_running_loop().call_later(chance.uniform(0, 0.02), call.cancel)
                await asyncio.wait(calls)
            await until(lambda: _our_tasks() <= before)
            assert (await host.call("mcp_s_echo", {"text": "alive"})).text == "alive"
            assert host.provider("s").supervisor.live.channel.waiting.keys() <= {"listen-1"}


async def test_FA72_a_caller_cancelled_while_connecting_costs_the_others_nothing(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(start_delay=0.4, log=str(log), settings={"start": "lazy"})
    async with hosting(server) as host:
        calls = [asyncio.create_task(host.call("mcp_lab_echo", {"text": str(n)})) for n in range(10)]
        await until(lambda: len(starts(log)) == 1)
        for call in calls[:9]:
            call.cancel()
        assert (await calls[9]).text == "9"
        assert len(starts(log)) == 1
    assert not running(starts(log)[0])


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_FA73_a_loop_blocked_by_the_application_kills_no_server_and_no_answer_that_is_there(
    wire: str, tmp_path: Path, hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "INTERVAL", 0.1)  # so that no block lies between two beats
    # Over HTTP the lab server needs an event loop of its own.
    log = tmp_path / "log"
    with LabThread() as lab:
        server = lab_server("s", tools=["sleep"], log=str(log)) if wire == "stdio" else lab.config("s")
        async with hosting(server) as host:
            events = host.events()
            for number in range(1, 4):
                call = asyncio.create_task(host.call("mcp_s_sleep", {"seconds": 0.2}, timeout=0.5))
                await until(lambda sent=number: (methods(log) + lab.methods()).count("tools/call") == sent)
                time.sleep(0.7)  # blocks on purpose
                result = await call
                assert not result.is_error, result.text
            assert host.status()[0].state == "connected"
            lag = await anext(event async for event in events if isinstance(event, LoopLagged))
            assert lag.seconds > 0.5


class LabThread:
    """An HTTP laboratory in a thread with a loop of its own."""

    def __enter__(self) -> HttpLab:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(10)
        return self.lab

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with HttpLab() as self.lab:
            self._ready.set()
            await self._end.wait()


@contextmanager
def _descriptors_left(spare: int) -> Iterator[None]:
    """So many file descriptors can still be opened, and not one more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def test_FA77_without_free_descriptors_those_servers_fail_and_nothing_of_them_is_left(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    servers = [lab_server(name, log=str(log)) for name in ("one", "two", "three")]
    async with Host(servers) as host:  # modules are imported, and the loop has what it keeps
        await host.ready(10)
    for spare in range(24):
        # Whichever descriptor of a start is the one too many.
        before = len(os.listdir("/proc/self/fd"))
        host = Host(servers)
        with _descriptors_left(spare):
            await host.__aenter__()
            await host.ready(10)
            errors = [status.error for status in host.status() if status.state != "connected"]
        await host.__aexit__(None, None, None)
        assert all("Too many open files" in (error or "") for error in errors)
        assert len(errors) == 3 or spare > 5
        assert len(os.listdir("/proc/self/fd")) <= before
        assert not any(running(pid) for pid in starts(log))
    assert not errors


@pytest.mark.parametrize("spare", [0, 6])
async def test_FA77_a_server_that_the_system_refused_is_tried_again_by_itself(spare: int) -> None:
    host = Host([lab_server()])
    with _descriptors_left(spare):
        await host.__aenter__()
        await host.ready(10)
        (status,) = host.status()
        assert status.state == "failed"
        assert "Too many open files" in (status.error or "")
    try:
        await until(lambda: host.status()[0].state == "connected")
    finally:
        await host.__aexit__(None, None, None)


async def test_FA82_five_servers_that_fall_and_hang_do_not_slow_a_healthy_one(hosting: Any) -> None:
    flapping = [lab_server(f"bad{n}", tools=["crash", "say"]) for n in range(5)]
    async with hosting(lab_server("good"), *flapping) as host:

        async def sample() -> list[float]:
            times: list[float] = []
            for n in range(100):
                result = await host.call("mcp_good_echo", {"text": str(n)})
                assert result.text == str(n)
                times.append(result.duration)
            return times

        async def trouble(n: int) -> None:
            while True:
                await asyncio.sleep(0.01)  # while it rests it is refused at once, and this must not spin
                await host.call(f"mcp_bad{n}_crash")
                await host.call(f"mcp_bad{n}_say", cue(b"x" * 1000, then="silence"), timeout=0.05)

        calm = statistics.median(await sample())
        faults = [asyncio.create_task(trouble(n)) for n in range(5)]
        busy = statistics.median(await sample())
        for fault in faults:
            fault.cancel()
        await asyncio.gather(*faults, return_exceptions=True)
        # Not a measurement (the soak is): no call waits for the timeout of another server.
        assert busy < calm * 20 + 0.02


def _program(log: Path, body: str) -> subprocess.Popen[str]:
    stubborn = (
        f"lab_server(log={str(log)!r}, ignore_sigterm=True, ignore_eof=True, spawn_grandchild=True, "
        "settings={'shutdown_grace': 0.3})"
    )
    return program(body, stubborn, f"lab_server('second', log={str(log)!r})")


def test_FA75_ctrl_c_twice_leaves_no_process_and_no_complaint_about_a_closed_loop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _program(log, "await asyncio.sleep(60)")
    pids = processes(log)
    process.send_signal(signal.SIGINT)
    until_true(lambda: not all(running(pid) for pid in pids))  # it ends its servers: one is stubborn
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in errors
    assert "loop is closed" not in errors
    until_true(lambda: not any(running(pid) for pid in pids))


def test_FA75_sys_exit_in_a_thread_ends_that_thread_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    call = "await host.call('mcp_second_echo', {'text': 'x'}, check=True)"
    body = f"threading.Thread(target=sys.exit).start(); {call}"
    process = _program(log, body)
    _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
    assert not any(running(pid) for pid in processes(log))


def test_FA75_os_exit_leaves_no_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = _program(log, "os._exit(3)")
    process.communicate(timeout=10)
    until_true(lambda: not any(running(pid) for pid in processes(log)))
