"""The access log: one line for each request, written off the event loop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from mooring.config.audit import stamp
from mooring.config.logs import logger
from mooring.core.text import clean_line
from mooring.core.types import Result

if TYPE_CHECKING:
    from mooring.config.operation import AccessLogSettings
    from mooring.gateway.clients import Client
    from mooring.gateway.web import WebRequest

__all__ = ["AccessLog", "RequestRecord"]

log = logger("mooring.gateway")

MAX_WAITING = 20_000
"""Lines queued while the log cannot be written; further ones are lost and counted."""
GATHER = 0.25
"""Seconds for which lines are collected before they are written."""
RETRY = 5.0
CLOSE_TIMEOUT = 5.0
_BATCH = 512
_LONGEST = 200
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


_SAID = (
    *("remote", "principal", "profile", "method", "server", "tool", "http", "path", "status", "outcome"),
    *("error", "session"),
)
"""Fields of a line whose values repeat."""
Entry = tuple[float, tuple[str | int | None, ...], float, int, int, str | None]
"""One line: time, values of the fields above, seconds, bytes of the request and the response, trace id."""


class RequestRecord:
    """One JSON-RPC request: who asked for what, and how it ended. Holds no text of the client except for
    names that are known to the gateway."""

    __slots__ = (
        "error", "method", "outcome", "principal", "profile", "saved", "seconds", "sent", "server", "session",
        "tool", "trace",
    )  # fmt: skip

    def __init__(self, client: Client, trace: str | None) -> None:
        self.method = "unknown"
        self.principal = client.principal.name
        self.profile = client.profile.name
        # Only a prefix: the full id would give access to the session.
        self.session = client.id[:8] if client.era == "legacy" and client.has_session else None
        self.trace = trace
        self.server: str | None = None
        self.tool: str | None = None
        """The server's own name of the tool."""
        self.outcome = "cancelled"
        """`ok`, `error` (the tool, or the way to it, failed), `refused`, `failed` or `cancelled`."""
        self.error: str | None = None
        """The kind of the error."""
        self.seconds = 0.0
        self.sent = 0
        """Bytes of the response."""
        self.saved = 0
        """Bytes that discovery left out of a list of tools."""

    def result(self, result: Result) -> None:
        """Take over what the result of a call says."""
        if result.server:
            self.server, self.tool = result.server, result.tool
        if result.error is not None:
            self.error = kind_of(result.error)
        elif result.is_error:
            self.error = "tool_error"


