"""The signals that end a serving process, at every moment of its start."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

PROGRAM = """
import asyncio, os, signal
from mooring.gateway.shutdown import Shutdown

async def main():
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(NUMBER, lambda: None)  # of the start
    os.kill(os.getpid(), NUMBER)
    Shutdown(stop.set, lambda: 30.0, print)
    await stop.wait()
    print("stopped")

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_arrives_right_before_the_handlers_are_replaced_is_not_lost(number: int) -> None:
    program = PROGRAM.replace("NUMBER", str(int(number)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.returncode) == ("stopped\n", 0), done.stderr
