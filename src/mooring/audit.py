"""Audit log of a host: every call, read and prompt, written off the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Protocol, TypeVar

from anyio import to_thread

from mooring.config.audit import AuditOutcome, AuditSettings, digest, fingerprint, line, outcome_of, sketch
from mooring.config.logs import logger
from mooring.core.catalog import Catalog
from mooring.core.types import Result

PATIENCE = 5.0
"""Seconds that another process may take for its own lines."""
_KEY_LENGTH = 64
# Neither through a link, nor waiting for whoever would read from a pipe; Windows knows neither.
_SAFE = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE


class AuditLog:
    """`path`, the files that were put aside beside it (`path.1` is the newest), a lock and a key."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path, self._max, self._keep = path, max_bytes, keep

    def append(self, lines: list[bytes]) -> None:
        """Write the lines, each whole or not at all; what is written is taken out of the list.

        Raises:
            OSError: that is not possible now.
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
        """What the digests of this log are made with: in a file beside it, made when there is none.

        Raises:
            OSError: it can neither be read nor made.
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
        """Why nothing can be written there, as far as that is seen without writing; None if nothing is."""
        try:
            try:
                os.close(self._opened(self.path, os.O_RDWR | os.O_APPEND | _SAFE))
            except FileNotFoundError:
                folder = next(one for one in self.path.absolute().parents if one.exists())
                if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                    return f"nothing can be made in {folder}"
        except OSError as fault:
            return fault.strerror or str(fault)
        return None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Nobody else writes, or puts files aside, meanwhile."""
        from filelock import FileLock, Timeout

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self._beside("lock"), timeout=PATIENCE, mode=0o600):
                yield
        except Timeout:
            raise OSError(errno.ETIMEDOUT, "another process holds its lock") from None

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")

    def _opened(self, path: Path, flags: int = _APPEND) -> int:
        """An open file that is ours alone.

        Raises:
            OSError: it is something else, or somebody else's.
        """
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, f"{path} is a link, which is not followed") from None
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, f"{path} is no regular file")
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
        """How many of the lines this file still takes; an empty one takes at least one."""
        count = 0
        for text in lines:
            used += len(text)
            if used > self._max and (count or used > len(text)):
                break
            count += 1
        return count

    def _put_aside(self) -> None:
        with suppress(FileNotFoundError):
            for number in range(self._keep, self._keep + 1_000):  # more were kept before
                os.unlink(self._beside(str(number)))
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._beside(str(number)), self._beside(str(number + 1)))
        os.replace(self.path, self._beside("1"))


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read at an offset. Windows has no `pread`; writes append wherever the offset is."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def _write(descriptor: int, data: bytes, used: int) -> None:
    """Append all of it, or nothing."""
    if used and _read_at(descriptor, 1, used - 1) != b"\n":
        data = b"\n" + data  # somebody was killed in the middle of a line
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, used)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


log = logger("mooring.audit")


T = TypeVar("T")
Verb = Literal["call", "read", "prompt"]

GATHERED = 0.05
"""Seconds after which a line is written: what happens meanwhile is written with it."""
AGAIN = 10.0
"""Seconds after which a log that could not be written is tried again."""
MOST_WAITING = 5_000
"""Lines that wait for a log which cannot be written; more are lost, and counted."""
LAST_WORDS = 1.0
"""Seconds that calls under way have to end when the host is closed."""
_BATCH = 256


class Conversation(Protocol):
    """Who calls, as a session knows it."""

    id: str
    agent_id: str | None

    @property
    def catalog(self) -> Catalog: ...


class Caller:
    """Whoever is behind a request that came from outside."""

    __slots__ = ("noted", "principal", "profile", "session")

    def __init__(self, principal: str, *, profile: str | None, session: str | None) -> None:
        self.principal, self.profile, self.session = principal, profile, session
        self.noted = False
        """Whether a line tells of the request."""


class Note:
    """What is learned of a call on its way."""

    __slots__ = ("approval",)

    def __init__(self) -> None:
        self.approval: Literal["given", "denied"] | None = None


CALLER: ContextVar[Caller | None] = ContextVar("mooring_audit_caller", default=None)
NOTE: ContextVar[Note | None] = ContextVar("mooring_audit_note", default=None)


class Audit:
    """Appends a line for whatever is called or read. A log that cannot be written costs no call: it is told
    once, lines wait for it within a bound, and it is tried again."""

    def __init__(self, settings: AuditSettings, redact: Callable[[str], str]) -> None:
        self.settings = settings
        self._redact = redact
        self._waiting: deque[tuple[dict[str, Any], bytes | None]] = deque()
        """What is not written yet: the fields of each line, and the fingerprint of its arguments."""
        self._file: AuditLog | None = None
        self._key = b""
        self._lost = 0
        self._failing = False
        self._writing: asyncio.Task[None] | None = None
        self._under_way = 0
        self._idle, self._hurry = asyncio.Event(), asyncio.Event()
        self._closing = False

    # --- what is noted --------------------------------------------------------------------------

    async def call(self, session: Conversation, name: str, arguments: Any, work: Awaitable[Result]) -> Result:
        """The outcome of a call, which is noted."""
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
                arguments=arguments,
            )

    async def other(self, verb: Verb, name: str, arguments: Any, work: Awaitable[T], **about: Any) -> T:
        """What is read, which is noted."""
        started, error = time.monotonic(), None
        outcome: AuditOutcome = "cancelled"
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
            seconds = time.monotonic() - started
            self.note(
                verb,
                name=name,
                arguments=arguments,
                outcome=outcome,
                error=error,
                seconds=seconds,
                **about,
            )

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
        """Have one line written. Never waits, never raises."""
        caller = CALLER.get()
        who: dict[str, Any] = {"session": session, "agent": agent}
        if caller is not None:
            caller.noted = True
            who = {"principal": caller.principal, "profile": caller.profile, "session": caller.session}
        now = time.time()
        said: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z",
            "verb": verb,
            **who,
            "name": name,
            **about,
            "outcome": outcome,
            "ms": round(seconds * 1000, 1),
        }
        found = None
        if arguments:
            if self.settings.arguments == "hash":
                found = fingerprint(arguments)
            elif self.settings.arguments == "redact":
                said["arguments"] = sketch(arguments, self._redact)
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return
        self._waiting.append((said, found))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    # --- what is written ------------------------------------------------------------------------

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
                await self._hurry.wait()

    async def _written(self) -> bool:
        """Whether the oldest lines are in the file now; those that are not wait on."""
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        lines: list[bytes] | None = None
        try:
            if not self._key and self.settings.arguments == "hash":
                self._key = await to_thread.run_sync(self._log().key)
            lines = [self._line(said, found) for said, found in batch]
            if self._lost:
                lines.insert(0, line({"time": batch[0][0]["time"], "lost": self._lost}, self._redact))
            await to_thread.run_sync(self._log().append, lines)
        except OSError as problem:
            self._failed(problem)
            left = len(batch) if lines is None else min(len(lines), len(batch))
            self._waiting.extendleft(reversed(batch[len(batch) - left :]))
            if lines is not None and len(lines) <= len(batch):
                self._lost = 0  # that much was told
            return False
        if self._failing:
            log.warning("the audit log %s is written again; %d lines are lost", self._shown(), self._lost)
        self._failing, self._lost = False, 0
        return True

    def _line(self, said: Mapping[str, Any], found: bytes | None) -> bytes:
        told = said if found is None else {**said, "arguments": f"hmac-sha256:{digest(self._key, found)}"}
        return line(told, self._redact)

    def _failed(self, problem: OSError) -> None:
        if not self._failing:
            why = problem.strerror or problem
            log.error("the audit log %s cannot be written: %s; calls go on", self._shown(), why)
        self._failing = True

    def _give_up(self) -> None:
        log.error("the audit log %s lacks %d lines", self._shown(), self._lost + len(self._waiting))
        self._waiting.clear()

    def _log(self) -> AuditLog:
        if self._file is None:
            path = Path(self.settings.path).expanduser()
            self._file = AuditLog(path, max_bytes=self.settings.max_bytes, keep=self.settings.keep)
        return self._file

    def _shown(self) -> str:
        return self._redact(str(self._log().path))

    # --- life -----------------------------------------------------------------------------------

    async def check(self) -> None:
        """Tell at once if the log cannot be written."""
        if (why := await self.problem()) is not None:
            self._failed(OSError(0, why))

    async def problem(self) -> str | None:
        """Why the log cannot be written, as far as that can be seen; None when nothing is wrong."""
        return await to_thread.run_sync(self._log().problem)

    async def close(self) -> None:
        """Write what is not written yet; calls under way have a moment to end."""
        self._idle.clear()
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self._idle.wait()
        self._closing = True
        self._hurry.set()
        if self._writing is not None:
            await asyncio.wait({self._writing})


def _place(session: Conversation, name: str, result: Result | None) -> tuple[str | None, str | None]:
    """The server and its own name of the tool; of a call without a result, as the catalog knows them."""
    if result is not None:
        return (result.server, result.tool) if result.server else (None, None)
    known = session.catalog.tools.get(name)
    return (None, None) if known is None else (known.server, known.remote_name)