def kind_of(error: BaseException) -> str:
    """Return the kind of an error: `call_timeout` for `CallTimeout`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def trace_of(headers: Mapping[str, str], meta: Mapping[str, Any]) -> str | None:
    """Return the trace id of a request (W3C `traceparent`, in its `_meta` or its headers)."""
    for value in (meta.get("traceparent"), headers.get("traceparent")):
        if isinstance(value, str) and (found := _TRACE.fullmatch(value)) is not None:
            return found[1]
    return None


class AccessLog:
    """Queues lines and writes them in a thread. If they cannot be written, requests go on: the failure is
    logged once, and the number of lost lines is written when the log works again."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._settings: AccessLogSettings | None = None
        self._waiting: deque[Entry] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failing = False
        self.lost = 0
        """Lines lost in total."""
        self._lost = 0

    def use(self, settings: AccessLogSettings | None) -> None:
        """Write to this file from now on; None: nowhere. The file is opened for each batch, so that it can be
        rotated by renaming it."""
        self._settings = settings

    def problem(self) -> str | None:
        """Return why the log cannot be written; None if it can."""
        settings = self._settings
        if settings is None or settings.path == "-":
            return None
        try:
            os.close(_opened(settings.path))
        except OSError as fault:
            return f"{settings.path}: {fault.strerror or fault}"
        return None

    def served(self, request: WebRequest, status: int, seconds: float, *, refused: bool) -> None:
        """Write the lines of an HTTP request: one for each JSON-RPC request in it, else one."""
        if self._settings is None:
            return
        http, route, received = request.method, request.route or None, request.received
        for record in request.records:
            self.write(record, remote=request.remote, received=received, http=http, path=route, status=status)
        if not request.records:
            outcome = "refused" if refused else "ok" if status else "cancelled"
            who = (request.remote, request.principal, request.profile)
            said = (*who, None, None, None, http, route, status, outcome, None, None)
            self._put((time.time(), said, seconds, received, request.sent, trace_of(request.headers, {})))

    def write(
        self,
        record: RequestRecord,
        *,
        remote: str | None,
        received: int = 0,
        http: str | None = None,
        path: str | None = None,
        status: int | None = None,
    ) -> None:
        """Write the line of one JSON-RPC request."""
        if self._settings is None:
            return
        who = (remote, record.principal, record.profile, record.method, record.server, record.tool)
        said = (*who, http, path, status, record.outcome, record.error, record.session)
        self._put((time.time(), said, record.seconds, received, record.sent, record.trace))

    def _put(self, entry: Entry) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            self._lost += 1
            return
        self._waiting.append(entry)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._pause(RETRY if self._failing else GATHER)
                while self._waiting:
                    if not await self._written():
                        if self._closing.is_set():
                            self.lost += len(self._waiting)
                            self._waiting.clear()
                        break
        finally:
            self._writing = None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _written(self) -> bool:
        settings = self._settings
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        if settings is None:
            return True
        try:
            in_json = settings.format == "json"
            lines = [(as_json if in_json else as_text)(entry) for entry in batch]
            if self._lost:
                at = stamp(batch[0][0])
                lines.insert(
                    0, f'{{"time": "{at}", "lost": {self._lost}}}' if in_json else f"{at} lost={self._lost}"
                )
            data = self._redact("\n".join(lines) + "\n").encode()
            await to_thread.run_sync(_append, settings.path, data)
        except OSError as problem:
            if not self._failing:
                reason = problem.strerror or problem
                log.error("access log cannot be written path=%s reason=%s", settings.path, reason)
            self._failing = True
            self._waiting.extendleft(reversed(batch))
            return False
        self._failing, self._lost = False, 0
        return True

    async def close(self) -> None:
        """Write the queued lines."""
        self._closing.set()
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=CLOSE_TIMEOUT)


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    return os.open(os.path.expanduser(path), flags, 0o640)


def _append(path: str, data: bytes) -> None:
    if path == "-":
        sys.stderr.write(data.decode())
        sys.stderr.flush()
        return
    file = _opened(path)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _cleaned(text: str) -> str:
    return (text if text.isascii() and text.isprintable() else clean_line(text))[:_LONGEST]


@lru_cache(maxsize=4096)
def _json_fields(said: tuple[Any, ...]) -> str:
    """Return the fields that repeat from request to request, so that their encoding is kept."""
    named = zip(_SAID, said, strict=True)
    return "".join(
        f', "{name}": {json.dumps(_cleaned(value)) if isinstance(value, str) else value}'
        for name, value in named
        if value is not None and value != ""
    )


def as_json(entry: Entry) -> str:
    """Return the line as JSON."""
    at, said, seconds, received, sent, trace = entry
    end = "" if trace is None else f', "trace": {json.dumps(_cleaned(trace))}'
    numbers = f'"ms": {round(seconds * 1000, 1)}, "in": {received}, "out": {sent}'
    return f'{{"time": "{stamp(at)}"{_json_fields(said)}, {numbers}{end}}}'


@lru_cache(maxsize=4096)
def _text_fields(said: tuple[Any, ...]) -> str:
    named = zip(_SAID, said, strict=True)
    return "".join(
        f" {name}={_quoted(value) if isinstance(value, str) else value}"
        for name, value in named
        if value is not None and value != ""
    )


def as_text(entry: Entry) -> str:
    """Return `key=value` pairs; values with spaces, quotes or `=` are quoted as in JSON."""
    at, said, seconds, received, sent, trace = entry
    end = "" if trace is None else f" trace={_quoted(trace)}"
    numbers = f"ms={round(seconds * 1000, 1)} in={received} out={sent}"
    return f"{stamp(at)}{_text_fields(said)} {numbers}{end}"


def _quoted(value: str) -> str:
    text = _cleaned(value)
    plain = text.isprintable() and not re.search(r"""[\s"=\\]""", text)
    return text if text and plain else json.dumps(text)
