"""Audit log of a host: every call, read and prompt, written off the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Protocol, TypeVar

from anyio import to_thread

from mooring.auth.subject import SUBJECT, Subject
from mooring.config.audit import (
    LONGEST_LINE,
    AuditOutcome,
    AuditSettings,
    Fields,
    digest,
    fingerprint,
    line,
    members,
    outcome_of,
    sketch,
    stamp,
)
from mooring.config.logs import logger
from mooring.core.callers import SCRIPT
from mooring.core.catalog import Catalog
from mooring.core.types import EMPTY, Result

PATIENCE = 5.0
"""Longest wait in seconds for the lock of another process."""
_KEY_LENGTH = 64
# Do not follow links or block on pipes. Windows has neither flag.
_SAFE = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE


class AuditLog:
    """The file `path`, its rotated files (`path.1` is the newest), a lock file and a key file."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path, self._max, self._keep = path, max_bytes, keep

    def append(self, lines: list[bytes]) -> None:
        """Write the lines, each completely or not at all, and remove written lines from the list.

        Raises:
            OSError: The log cannot be written now.
        """
        with self._alone():
            while lines:
                descriptor = self._opened(self.path)
                try:
                    used = os.fstat(descriptor).st_size
                    count = self._fitting(lines, used)
                    if count:
                        _write(descriptor, b"".join(lines[:count]), used)
                        del lines[:count]
                finally:
                    os.close(descriptor)
                if lines:
                    self._put_aside()

    def key(self) -> bytes:
        """Return the HMAC key of this log from its key file, which is created if it does not exist.

        Raises:
            OSError: It can neither be read nor created.
        """
        with self._alone():
            descriptor = self._opened(self._beside("key"))
            try:
                known = _read_at(descriptor, _KEY_LENGTH, 0)
                if len(known) < _KEY_LENGTH:
                    os.ftruncate(descriptor, 0)
                    known = token_hex(_KEY_LENGTH // 2).encode()
                    _write(descriptor, known, 0)
                return known
            finally:
                os.close(descriptor)

    def problem(self) -> str | None:
        """Return why the log cannot be written, as far as that can be checked without writing."""
        try:
            try:
                os.close(self._opened(self.path, os.O_RDWR | os.O_APPEND | _SAFE))
            except FileNotFoundError:
                folder = next(one for one in self.path.absolute().parents if one.exists())
                if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                    return f"no file can be created in {folder}"
        except OSError as fault:
            return fault.strerror or str(fault)
        return None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock for writing and rotating. `filelock` would make thirty more calls of the operating
        system for each batch, and after each one this thread waits for the interpreter."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, until = self._opened(self._beside("lock")), time.monotonic() + PATIENCE
        try:
            while not _locked(descriptor):
                if time.monotonic() > until:
                    raise OSError(errno.ETIMEDOUT, "another process holds its lock")
                time.sleep(0.02)
            yield
        finally:
            os.close(descriptor)

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")

    def _opened(self, path: Path, flags: int = _APPEND) -> int:
        """Open a private regular file.

        Raises:
            OSError: It is not a regular file, or belongs to another user.
        """
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, f"{path} is a symbolic link, which is not followed") from None
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, f"{path} is not a regular file")
            if os.name == "posix":
                if found.st_uid != os.geteuid():
                    raise OSError(errno.EPERM, f"{path} belongs to another user")
                if found.st_mode & 0o077 and flags & os.O_CREAT:
                    os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _fitting(self, lines: list[bytes], used: int) -> int:
        """Return how many lines fit into the file; into an empty one at least one."""
        count = 0
        for text in lines:
            used += len(text)
            if used > self._max and (count or used > len(text)):
                break
            count += 1
        return count

    def _put_aside(self) -> None:
        with suppress(FileNotFoundError):
            for number in range(self._keep, self._keep + 1_000):  # `keep` was larger before
                os.unlink(self._beside(str(number)))
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._beside(str(number)), self._beside(str(number + 1)))
        os.replace(self.path, self._beside("1"))


def _locked(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read at an offset. Windows has no `pread`; writes append wherever the offset is."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def _write(descriptor: int, data: bytes, used: int) -> None:
    """Append everything or nothing."""
    if used and _read_at(descriptor, 1, used - 1) != b"\n":
        data = b"\n" + data  # a writer was killed in the middle of a line
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, used)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


log = logger("mooring.audit")

T = TypeVar("T")
Verb = Literal["call", "read", "prompt"]

