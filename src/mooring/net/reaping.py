"""The exit of a child process, told to the event loop, whichever loop it is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["nothing", "watch"]


def watch(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], exited: Callable[[int | None], None]
) -> Callable[[], None]:
    """Have `exited` called when the process ends; call what is returned to stop watching."""
    if sys.platform == "linux":
        with suppress(OSError):  # before Linux 5.3
            return _watch_descriptor(loop, os.pidfd_open(process.pid), process, exited)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(exited, code)

    threading.Thread(target=wait, name=f"mooring-wait-{process.pid}", daemon=True).start()
    return nothing


def _watch_descriptor(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    process: subprocess.Popen[bytes],
    exited: Callable[[int | None], None],
) -> Callable[[], None]:
    watching = True

    def stop() -> None:
        nonlocal watching
        if watching:
            watching = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def look() -> None:
        if process.poll() is not None:
            stop()
            exited(process.returncode)

    loop.add_reader(descriptor, look)
    return stop


def nothing() -> None:
    """Where there is nothing to stop."""
