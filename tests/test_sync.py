"""The synchronous API: the same verbs, many threads, and a clean shutdown."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mooring import CallError, CatalogChanged, Host, LocalTools, SyncHost
from mooring.core.types import Snapshot
from tests.lab.stdio import lab_server
from tests.lab.wait import until_true


@pytest.mark.usefixtures("leaves_nothing")
def test_the_same_verbs_without_await() -> None:
    with SyncHost([lab_server(tools=["echo", "fail"])]) as host:
        assert host.ready(10)
        assert [status.state for status in host.status()] == ["connected"]
        assert list(host.catalog.tools) == ["mcp_lab_echo", "mcp_lab_fail"]
        assert host.call("mcp_lab_echo", {"text": "hi"}).text == "hi"
        with pytest.raises(CallError):
            host.call("mcp_lab_fail", check=True)
        assert host.search("echo")[0].name == "mcp_lab_echo"
        assert host.hidden() == ()
        assert host.ping("lab") > 0
        assert host.health_check()
        assert host.refresh()["lab"].ok
        host.add(lab_server("two"))
        host.remove("two")
        with host.session("chat") as chat:
            assert chat.id == "chat"
            assert len(chat.tools()) == 2
            assert chat.call("mcp_lab_echo", {"text": "x"}).text == "x"


def test_many_threads_get_their_own_answers() -> None:
    with SyncHost([lab_server()]) as host, ThreadPoolExecutor(32) as threads:

        def work(number: int) -> bool:
            texts = [f"{number}-{turn}" for turn in range(200)]
            return [host.call("mcp_lab_echo", {"text": text}).text for text in texts] == texts

        assert all(threads.map(work, range(32)))


async def _inside_a_loop() -> str:
    with SyncHost([lab_server()]) as host:
        return host.call("mcp_lab_echo", {"text": "inside"}).text


def test_it_works_from_inside_a_running_loop() -> None:
    assert asyncio.run(_inside_a_loop()) == "inside"


async def _notebook() -> tuple[str, str, str]:
    """Cells of a notebook: each runs inside the kernel's loop, and the host outlives them."""
    host = SyncHost([lab_server()]).__enter__()
    await asyncio.sleep(0)
    first = host.call("mcp_lab_echo", {"text": "a cell"}).text
    beside = await asyncio.to_thread(lambda: host.call("mcp_lab_echo", {"text": "a thread"}).text)
    async with Host([lab_server()]) as other:
        awaited = (await other.call("mcp_lab_echo", {"text": "awaited"})).text
    host.close()
    return first, beside, awaited


def test_it_lives_from_cell_to_cell_of_a_notebook() -> None:
    assert asyncio.run(_notebook()) == ("a cell", "a thread", "awaited")


def test_calls_that_race_with_the_end_come_back() -> None:
    """Every thread gets an error; none waits for an event loop that has ended."""
    for _ in range(5):
        host = SyncHost([lab_server()]).__enter__()
        host.ready(10)
        ends: list[str] = []
        going = threading.Barrier(9)

        def work(host: SyncHost = host, ends: list[str] = ends, going: threading.Barrier = going) -> None:
            going.wait(10)
            try:
                while True:
                    host.call("mcp_lab_echo", {"text": "x"})
            except RuntimeError as problem:
                ends.append(str(problem))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        going.wait(10)
        host.close()
        for thread in threads:
            thread.join(10)
        assert len(ends) == 8
        assert all("host" in end for end in ends)


def test_use_from_its_own_loop_is_refused_instead_of_hanging() -> None:
    caught: list[str] = []

    def misuse() -> None:
        try:
            host.call("mcp_lab_echo")
        except RuntimeError as problem:
            caught.append(str(problem))

    async def meddle(progress: float, total: float | None, message: str | None) -> None:
        misuse()

    with SyncHost([lab_server(tools=["sleep"], progress=True)]) as host:
        host.call("mcp_lab_sleep", {"seconds": 0.1}, on_progress=meddle)
    assert caught
    assert "own event loop" in caught[0]