GATHERED = 0.05
"""Seconds for which lines are collected before they are written."""
AGAIN = 10.0
"""Seconds between two attempts to write a failing log."""
MOST_WAITING = 5_000
"""Lines queued while the log cannot be written; further ones are lost and counted."""
CLOSE_TIMEOUT = 1.0
"""Longest wait in seconds for running calls when the host is closed."""
_BATCH = 256
_Entry = tuple[float, Fields, float, bytes | None, object]
"""A queued line: time, fields, seconds, and the fingerprint or the shown form of the arguments."""


class Conversation(Protocol):
    """The caller: a session."""

    @property
    def id(self) -> str: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def catalog(self) -> Catalog: ...


class Caller:
    """The client of a gateway request."""

    __slots__ = ("headers", "outcome", "principal", "profile", "session")

    def __init__(
        self,
        principal: str,
        *,
        profile: str | None,
        session: str | None,
        headers: Mapping[str, str] = EMPTY,
    ) -> None:
        self.principal, self.profile, self.session = principal, profile, session
        self.headers = headers
        """HTTP headers of the request."""
        self.outcome: str | None = None
        """The outcome of the request in the audit log; None before it is recorded."""


class Note:
    """Facts of a call that are recorded with it."""

    __slots__ = ("approval", "script", "sent")

    def __init__(self) -> None:
        self.approval: Literal["given", "denied"] | None = None
        self.sent: Mapping[str, Any] | None = None
        """The arguments as the server gets them, if they differ from those of the caller."""
        self.script: str | None = SCRIPT.get()
        """Id of the script that makes the call, or that the call runs."""


CALLER: ContextVar[Caller | None] = ContextVar("mooring_audit_caller", default=None)
NOTE: ContextVar[Note | None] = ContextVar("mooring_audit_note", default=None)


