"""A child process and everything it started: spawned without a shell, ended with its whole group."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import anyio

from mooring.config.logs import logger
from mooring.core.redact import Redactor
from mooring.net import trace, watchdog
from mooring.net.firsterrors import FirstErrors

log = logger("mooring.server")

MARKER = "MOORING_CHILD"
"""Set in every child, so that descendants that left its group are found again."""
STDERR_LINES = 20
"""So many last lines of a child's stderr stand in the error when it fails."""
STDERR_LINE = 2_000
OVERLAP = 4_096
"""Bytes kept before the end of a line that has none, so that no secret in it is cut before it is known."""
TERM_WAIT = 1.5
KILL_WAIT = 1.0
PIPE = 65_536
READER_GONE = 5
"""Milliseconds, since it blocks everything."""

_PASSED_ON = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
    if sys.platform != "win32"
    else (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
)
"""What a child gets of our own environment: where things are, never a key or a token."""


def child_environment(inherit: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a child: the few variables above, those named in `inherit`, then `env`."""
    ours = {name: os.environ[name] for name in (*_PASSED_ON, *inherit) if name in os.environ}
    # A value that starts like a function definition was how shells were attacked (CVE-2014-6271).
    return {name: value for name, value in ours.items() if not value.startswith("()")} | dict(env)


class Child(asyncio.SubprocessProtocol):
    """One child process. What it writes to stdout goes to `on_data` from the moment that is set."""

    def __init__(self, server: str, redact: Redactor) -> None:
        self.server = server
        self.redact = redact
        self.marker = ""
        self.pid = 0
        self.returncode: int | None = None
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        """Called when stdout is closed: whatever else the process does, it can answer no more."""
        self.written = 0
        """Bytes that the pipe to stdin took so far."""
        self._early: list[bytes] = []
        self._ended = False
        self._gauge: int | None = None
        self._vitals: int | None = None
        self._pause: int | None = None
        self._stderr = deque[str](maxlen=STDERR_LINES)
        self._stderr_rest = b""
        self.first_errors = FirstErrors()
        """What its stderr said first of an error, however much it says later."""
        self._transport: asyncio.SubprocessTransport | None = None
        self._pipe: asyncio.WriteTransport | None = None

    @classmethod
    async def spawn(
        cls, server: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, redact: Redactor
    ) -> Child:
        """A running child in a process group of its own.

        Raises:
            OSError: it could not be started.
        """
        loop = asyncio.get_running_loop()
        marker = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        child = cls(server, redact)
        # Cancelled half-way, asyncio would leave the pipes of a running child to nobody.
        with anyio.CancelScope(shield=True):
            await loop.subprocess_exec(
                lambda: child,
                *argv,
                env={**env, MARKER: marker},
                cwd=cwd,
                start_new_session=sys.platform != "win32",
            )
        child.marker = marker
        child._pipe = child._stdin()
        child._gauge = _gauge(child._pipe)
        child._vitals, child._pause = _vital(child.pid, "stat"), _vital(child.pid, "syscall")
        child._listen_directly()
        _alive[child.pid] = os.getpid()
        watchdog.guard(child.pid)
        return child

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        rest = self._shown(self._stderr_rest)[-STDERR_LINE:]
        return (*self._stderr, rest) if rest else tuple(self._stderr)

    def _shown(self, line: bytes) -> str:
        return self.redact(line.decode("utf-8", "replace").rstrip("\r"))

    def listen(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Hand over what the child has said so far, and from now on at once."""
        self.on_data, self.on_end = on_data, on_end
        early, self._early = self._early, []
        for data in early:
            on_data(data)
        if self._ended:
            on_end()

    def write(self, data: bytes) -> int:
        """Queue `data` for the child's stdin; how many bytes wait there to be read. A closed pipe swallows
        it (its death is told otherwise)."""
        pipe = self._pipe
        if pipe is None or pipe.is_closing():
            return 0
        pipe.write(data)
        if pipe.is_closing():
            return 0  # the pipe was broken and took nothing
        self.written += len(data)
        return pipe.get_write_buffer_size()

    @property
    def doomed(self) -> bool:
        """Whether a SIGKILL is on its way: the child may still take input, but will never act on it.
        Only Linux tells."""
        if self._vitals is None:
            return False
        try:
            # A fatal signal wakes whoever sleeps: a child that waits for input has none, and that is
            # quicker to see.
            if self._pause is not None and not os.pread(self._pause, 8, 0).startswith(b"running"):
                return False
            stat = os.pread(self._vitals, 4096, 0)
        except OSError:
            return False  # it is gone altogether, as the pipe will tell
        pending = stat.rpartition(b")")[2].split()[28]
        return bool(int(pending) & 1 << signal.SIGKILL - 1)

    @property
    def unread(self) -> int:
        """How many of the written bytes surely nobody has read nor ever will."""
        return 0 if self._gauge is None else _left_unread(self._gauge)

    async def end(self, grace: float) -> None:
        """End the child and its whole group: close stdin, wait, ask, then force. Never raises."""
        self._close_gauges()
        if self._pipe is not None:
            self._pipe.close()
        try:
            if not await self._exits_within(grace):
                self._signal("SIGTERM")
                if not await self._exits_within(TERM_WAIT):
                    self._signal("SIGKILL")
                    await self._exits_within(KILL_WAIT)
            await self._end_group()
        finally:
            # However we got here (a cancelled shutdown, too), nothing of it survives.
            self._signal("SIGKILL")
            for stray in descendants(self.marker):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(stray, signal.SIGKILL)
            _forget(self.pid)
            if self._transport is not None:
                self._transport.close()

    def _close_gauges(self) -> None:
        """While that of stdin is open the child would never see its end."""
        for descriptor in (self._gauge, self._vitals, self._pause):
            if descriptor is not None:
                os.close(descriptor)
        self._gauge = self._vitals = self._pause = None

    async def _end_group(self) -> None:
        """The leader is gone; grandchildren get a moment to go by themselves, then none."""
        for wait in (0.0, 0.02, 0.05, 0.1, 0.2):
            if wait:
                await asyncio.sleep(wait)
            if not self._signal("SIGTERM" if not wait else None):
                return

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, name: str | None) -> bool:
        """Signal the group (None: only look); False when nobody is left in it."""
        if sys.platform == "win32":
            if name is not None and self._transport is not None and self.returncode is None:
                self._transport.kill()
            return self.returncode is None
        return _signal_group(self.pid, name)

    def _listen_directly(self) -> None:
        """Take stdout from its pipe itself: by way of the process, asyncio adds a turn of the loop."""
        assert self._transport is not None
        if (pipe := self._transport.get_pipe_transport(1)) is not None:
            pipe.set_protocol(_Stdout(self, pipe.get_protocol()))
            if hasattr(pipe, "max_size"):
                # A pipe holds no more; for the 256 KiB that asyncio asks for, memory is mapped at every read.
                pipe.max_size = PIPE  # pyright: ignore[reportAttributeAccessIssue]

    def _stdin(self) -> asyncio.WriteTransport | None:
        pipe = self._transport.get_pipe_transport(0) if self._transport else None
        return cast("asyncio.WriteTransport | None", pipe)

    # --- asyncio.SubprocessProtocol -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._take_stderr(data)
        elif self.on_data is not None:
            self.on_data(data)
        else:
            self._early.append(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 2:
            self.silent.set()
        if fd == 1 and not self._ended:
            self._ended = True
            if self.on_end is not None:
                self.on_end()

    def process_exited(self) -> None:
        assert self._transport is not None
        self.returncode = self._transport.get_returncode()
        self.exited.set()

    def _take_stderr(self, data: bytes) -> None:
        *lines, rest = (self._stderr_rest + data).split(b"\n")
        # A line without end is cut, so that a flood costs a bounded amount of memory.
        self._stderr_rest = rest[-STDERR_LINE - OVERLAP :]
        self.first_errors.look(lines, self._shown)
        for line in lines[-STDERR_LINES:]:
            self._stderr.append(self._shown(line)[:STDERR_LINE])
        for line in lines if trace.taps else ():
            trace.passing(self.server, "stderr", self._shown(line)[:STDERR_LINE])
        if log.isEnabledFor(logging.INFO):
            for line in lines:
                log.info("%s: %s", self.server, self._shown(line)[:STDERR_LINE])


class _Stdout(asyncio.Protocol):
    """Hands data on at once; asyncio's own protocol still learns of the end."""

    def __init__(self, child: Child, original: asyncio.BaseProtocol) -> None:
        self._child, self._original = child, original

    def data_received(self, data: bytes) -> None:
        self._child.pipe_data_received(1, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._original.connection_lost(exc)


def _gauge(pipe: asyncio.WriteTransport | None) -> int | None:
    """A descriptor of our own for the pipe to a child's stdin: asyncio closes its one as soon as the
    child is gone, before anybody could ask what was left in it."""
    if sys.platform == "win32" or pipe is None:
        return None
    try:
        return os.dup(pipe.get_extra_info("pipe").fileno())
    except (OSError, ValueError):  # the child is gone already, and asyncio has closed the pipe
        return None


def _vital(pid: int, sign: str) -> int | None:
    """A descriptor that shows how the process is, where the system has such a thing and lets us see it."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/{sign}", os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:  # there it is, but not for us
        os.close(descriptor)
        return None
    return descriptor


def _left_unread(pipe: int) -> int:
    """Bytes in the pipe that nobody has read and, because all readers are gone, nobody ever will."""
    if sys.platform == "win32":
        return 0
    import fcntl
    import select
    import termios

    poll = select.poll()
    poll.register(pipe, 0)
    # A process that ends closes its descriptors one by one, in any order: wait a moment for this one.
    if not any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(READER_GONE)):
        return 0  # somebody can still read it
    try:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def descendants(marker: str) -> list[int]:
    """Processes that carry `marker` in their environment: descendants of a child that left its group.
    Linux only; elsewhere such processes are beyond our reach."""
    wanted = f"{MARKER}={marker}".encode()
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ") if sys.platform == "linux" else ():
        with suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return [pid for pid in found if pid != os.getpid()]


_numbers = itertools.count(1)
_alive: dict[int, int] = {}
"""Groups that we started and have not ended, each with the process that started it: after a fork the
child must not end its parent's servers."""


def _forget(pid: int) -> None:
    _alive.pop(pid, None)
    watchdog.release(pid)
    if not _alive:
        watchdog.dismiss()


def _signal_group(pid: int, name: str | None) -> bool:
    try:
        os.killpg(pid, getattr(signal, name) if name else 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@atexit.register
def _end_all() -> None:  # pyright: ignore[reportUnusedFunction]
    """The interpreter ends with servers still running: nobody is left to ask them politely."""
    for pid, owner in list(_alive.items()):
        if owner == os.getpid() and sys.platform != "win32":
            _signal_group(pid, "SIGKILL")
