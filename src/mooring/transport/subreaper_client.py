"""Servers that run under a supervisor process, which ends them with all their descendants (Linux).

`subreaper` is the program of the supervisors. The server has its pipes to this process; the supervisor only
starts it, reports its exit, and kills every descendant on request or when this process dies.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import BinaryIO

__all__ = ["Supervised", "dismiss", "end_all", "prepare", "start"]

START_WAIT = 10.0
"""Seconds to wait for a supervisor to start a program; then this process starts it itself."""
END_WAIT = 2.0
"""Seconds to wait until no descendant of a server is left."""
PROGRAM = Path(__file__).with_name("subreaper.py")

_lock = threading.Lock()
_requests: socket.socket | None = None
_identity: object = None
_unusable = False
_processes: list[subprocess.Popen[bytes]] = []
"""Processes that fork supervisors: the one in use, and those that are ending."""
_running: dict[Supervised, int] = {}
"""Servers not ended yet, each with the process that started it: a fork must not end its parent's servers."""


class Supervised:
    """A program that a supervisor started: what `Child` needs of a `Popen`, and `end`."""

    def __init__(self, control: socket.socket, pipes: Sequence[int]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.clean = False
        """Whether the supervisor reported that no descendant is left."""
        self.stdin: BinaryIO = os.fdopen(pipes[0], "wb", 0)
        self.stdout: BinaryIO = os.fdopen(pipes[1], "rb", 0)
        self.stderr: BinaryIO = os.fdopen(pipes[2], "rb", 0)
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[str] = self._loop.create_future()
        self._closed = asyncio.Event()
        self._exited: Callable[[int | None], None] | None = None
        self._rest = b""
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._read)
        _running[self] = os.getpid()

    async def begin(self, request: bytes) -> str:
        """Send the request; return the response, empty if the supervisor has ended or does not respond."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(START_WAIT):
                await self._loop.sock_sendall(self._control, request)
                return await self._answer
        return ""

    def watch(self, exited: Callable[[int | None], None]) -> None:
        """Call `exited` when the program ends, or at once if it has ended."""
        if self.returncode is not None:
            exited(self.returncode)
        self._exited = exited

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        """Request the end of every descendant, without waiting for it."""
        with suppress(OSError):
            self._control.send(b"k")

    async def end(self) -> None:
        """Request the end of every descendant, and wait until none is left, for at most `END_WAIT`
        seconds."""
        self.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WAIT):
                await self._closed.wait()

    def close(self) -> None:
        """Disconnect from the supervisor, which then kills every descendant that is left."""
        self.kill()
        self._close()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with suppress(OSError):
                pipe.close()

    def release(self) -> None:
        """Disconnect from the supervisor. The pipes are closed by their own owners."""
        self.kill()
        self._close()

    def wait_closed(self, seconds: float) -> None:
        """Block until the supervisor has ended."""
        if sys.platform != "linux":
            return
        until = monotonic() + seconds
        poll = select.poll()
        with suppress(OSError, ValueError):
            poll.register(self._control, select.POLLIN)
            while (left := until - monotonic()) > 0 and poll.poll(1000 * left):
                if not self._control.recv(4096):
                    return

    def _read(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode())
        if not data:
            if self.pid and self.returncode is None:
                self._end(-9)  # the supervisor was killed, and with it the program
            self._close()

    def _take(self, line: str) -> None:
        if line.startswith("exit "):
            self._end(int(line[5:]))
        elif line == "ended":
            self.clean = True
        elif not self._answer.done():
            self._answer.set_result(line)

    def _end(self, code: int) -> None:
        self.returncode = code
        if self._exited is not None:
            self._exited(code)

    def _close(self) -> None:
        if self._control.fileno() >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._control.fileno())
            self._control.close()
        if not self._answer.done():
            self._answer.set_result("")
        self._closed.set()
        _running.pop(self, None)


def prepare() -> None:
    """Start the process that forks supervisors, so that the first server need not wait for it."""
    with _lock:
        _channel()


async def dismiss() -> None:
    """End the process that forks supervisors, unless servers still run."""
    with _lock:
        if os.getpid() in _running.values() or _requests is None:
            return
        _forget()
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while any(process.poll() is None for process in _processes):  # noqa: ASYNC110
                await asyncio.sleep(0.002)


async def start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Supervised | None:
    """Start a program in a session of its own under a supervisor; None if supervisors are not supported.

    Raises:
        OSError: the program could not be started.
        ValueError: its arguments or its environment cannot be passed to a program.
    """
    global _unusable
    if sys.platform != "linux" or not _supported():
        return None
    request = _request(argv, env, cwd)
    for _ in range(2):  # the first process may have been killed
        if (program := _ask()) is None:
            return None
        try:
            answer = await program.begin(b"%08d" % len(request) + request)
        except BaseException:
            program.close()
            raise
        if answer:
            break
        program.close()
        _discard()
    else:
        _unusable = True
        return None
    pid, _, failure = answer.partition(" ")
    program.pid = int(pid)
    if failure:
        program.close()
        number, place = failure.split()
        raise OSError(int(number), os.strerror(int(number)), cwd if place == "cwd" and cwd else argv[0])
    return program


def end_all() -> None:
    """Kill the descendants of all servers that still run and wait for their end, when the interpreter
    exits."""
    ours = [program for program, owner in list(_running.items()) if owner == os.getpid()]
    for program in ours:
        program.kill()
    until = monotonic() + END_WAIT
    for program in ours:
        program.wait_closed(until - monotonic())


def _supported() -> bool:
    # A frozen program or an embedded interpreter cannot run a script.
    name = Path(sys.executable or "").name.lower()
    return (
        not _unusable
        and name.startswith(("python", "pypy"))
        and not getattr(sys, "frozen", False)
        and PROGRAM.is_file()
    )


def _ask() -> Supervised | None:
    """Send the descriptors of one server to the process that forks supervisors."""
    if sys.platform != "linux":
        return None
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
        opened.append(os.open(".", os.O_PATH | os.O_DIRECTORY))
        control, theirs = socket.socketpair()
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        return None
    stdin, to_stdin, from_stdout, stdout, from_stderr, stderr, cwd = opened
    sent = False
    with theirs, _lock:
        for _ in range(2):
            if sent or (channel := _channel()) is None:
                break
            try:
                socket.send_fds(channel, [b"+"], [theirs.fileno(), stdin, stdout, stderr, cwd])
                sent = True
            except OSError:
                _forget()
    for descriptor in (stdin, stdout, stderr, cwd):
        os.close(descriptor)
    if sent:
        return Supervised(control, (to_stdin, from_stdout, from_stderr))
    control.close()
    for descriptor in (to_stdin, from_stdout, from_stderr):
        os.close(descriptor)
    return None


def _channel() -> socket.socket | None:
    """Return the socket to the process that forks supervisors, which is started if needed. Needs the lock."""
    global _requests, _identity
    if sys.platform != "linux" or not _supported():
        return None
    identity = (os.getpid(), os.getresuid(), os.getresgid())
    if _requests is not None and _identity == identity:
        return _requests
    _forget()
    _processes[:] = [process for process in _processes if process.poll() is None]
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return None
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
            )
        except OSError:
            ours.close()
            return None
    ours.setblocking(False)
    _requests, _identity = ours, identity
    _processes.append(process)
    return ours


def _discard() -> None:
    with _lock:
        _forget()


def _forget() -> None:
    global _requests
    if _requests is not None:
        _requests.close()
    _requests = None


def _request(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bytes:
    words = [os.fsencode(word) for word in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    place = None if cwd is None else os.fsencode(cwd)
    if any(b"\0" in word for word in (*words, *variables, *variables.values(), place or b"")):
        raise ValueError("embedded null byte")
    if any(b"=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    candidates = (
        [words[0]]
        if os.path.dirname(words[0])
        else [os.path.join(os.fsencode(folder), words[0]) for folder in os.get_exec_path(env)]
    )
    return marshal.dumps((candidates, words, variables, place))
