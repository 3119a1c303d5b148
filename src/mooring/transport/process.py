"""A child process: spawned without a shell, watched, and ended with everything that it started."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

import anyio

from mooring.config.logs import logger
from mooring.core.redact import Redactor
from mooring.transport import base, process_tree, subreaper_client
from mooring.transport.process_tree import (
    MARKER,
    ROUNDS,
    descendants,
    host_mark,
    kill_all,
    kill_marked,
    new_mark,
    put_mark,
)

if TYPE_CHECKING:
    from mooring.transport import windows_process

WINDOWS = sys.platform == "win32"
"""Whether children run in Job Objects. Tests set it to run that side elsewhere."""


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


MOST_KEPT = 5
MOST_READ = 1_000
"""Lines that are looked at: what a server prints after its start is not why it did not start."""
_LONGEST = 500
_ERROR = re.compile(
    rb"(?i)error|exception|fatal|panic|fail|usage:|required|missing|must be|not (?:set|found|defined|allowed)"
    rb"|denied|cannot|can't|unable|invalid|unknown (?:option|argument)|unrecognized|certificate|unexpected"
)


class FirstErrors:
    """Collects a few lines, each with its number, and never more."""

    __slots__ = ("_read", "kept")

    def __init__(self) -> None:
        self.kept: list[tuple[int, str]] = []
        """Number and text of each line."""
        self._read = 0

    def look(self, lines: Iterable[bytes], shown: Callable[[bytes], str]) -> None:
        """Take note of more lines; `shown` gives a line as text without secrets."""
        for line in lines:
            self._read += 1
            if self._read <= MOST_READ and len(self.kept) < MOST_KEPT and _ERROR.search(line[:_LONGEST]):
                self.kept.append((self._read, shown(line)[:_LONGEST]))

    def before(self, last: int) -> list[str]:
        """The kept lines that do not stand among the `last` ones."""
        return [text for number, text in self.kept if number <= self._read - last]


log = logger("mooring.server")


STDERR_LINES = 20
"""So many last lines of a child's stderr stand in the error when it fails."""
STDERR_LINE = 2_000
STDERR_LOGGED = 1_000
"""Lines of one piece of stderr that are logged; the rest is counted."""
STDERR_PAUSE, STDERR_SHARE = 0.001, 4
"""A full pipe of stderr is read again after so many seconds, or so many times what handling it took."""
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


