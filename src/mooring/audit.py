"""The audit log of a host: every call, reading and prompt is noted, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from anyio import to_thread

from mooring.config.logs import logger
from mooring.core.audit import (
    AuditOutcome,
    AuditSettings,
    digest,
    fingerprint,
    line,
    outcome_of,
    sketch,
)
from mooring.core.catalog import Catalog
from mooring.core.types import Result

if TYPE_CHECKING:
    from mooring.store.auditlog import AuditLog

__all__ = ["CALLER", "NOTE", "Audit", "Caller", "Note"]

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
            from mooring.store.auditlog import AuditLog

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