def test_a_host_that_is_not_running_says_so() -> None:
    host = SyncHost([lab_server()])
    with pytest.raises(RuntimeError, match="inside `with`"):
        host.call("mcp_lab_echo")
    with host:
        pass
    with pytest.raises(RuntimeError, match="inside `with`"):
        host.call("mcp_lab_echo")
    host.close()


def test_events_can_be_iterated_in_a_thread() -> None:
    heard: list[object] = []
    with SyncHost([lab_server(tools=["grow"])]) as host:
        host.ready(10)
        assert host.catalog.tools
        events = host.events()
        listener = threading.Thread(target=lambda: heard.extend(events))
        listener.start()
        host.call("mcp_lab_grow", {"name": "extra"})
        until_true(lambda: any(isinstance(event, CatalogChanged) for event in heard))
    listener.join(10)
    assert not listener.is_alive()


def test_a_failed_start_leaves_no_thread() -> None:
    class Broken(LocalTools):
        @property
        def snapshot(self) -> Snapshot:
            raise RuntimeError("broken")

    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="broken"), SyncHost([lab_server()], providers=[Broken(name="x")]):
        pass
    assert set(threading.enumerate()) <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FA76_after_a_fork_it_is_refused_and_the_parent_lives_on() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from mooring import SyncHost
from tests.lab.stdio import lab_server
with SyncHost([lab_server()]) as host:
    host.ready(10)
    pid = os.fork()
    if pid == 0:
        try:
            host.call("mcp_lab_echo", {"text": "x"})
        except RuntimeError as problem:
            os.write(1, str(problem).encode() + b"\\n")
        os._exit(0)
    os.waitpid(pid, 0)
    print(host.call("mcp_lab_echo", {"text": "parent lives"}).text)
"""
    out = _run(code)
    assert "after a fork" in out
    assert "parent lives" in out


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_that_leaves_the_host_takes_nothing_along() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from mooring import SyncHost
from tests.lab.stdio import lab_server
with SyncHost([lab_server()]) as host:
    host.ready(10)
    pid = os.fork()
    if pid == 0:
        host.close()
        host.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(host.call("mcp_lab_echo", {"text": "parent lives"}).text)
"""
    assert "parent lives" in _run(code)


def test_an_interpreter_that_ends_amid_calls_ends_cleanly() -> None:
    code = """
import sys, threading
from mooring import SyncHost
from tests.lab.stdio import lab_server
host = SyncHost([lab_server(tools=["sleep", "pid"], progress=True)]).__enter__()
print(host.call("mcp_lab_pid").text)
begun = threading.Event()
async def heard(progress, total, message):
    begun.set()
def work():
    host.call("mcp_lab_sleep", {"seconds": 60}, on_progress=heard)
def listen():
    for event in host.events():
        pass
for target in (work, listen):
    threading.Thread(target=target, daemon=True).start()
begun.wait(10)
sys.exit(0)
"""
    pid = int(_run(code))
    until_true(lambda: not Path(f"/proc/{pid}").exists())


def test_an_interrupt_ends_the_call_and_the_program() -> None:
    code = """
import os, signal
from mooring import SyncHost
from tests.lab.stdio import lab_server
with SyncHost([lab_server(tools=["sleep", "echo"], progress=True)]) as host:
    async def interrupt(progress, total, message):
        os.kill(os.getpid(), signal.SIGINT)
    try:
        host.call("mcp_lab_sleep", {"seconds": 60}, on_progress=interrupt)
    except KeyboardInterrupt:
        print(host.call("mcp_lab_echo", {"text": "goes on"}).text)
"""
    assert "goes on" in _run(code)


def test_FA75_an_interpreter_that_ends_without_closing_ends_cleanly() -> None:
    code = """
from mooring import SyncHost
from tests.lab.stdio import lab_server
host = SyncHost([lab_server(tools=["pid"])]).__enter__()
print(host.call("mcp_lab_pid").text)
"""
    pid = int(_run(code))
    until_true(lambda: not Path(f"/proc/{pid}").exists())


def _run(code: str) -> str:
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout
