"""Fencing of the servers that run under a lease: a check before each request, and a watchdog."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mooring.cluster.watchdog import now as clock
from mooring.concurrency import end_tasks
from mooring.config.logs import logger

__all__ = ["Watchdog", "clock", "runs"]

log = logger("mooring.cluster")

PROGRAM = Path(__file__).with_name("watchdog.py")
END_WAIT = 1.0


class Watchdog:
    """Runs the watchdog program for the servers of this node.

    Args:
        on_exit: Called if the program ends by itself: the node must fence itself then.
    """

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit
        self._process: subprocess.Popen[bytes] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._pids: set[int] = set()
        self._until = float("-inf")

    def start(self) -> None:
        """Start the program. It is no member of this process group: what stops the node does not stop it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            cwd="/" if sys.platform != "win32" else None,
            env={},
        )
        assert self._process.stdin is not None
        if sys.platform != "win32":
            os.set_blocking(self._process.stdin.fileno(), False)
        self._watching = asyncio.create_task(self._watch(self._process))
        for pid in self._pids:
            self._send(f"add {pid}")
        self._send(f"until {self._until}")

    async def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:  # noqa: ASYNC110 (without a child watcher)
            await asyncio.sleep(0.2)
        log.error("the watchdog ended code=%s; servers with a lease are killed", process.returncode)
        self._on_exit()
        self.start()

    @property
    def pids(self) -> frozenset[int]:
        """The processes that it would kill."""
        return frozenset(self._pids)

    def until(self, end: float) -> None:
        """Set when the lease ends."""
        self._until = end
        self._send(f"until {end}")

    def add(self, pid: int) -> None:
        self._pids.add(pid)
        self._send(f"add {pid}")

    def remove(self, pid: int) -> None:
        if pid in self._pids:
            self._pids.discard(pid)
            self._send(f"remove {pid}")

    def kill(self) -> None:
        """Kill all processes that run under the lease, at once."""
        import signal

        self._send("kill")
        for pid in self._pids:
            if sys.platform != "win32":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        self._pids.clear()

    def _send(self, line: str) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(f"{line}\n".encode())
        except BlockingIOError:
            # It does not read: it is stopped, or the machine is overloaded. It is replaced.
            process.kill()
        except OSError:
            pass  # `_watch` notices

    async def stop(self) -> None:
        """End the program, which kills what it still watches."""
        if self._watching is not None:
            await end_tasks([self._watching])
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, END_WAIT)
        if process.poll() is None:
            process.kill()
            process.wait()


def runs(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
