"""Observe a child process: its exit, a pending SIGKILL, and input that it never read."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

READER_GONE = 5
"""Milliseconds to wait for the reader of a pipe to close it. The wait blocks the event loop."""


def watch_exit(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], exited: Callable[[int | None], None]
) -> Callable[[], None]:
    """Call `exited` with the exit code when the process ends. Return a function that stops watching."""
    if sys.platform == "linux":
        with suppress(OSError):  # before Linux 5.3
            return _watch_descriptor(loop, os.pidfd_open(process.pid), process, exited)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(exited, code)

    threading.Thread(target=wait, name=f"mooring-wait-{process.pid}", daemon=True).start()
    return lambda: None


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

    def check() -> None:
        if process.poll() is not None:
            stop()
            exited(process.returncode)

    loop.add_reader(descriptor, check)
    return stop


class ProcessProbe:
    """What the system shows of a child on POSIX. Close it before closing stdin: it holds that pipe open.

    Args:
        pid: the child.
        stdin: the descriptor of the pipe to its stdin. The probe keeps a duplicate, because the event loop
            closes its own as soon as the child is gone.
    """

    def __init__(self, pid: int, stdin: int) -> None:
        self._stdin: int | None = os.dup(stdin)
        self._stat, self._syscall = _open_proc(pid, "stat"), _open_proc(pid, "syscall")

    @property
    def kill_pending(self) -> bool:
        """Whether a SIGKILL is pending: the child may still take input, but never acts on it. Linux only."""
        if sys.platform != "linux" or self._stat is None:
            return False
        try:
            # A fatal signal wakes a sleeping process. One that waits in a system call has none pending, and
            # that is quicker to read.
            if self._syscall is not None and not os.pread(self._syscall, 8, 0).startswith(b"running"):
                return False
            stat = os.pread(self._stat, 4096, 0)
        except OSError:
            return False  # the process is gone, which closes the pipe
        pending = stat.rpartition(b")")[2].split()[28]
        return bool(int(pending) & 1 << signal.SIGKILL - 1)

    @property
    def unread(self) -> int:
        """Bytes in the pipe to stdin that no process has read or can read: all its readers are gone."""
        if sys.platform == "win32" or self._stdin is None:
            return 0
        import fcntl
        import select
        import termios

        poll = select.poll()
        poll.register(self._stdin, 0)
        # A process that ends closes its descriptors one by one, in any order: wait a moment for this one.
        if not any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(READER_GONE)):
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(self._stdin, termios.FIONREAD, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._stdin, self._stat, self._syscall):
            if descriptor is not None:
                os.close(descriptor)
        self._stdin = self._stat = self._syscall = None


def _open_proc(pid: int, name: str) -> int | None:
    """Open /proc/PID/NAME; None where there is none or it may not be read."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