class Child:
    """One child process. What it writes to stdout goes to `on_data` from the moment that is set."""

    def __init__(self, server: str, redact: Redactor) -> None:
        self.server = server
        self.redact = redact
        self.marker = ""
        self.mark = ""
        """See `lineage`: what its descendants cannot lose."""
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
        self._pipes: dict[int, asyncio.ReadTransport] = {}
        self._stdin: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._windows_process: asyncio.SubprocessTransport | None = None
        self._job: windows_process.JobObject | None = None
        self._supervised: subreaper_client.Supervised | None = None
        self._stop_watching: Callable[[], None] = nothing

    @classmethod
    async def spawn(
        cls, server: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, redact: Redactor
    ) -> Child:
        """A running child in a process group of its own.

        Raises:
            OSError: it could not be started.
        """
        child = cls(server, redact)
        child.marker = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        # Cancelled half-way, the pipes of a running child would have no owner.
        with anyio.CancelScope(shield=True):
            await child._start(argv, {**env, MARKER: child.marker}, cwd)
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
        pipe = self._stdin
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
        if sys.platform != "linux" or self._vitals is None:
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
        if self._stdin is not None:
            self._stdin.close()
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
            if self._supervised is not None:
                self._supervised.release()
            if self._supervised is None or not self._supervised.clean:
                kill_marked(self.mark)
                kill_all(descendants(self.marker))
            _forget(self.pid)
            self._close()

    def _close(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()
        if self._windows_process is not None:
            self._windows_process.close()  # kills the process if it still runs
        if self._job is not None:
            self._job.close()
        self._stop_watching()

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
                break
        if self._supervised is not None:
            await self._supervised.end()
            if self._supervised.clean:
                return
        for _ in range(ROUNDS):
            if not kill_marked(self.mark):
                return
            await asyncio.sleep(0.01)

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, name: str | None) -> bool:
        """Signal the group (None: only look); False when nobody is left in it."""
        if self._job is not None:
            if name is not None:
                self._job.terminate()
                if self._windows_process is not None and self.returncode is None:
                    with suppress(ProcessLookupError):
                        self._windows_process.kill()
            return self.returncode is None or self._job.active
        return _signal_group(self.pid, name)

    # --- starting -----------------------------------------------------------------------------

    async def _start(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        if WINDOWS:
            await self._start_on_windows(argv, env, cwd)
            return
        mark = new_mark()
        self._supervised = process = await subreaper_client.start(argv, env, cwd)
        if process is None:
            # Not through the loop: it would leave no moment to mark the child before the child runs far, and
            # each loop keeps its pipes in a way of its own.
            self._process = process = subprocess.Popen(  # noqa: ASYNC220 (asyncio does the same)
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
            )
            _alive[process.pid] = os.getpid()
            process_tree.guard(process.pid)
        # The mark counts where there is no supervisor, or someone killed it.
        self.pid, self.mark = process.pid, mark if put_mark(process.pid, mark) else ""
        try:
            await self._connect(process)
        except BaseException:
            await self._give_up(process)
            raise

    async def _start_on_windows(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Start the child in a job. There, pipes that the loop can read are only made with the process."""
        from mooring.transport import windows_process

        argv = windows_process.find_program(argv, env)
        self._job = windows_process.JobObject(self.server)
        try:
            process, _ = await asyncio.get_running_loop().subprocess_exec(
                partial(_WindowsOutput, self),
                *argv,
                env=env,
                cwd=cwd,
                creationflags=windows_process.CREATION_FLAGS,
            )
            self._windows_process, self.pid = process, process.get_pid()
            self._stdin = cast(asyncio.WriteTransport, process.get_pipe_transport(0))
            for number in (1, 2):
                self._pipes[number] = cast(asyncio.ReadTransport, process.get_pipe_transport(number))
            self._job.run(self.pid)
        except BaseException:
            self._close()
            raise

    async def _give_up(self, process: subprocess.Popen[bytes] | subreaper_client.Supervised) -> None:
        """End a child whose pipes could not be had."""
        _signal_group(self.pid, "SIGKILL")
        if isinstance(process, subreaper_client.Supervised):
            process.kill()
        self._close_gauges()
        self._close()
        for number, pipe in enumerate((process.stdin, process.stdout, process.stderr)):
            if pipe is not None and number not in self._pipes and (number or self._stdin is None):
                pipe.close()
        kill_marked(self.mark)  # it needs a descriptor
        for _ in range(ROUNDS):
            if process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        if isinstance(process, subreaper_client.Supervised):
            process.release()
        _forget(self.pid)

    async def _connect(self, process: subprocess.Popen[bytes] | subreaper_client.Supervised) -> None:
        loop = asyncio.get_running_loop()
        assert process.stdin is not None
        # A descriptor of our own: the loop closes its one as soon as the child is gone, before anybody could
        # ask what was left in the pipe.
        self._gauge = os.dup(process.stdin.fileno())
        self._vitals, self._pause = _vital(self.pid, "stat"), _vital(self.pid, "syscall")
        if isinstance(process, subreaper_client.Supervised):
            process.watch(self.process_exited)
        else:
            self._stop_watching = watch(loop, process, self.process_exited)
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        for number, pipe in ((1, process.stdout), (2, process.stderr)):
            self._pipes[number], _ = await loop.connect_read_pipe(partial(_Output, self, number), pipe)

    # --- what the pipes tell ------------------------------------------------------------------

    def data_received(self, number: int, data: bytes) -> None:
        if number == 2:
            self._take_stderr(data)
        elif self.on_data is not None:
            self.on_data(data)
        else:
            self._early.append(data)

    def output_ended(self, number: int) -> None:
        if number == 2:
            self.silent.set()
        if number == 1 and not self._ended:
            self._ended = True
            if self.on_end is not None:
                self.on_end()

    def process_exited(self, code: int | None) -> None:
        self.returncode = code
        self.exited.set()

    def pause(self, number: int = 1) -> None:
        """Read no more from an output (1: stdout, 2: stderr) until `resume`."""
        if (pipe := self._pipes.get(number)) is not None and not pipe.is_closing():
            pipe.pause_reading()

    def resume(self, number: int = 1) -> None:
        if (pipe := self._pipes.get(number)) is not None and not pipe.is_closing():
            pipe.resume_reading()

    def _take_stderr(self, data: bytes) -> None:
        began = perf_counter()
        logged = log.isEnabledFor(logging.INFO)
        *lines, rest = (self._stderr_rest + data).split(b"\n")
        # A line without end is cut, so that a flood costs a bounded amount of memory.
        self._stderr_rest = rest[-STDERR_LINE - OVERLAP :]
        self.first_errors.look(lines, self._shown)
        for line in lines[-STDERR_LINES:]:
            self._stderr.append(self._shown(line[: STDERR_LINE + OVERLAP])[:STDERR_LINE])
        for line in lines[:STDERR_LOGGED] if base.taps else ():
            base.passing(self.server, "stderr", self._shown(line)[:STDERR_LINE])
        for line in lines[:STDERR_LOGGED] if logged else ():
            log.info("%s: %s", self.server, self._shown(line)[:STDERR_LINE])
        if logged and len(lines) > STDERR_LOGGED:
            log.info("%s: %d more lines on stderr", self.server, len(lines) - STDERR_LOGGED)
        if len(data) > PIPE // 2:
            # It writes faster than anybody reads: it waits for us, not the other servers for it.
            self.pause(2)
            pause = max(STDERR_PAUSE, STDERR_SHARE * (perf_counter() - began))
            asyncio.get_running_loop().call_later(pause, self.resume, 2)


class _Output(asyncio.Protocol):
    """Stdout or stderr of a child."""

    def __init__(self, child: Child, number: int) -> None:
        self._child, self._number = child, number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if hasattr(transport, "max_size"):
            # A pipe holds no more; for the 256 KiB that asyncio asks for, memory is mapped at every read.
            transport.max_size = PIPE  # pyright: ignore[reportAttributeAccessIssue]

    def data_received(self, data: bytes) -> None:
        self._child.data_received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.output_ended(self._number)


class _WindowsOutput(asyncio.SubprocessProtocol):
    """Stdout, stderr and the exit of a child on Windows."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._child.data_received(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._child.output_ended(fd)

    def process_exited(self) -> None:
        self._child.process_exited(self._transport.get_returncode() if self._transport else None)


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


_numbers = itertools.count(1)
_alive: dict[int, int] = {}
"""Groups that we started and have not ended, each with the process that started it: after a fork the
child must not end its parent's servers."""


def _forget(pid: int) -> None:
    if _alive.pop(pid, None) is None:
        return
    process_tree.release(pid)
    if not _alive:
        process_tree.dismiss()


def _signal_group(pid: int, name: str | None) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(pid, getattr(signal, name) if name else 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@atexit.register
def _end_all() -> None:  # pyright: ignore[reportUnusedFunction]
    """The interpreter ends with servers still running: nobody is left to ask them politely."""
    subreaper_client.end_all()
    for pid, owner in list(_alive.items()):
        if owner == os.getpid():
            _signal_group(pid, "SIGKILL")
    if os.getpid() in _alive.values():
        for _ in range(ROUNDS):
            if not kill_marked(host_mark()):
                break
