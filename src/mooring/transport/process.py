"""A child process: started without a shell, and ended with all its descendants."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import re
import secrets
import subprocess
import sys
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
    ProcessProbe,
    descendants,
    host_mark,
    inherited_mark,
    kill_all,
    kill_marked,
    new_mark,
    put_mark,
    watch_exit,
)

if TYPE_CHECKING:
    from mooring.transport import windows_process

WINDOWS = sys.platform == "win32"
"""Whether children run in Job Objects. Tests set it to run that side elsewhere."""


MAX_ERRORS = 5
MAX_SCANNED = 1_000
"""Lines that are searched for errors. Later output does not explain why a server did not start."""
_MAX_LENGTH = 500
_ERROR = re.compile(
    rb"(?i)error|exception|fatal|panic|fail|usage:|required|missing|must be|not (?:set|found|defined|allowed)"
    rb"|denied|cannot|can't|unable|invalid|unknown (?:option|argument)|unrecognized|certificate|unexpected"
)


class FirstErrors:
    """The first lines of stderr that look like errors, at most `MAX_ERRORS`."""

    __slots__ = ("_scanned", "lines")

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        """Number and text of each line."""
        self._scanned = 0

    def scan(self, lines: Iterable[bytes], to_text: Callable[[bytes], str]) -> None:
        """Scan more lines; `to_text` decodes a line and removes secrets."""
        for line in lines:
            self._scanned += 1
            if (
                self._scanned <= MAX_SCANNED
                and len(self.lines) < MAX_ERRORS
                and _ERROR.search(line[:_MAX_LENGTH])
            ):
                self.lines.append((self._scanned, to_text(line)[:_MAX_LENGTH]))

    def before(self, last: int) -> list[str]:
        """Return the errors that are not among the `last` lines."""
        return [text for number, text in self.lines if number <= self._scanned - last]


log = logger("mooring.server")


STDERR_LINES = 20
"""Last lines of a child's stderr that are part of the error when it fails."""
STDERR_LINE = 2_000
STDERR_LOGGED = 1_000
"""Lines logged per read from stderr; the rest is counted."""
STDERR_PAUSE, STDERR_SHARE = 0.001, 4
"""Delay before a full stderr pipe is read again: in seconds, and as a multiple of the time to handle it."""
OVERLAP = 4_096
"""Bytes kept beyond `STDERR_LINE`, so that a secret is not cut before it is redacted."""
TERM_WAIT = 1.5
KILL_WAIT = 1.0
DRAIN_WAIT = 0.3
"""Seconds without output after which the stdout of an exited child is given up."""
PIPE = 65_536

_INHERITED = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
    if sys.platform != "win32"
    else (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
)
"""Variables that every child inherits: paths and locale, never a key or a token."""