class Audit:
    """Records calls, reads and prompts. If the log cannot be written, calls continue: the failure is logged
    once, a limited number of lines is queued, and writing is retried."""

    def __init__(self, settings: AuditSettings, redact: Callable[[str], str]) -> None:
        self.settings = settings
        self._redact = redact
        self._waiting: deque[_Entry] = deque()
        self._file: AuditLog | None = None
        self._key = b""
        self._lost = 0
        self.lost = 0
        """Lines lost in total."""
        self._failing = False
        self._writing: asyncio.Task[None] | None = None
        self._under_way = 0
        self._idle, self._end_pause = asyncio.Event(), asyncio.Event()
        self._closing = False

    # --- recording ------------------------------------------------------------------------------

    async def call(self, session: Conversation, name: str, arguments: Any, work: Awaitable[Result]) -> Result:
        """Await a call, record it, and return its result."""
        note, started = Note(), time.monotonic()
        outcome: AuditOutcome = "cancelled"
        result: Result | None = None
        token = NOTE.set(note)
        self._under_way += 1
        try:
            result = await work
            outcome = outcome_of(result.error, failed=result.is_error)
            return result
        except Exception as problem:
            outcome = outcome_of(problem)
            raise
        finally:
            NOTE.reset(token)
            self._ended()
            where, tool = _place(session, name, result)
            self.note(
                "call",
                session=session.id,
                agent=session.agent_id,
                name=name,
                server=where,
                tool=tool,
                outcome=outcome,
                error=type(result.error).__name__ if result and result.error else None,
                seconds=time.monotonic() - started,
                approval=note.approval,
                arguments=arguments if note.sent is None else note.sent,
                **({} if note.script is None else {"script": note.script}),
            )

    def sending(self, arguments: Mapping[str, Any]) -> None:
        """Record these arguments with the current call: those that the server gets."""
        if (note := NOTE.get()) is not None:
            note.sent = arguments

    async def other(self, verb: Verb, name: str, arguments: Any, work: Awaitable[T], **about: Any) -> T:
        """Await a read or prompt, record it, and return its result."""
        started, error = time.monotonic(), None
        outcome: AuditOutcome = "cancelled"
        if (script := SCRIPT.get()) is not None:
            about["script"] = script
        self._under_way += 1
        try:
            found = await work
            outcome = "ok"
            return found
        except Exception as problem:
            outcome, error = outcome_of(problem), type(problem).__name__
            raise
        finally:
            self._ended()
            took = time.monotonic() - started
            about = {"error": error, **about}
            self.note(verb, name=name, arguments=arguments, outcome=outcome, seconds=took, **about)

    def note(
        self,
        verb: str,
        *,
        name: str,
        outcome: str,
        seconds: float,
        arguments: Any = None,
        session: str | None = None,
        agent: str | None = None,
        **about: Any,
    ) -> None:
        """Queue one line. Never waits or raises."""
        caller = CALLER.get()
        who: Fields = (("session", session), ("agent", agent))
        if caller is not None:
            caller.outcome = outcome
            who = (("principal", caller.principal), ("profile", caller.profile), ("session", caller.session))
        if (subject := SUBJECT.get()) is not None and subject.chains:
            about["identity"] = _identity(subject, about.get("server"))
        said = (("verb", verb), *who, ("name", name), *about.items(), ("outcome", outcome))
        found: bytes | None = None
        shown: object = None
        if arguments:
            if self.settings.arguments == "hash":
                found = fingerprint(arguments)
            elif self.settings.arguments == "redact":
                shown = sketch(arguments, self._redact)
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            self.lost += 1
            return
        self._waiting.append((time.time(), said, seconds, found, shown))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    # --- writing --------------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            await self._pause(AGAIN if self._failing else GATHERED)
            while self._waiting:
                if not await self._written():
                    if self._closing:
                        self._give_up()
                    await self._pause(AGAIN)
        finally:
            self._writing = None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._end_pause.wait()

    async def _written(self) -> bool:
        """Write the oldest lines; those that fail are queued again and False is returned."""
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        lines: list[bytes] | None = None
        try:
            if not self._key and self.settings.arguments == "hash":
                self._key = await to_thread.run_sync(self._log().key)
            encoded: dict[Fields, str] = {}
            lines = [self._line(entry, encoded) for entry in batch]
            if self._lost:
                lines.insert(0, line({"time": stamp(batch[0][0]), "lost": self._lost}, self._redact))
            await to_thread.run_sync(self._log().append, lines)
        except OSError as problem:
            self._failed(problem)
            left = len(batch) if lines is None else min(len(lines), len(batch))
            self._waiting.extendleft(reversed(batch[len(batch) - left :]))
            if lines is not None and len(lines) <= len(batch):
                self._lost = 0  # the line about them was written
            return False
        if self._failing:
            log.warning("audit log is writable again path=%s lost_lines=%d", self._shown(), self._lost)
        self._failing, self._lost = False, 0
        return True

    def _line(self, entry: _Entry, encoded: dict[Fields, str]) -> bytes:
        """Return a line; `encoded` keeps the fields that repeat in a batch."""
        at, said, seconds, found, shown = entry
        ms = round(seconds * 1000, 1)
        arguments = shown if found is None else f"hmac-sha256:{digest(self._key, found)}"
        if shown is None:
            start = encoded.get(said)
            if start is None:
                start = encoded[said] = members(said, self._redact)
            end = "" if found is None else f', "arguments": "{arguments}"'
            made = f'{{"time": "{stamp(at)}", {start}, "ms": {ms}{end}}}\n'.encode()
            if len(made) <= LONGEST_LINE:
                return made
        return line({"time": stamp(at), **dict(said), "ms": ms, "arguments": arguments}, self._redact)

    def _failed(self, problem: OSError) -> None:
        if not self._failing:
            why = problem.strerror or problem
            log.error("audit log cannot be written, calls go on path=%s reason=%s", self._shown(), why)
        self._failing = True

    def _give_up(self) -> None:
        log.error(
            "audit log lines were lost path=%s lost_lines=%d", self._shown(), self._lost + len(self._waiting)
        )
        self.lost += len(self._waiting)
        self._waiting.clear()

    def _log(self) -> AuditLog:
        if self._file is None:
            path = Path(self.settings.path).expanduser()
            self._file = AuditLog(path, max_bytes=self.settings.max_bytes, keep=self.settings.keep)
        return self._file

    def _shown(self) -> str:
        return self._redact(str(self._log().path))

    # --- lifecycle ------------------------------------------------------------------------------

    async def check(self) -> None:
        """Log an error if the log cannot be written."""
        if (why := await self.problem()) is not None:
            self._failed(OSError(0, why))

    async def problem(self) -> str | None:
        """Return why the log cannot be written; None if no problem is found."""
        return await to_thread.run_sync(self._log().problem)

    async def close(self) -> None:
        """Wait for running calls, then write the queued lines."""
        self._idle.clear()
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._idle.wait()
        self._closing = True
        self._end_pause.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})


def _identity(subject: Subject, server: str | None) -> tuple[str, ...] | None:
    """Return the identities under which a request was made, beginning with the gateway client."""
    known = subject.chains.get(server or "")
    if known is None and server is None and len(subject.chains) == 1:
        [known] = subject.chains.values()
    return None if known is None else tuple(known)


def _place(session: Conversation, name: str, result: Result | None) -> tuple[str | None, str | None]:
    """Return the server and the server's name of the tool, from the result or else from the catalog."""
    if result is not None:
        return (result.server, result.tool) if result.server else (None, None)
    known = session.catalog.tools.get(name)
    return (None, None) if known is None else (known.server, known.remote_name)
