"""The watchdog, a process of its own that kills servers when a lease ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from mooring.cluster.fencing import Watchdog, clock
from tests.cluster.engine_lab import alive, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)


async def test_it_kills_a_server_at_the_end_of_the_lease_and_not_before() -> None:
    process, dog = sleeper(), Watchdog(lambda: None)
    dog.start()
    try:
        dog.until(clock() + 1000)
        dog.add(process.pid)
        await asyncio.sleep(0.3)
        assert alive(process.pid)
        dog.until(clock() + 0.1)
        await until(lambda: process.poll() is not None, 20)
        assert process.returncode == -signal.SIGKILL
    finally:
        await dog.stop()
        process.kill()
        process.wait()


async def test_it_rests_while_its_node_has_no_lease_and_kills_what_is_added_then() -> None:
    dog = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring.cluster.watchdog"), stdin=asyncio.subprocess.PIPE
    )
    process = sleeper()
    assert dog.stdin is not None
    try:
        dog.stdin.write(f"until {clock() - 1}\nadd {process.pid}\n".encode())
        await until(lambda: process.poll() is not None, 20)
        before = sum(psutil.Process(dog.pid).cpu_times()[:2])
        await asyncio.sleep(1.5)
        assert sum(psutil.Process(dog.pid).cpu_times()[:2]) - before < 0.2
    finally:
        dog.stdin.close()
        process.kill()
        process.wait()
        await dog.wait()


async def test_a_removed_server_is_left_alone() -> None:
    process, other, dog = sleeper(), sleeper(), Watchdog(lambda: None)
    dog.start()
    try:
        dog.until(clock() + 1000)
        dog.add(process.pid)
        dog.add(other.pid)
        dog.remove(process.pid)
        dog.until(clock())
        await until(lambda: other.poll() is not None, 20)
        assert alive(process.pid)
    finally:
        await dog.stop()
        process.kill()
        process.wait()


async def test_it_kills_what_it_watches_when_its_node_dies() -> None:
    process = sleeper()
    program = (
        "import asyncio, sys, time\n"
        "from mooring.cluster.fencing import Watchdog, clock\n"
        "async def main():\n"
        "    dog = Watchdog(lambda: None); dog.start(); dog.until(clock() + 1000)\n"
        f"    dog.add({process.pid}); print('ready', flush=True); time.sleep(300)\n"
        "asyncio.run(main())\n"
    )
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    try:
        assert node.stdout is not None
        assert await node.stdout.readline() == b"ready\n"
        assert alive(process.pid)
        node.kill()
        await until(lambda: process.poll() is not None, 20)
    finally:
        await node.wait()
        process.kill()
        process.wait()


async def test_a_server_that_starts_after_the_end_of_the_lease_is_killed_at_once() -> None:
    process, dog = sleeper(), Watchdog(lambda: None)
    dog.start()
    try:
        dog.until(clock() - 1)
        dog.add(process.pid)
        await until(lambda: process.poll() is not None, 20)
    finally:
        await dog.stop()
        process.kill()
        process.wait()