def child_environment(inherit: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a child: the variables above, those named in `inherit`, then `env`."""
    inherited = {name: os.environ[name] for name in (*_INHERITED, *inherit) if name in os.environ}
    # Old shells execute values that start like a function definition (CVE-2014-6271).
    return {name: value for name, value in inherited.items() if not value.startswith("()")} | dict(env)


class Child:
    """One child process. Its stdout is buffered until `listen` is called."""

    def __init__(self, server: str, redact: Redactor) -> None:
        self.server = server
        self.redact = redact
        self.marker = ""
        self.mark = ""
        """See `process_tree`: a mark that all its descendants inherit."""
        self.pid = 0
        self.returncode: int | None = None
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        """Called when stdout is closed: the server cannot respond any more."""
        self.written = 0
        """Bytes written to the pipe to stdin."""
        self._early: list[bytes] = []
        self._ended = False
        self._received = 0
        self._draining: asyncio.TimerHandle | None = None
        self._probe: ProcessProbe | None = None
        self._stderr = deque[str](maxlen=STDERR_LINES)
        self._stderr_rest = b""
        self.first_errors = FirstErrors()
        """The first errors on stderr."""
        self._pipes: dict[int, asyncio.ReadTransport] = {}
        self._stdin: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._windows_process: asyncio.SubprocessTransport | None = None
        self._job: windows_process.JobObject | None = None
        self._supervised: subreaper_client.Supervised | None = None
        self._stop_watching: Callable[[], None] = lambda: None

    @classmethod
    async def spawn(
        cls, server: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, redact: Redactor
    ) -> Child:
        """Start a child in a process group of its own.

        Raises:
            OSError: the child could not be started.
        """
        child = cls(server, redact)
        child.marker = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        # Shielded: a cancelled start would leave a running child without an owner for its pipes.
        with anyio.CancelScope(shield=True):
            await child._start(argv, {**env, MARKER: child.marker}, cwd)
        return child

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        rest = self._to_text(self._stderr_rest)[-STDERR_LINE:]
        return (*self._stderr, rest) if rest else tuple(self._stderr)

    def _to_text(self, line: bytes) -> str:
        return self.redact(line.decode("utf-8", "replace").rstrip("\r"))

    def listen(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Deliver the buffered stdout to `on_data`, and from now on everything as it arrives."""
        self.on_data, self.on_end = on_data, on_end
        early, self._early = self._early, []
        for data in early:
            on_data(data)
        if self._ended:
            on_end()

    def write(self, data: bytes) -> int:
        """Queue `data` for the child's stdin and return how many bytes are buffered.

        A closed pipe drops the data, and so does one that only descendants of an exited child hold open;
        `on_end` reports the end of the child.
        """
        pipe = self._stdin
        if pipe is None or pipe.is_closing() or self.exited.is_set():
            return 0
        pipe.write(data)
        if pipe.is_closing():
            return 0  # the pipe was broken and accepted no data
        self.written += len(data)
        return pipe.get_write_buffer_size()

    @property
    def kill_pending(self) -> bool:
        """See `ProcessProbe`."""
        return self._probe is not None and self._probe.kill_pending

    @property
    def unread(self) -> int:
        """See `ProcessProbe`."""
        return 0 if self._probe is None else self._probe.unread

    async def end(self, grace: float) -> None:
        """End the child and its descendants: close stdin, wait `grace` seconds, SIGTERM, then SIGKILL."""
        self._close_probe()
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
            # Also after a cancelled shutdown, no descendant survives.
            self._signal("SIGKILL")
            if self._supervised is not None:
                self._supervised.release()
            if self._supervised is None or not self._supervised.clean:
                kill_marked(self.mark)
                kill_all(descendants(self.marker))
            _forget(self.pid)
            self._close()

    def _close(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        for pipe in self._pipes.values():
            pipe.close()
        if self._stdin is not None and self._stdin.get_write_buffer_size():
            self._stdin.abort()
        if self._windows_process is not None:
            self._windows_process.close()  # kills the process if it still runs
        if self._job is not None:
            self._job.close()
        self._stop_watching()

    def _close_probe(self) -> None:
        if self._probe is not None:
            self._probe.close()
        self._probe = None

    async def _end_group(self) -> None:
        """End descendants that are left after the child exited: SIGTERM, a short wait, then SIGKILL."""
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
        """Signal the process group (None: only check it); False when it is empty."""
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
            # Not through the loop: that would delay the mark, and loops handle pipes differently.
            with inherited_mark(mark):
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
        # The mark is used where there is no supervisor process, or it was killed.
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
        """End a child whose pipes could not be connected."""
        _signal_group(self.pid, "SIGKILL")
        if isinstance(process, subreaper_client.Supervised):
            process.kill()
        self._close_probe()
        self._close()
        for number, pipe in enumerate((process.stdin, process.stdout, process.stderr)):
            if pipe is not None and number not in self._pipes and (number or self._stdin is None):
                pipe.close()
        kill_marked(self.mark)  # only now: it needs a free descriptor
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
        self._probe = ProcessProbe(self.pid, process.stdin.fileno())
        if isinstance(process, subreaper_client.Supervised):
            process.watch(self.process_exited)
        else:
            self._stop_watching = watch_exit(loop, process, self.process_exited)
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        for number, pipe in ((1, process.stdout), (2, process.stderr)):
            self._pipes[number], _ = await loop.connect_read_pipe(partial(_Output, self, number), pipe)

    # --- output -------------------------------------------------------------------------------

    def data_received(self, number: int, data: bytes) -> None:
        if number == 2:
            self._take_stderr(data)
            return
        self._received += 1
        if self.on_data is not None:
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
        self._end_output(after=-1)

    def _end_output(self, after: int) -> None:
        """End stdout once nothing more arrives. A descendant of the exited child may hold the pipe open."""
        if self._received == after:
            self.output_ended(1)
        elif not self._ended:
            loop = asyncio.get_running_loop()
            self._draining = loop.call_later(DRAIN_WAIT, self._end_output, self._received)

    def pause(self, number: int = 1) -> None:
        """Stop reading an output (1: stdout, 2: stderr) until `resume`."""
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
        self.first_errors.scan(lines, self._to_text)
        for line in lines[-STDERR_LINES:]:
            self._stderr.append(self._to_text(line[: STDERR_LINE + OVERLAP])[:STDERR_LINE])
        for line in lines[:STDERR_LOGGED] if base.taps else ():
            base.passing(self.server, "stderr", self._to_text(line)[:STDERR_LINE])
        for line in lines[:STDERR_LOGGED] if logged else ():
            log.info("%s: %s", self.server, self._to_text(line)[:STDERR_LINE], extra={"server": self.server})
        if logged and len(lines) > STDERR_LOGGED:
            log.info("stderr lines not logged: server=%s count=%d", self.server, len(lines) - STDERR_LOGGED)
        if len(data) > PIPE // 2:
            # The child writes faster than this process reads: slow down this child, not the other servers.
            self.pause(2)
            pause = max(STDERR_PAUSE, STDERR_SHARE * (perf_counter() - began))
            asyncio.get_running_loop().call_later(pause, self.resume, 2)


class _Output(asyncio.Protocol):
    """Stdout or stderr of a child."""

    def __init__(self, child: Child, number: int) -> None:
        self._child, self._number = child, number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if hasattr(transport, "max_size"):
            # The capacity of a pipe. For asyncio's 256 KiB, memory would be mapped at every read.
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


_numbers = itertools.count(1)
_alive: dict[int, int] = {}
"""Process groups that were started and not ended, each with the process that started it: a fork must not end
its parent's servers."""


def _forget(pid: int) -> None:
    if _alive.pop(pid, None) is None:
        return
    process_tree.release(pid)
    if not _alive:
        process_tree.dismiss()


def _signal_group(pid: int, name: str | None) -> bool:
    if sys.platform == "win32":
        return False
    import signal

    try:
        os.killpg(pid, getattr(signal, name) if name else 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@atexit.register
def end_processes() -> None:
    """Kill the servers that still run. Called when the interpreter ends."""
    subreaper_client.end_all()
    for pid, owner in list(_alive.items()):
        if owner == os.getpid():
            _signal_group(pid, "SIGKILL")
    if os.getpid() in _alive.values():
        for _ in range(ROUNDS):
            if not kill_marked(host_mark()):
                break
