"""Program: kills the servers of a node when its lease ends, even if the node itself is stopped.

It runs as a process of its own and uses only the standard library. It reads lines from standard input:
`until SECONDS` (on the clock of `now`), `add PID`, `remove PID` and `kill`. When the time is over, and when
the input ends because the node has died, it kills the process groups that were added.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress


def now() -> float:
    """Return seconds on a clock that also runs while the machine is suspended, where there is one."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Groups:
    """Process groups to kill. A process id that the system has given to another process is not killed."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}

    def add(self, pid: int) -> None:
        self.remove(pid)
        handle = -1
        if sys.platform == "linux":
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            except OSError:
                handle = -1  # an old kernel
        self._handles[pid] = handle

    def remove(self, pid: int) -> None:
        handle = self._handles.pop(pid, -1)
        if handle >= 0:
            os.close(handle)

    def kill(self) -> None:
        """Kill all groups and forget them."""
        for pid, handle in list(self._handles.items()):
            ended = handle >= 0 and bool(select.select([handle], [], [], 0)[0])
            if not ended and sys.platform != "win32":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            self.remove(pid)


def run(descriptor: int) -> None:
    """Read commands until the input ends."""
    groups, until, expired, rest = Groups(), float("inf"), False, b""
    while True:
        wait = 1.0 if expired else max(until - now(), 0.0)
        # Short waits: the timers of `select` do not run while the machine is suspended.
        ready = select.select([descriptor], [], [], min(wait, 1.0))[0]
        data = os.read(descriptor, 65_536) if ready else None
        if data == b"":
            groups.kill()
            return
        *lines, rest = (rest + (data or b"")).split(b"\n")
        if lines and now() >= until:
            groups.kill()  # what arrives now was sent before the end, or after a pause
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"until":
                until = float(value)
            elif word == b"add":
                groups.add(int(value))
            elif word == b"remove":
                groups.remove(int(value))
            elif word == b"kill":
                groups.kill()
        expired = now() >= until
        if expired:
            groups.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(0)
