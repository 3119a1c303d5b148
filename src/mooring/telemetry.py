"""OpenTelemetry spans and metrics, the monitor of event loop delays, and the audit log in use."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
from mooring.core.callers import SCRIPT
from mooring.core.events import Event, LoopLagged, ServerConnected, ServerLost, ServerRemoved, StateChanged
from mooring.core.types import EMPTY, Result, Tool
from mooring.errors import ServerError

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

    from mooring.audit import Audit
    from mooring.config.audit import AuditSettings


METHOD = "mcp.method.name"
TOOL = "gen_ai.tool.name"
OPERATION = "gen_ai.operation.name"
ERROR = "error.type"
STATUS = "rpc.response.status_code"
SERVER = "mooring.server"
SESSION = "mooring.session"


class CallRecord:
    """The outcome of one call. `meta` is sent with the request, so that spans of the server join the
    trace."""

    def __init__(self, span: Span | None, meta: Mapping[str, Any]) -> None:
        self._span = span
        self.meta = meta
        self.error: str | None = None

    def ended(self, result: Result) -> None:
        """Record a result."""
        if result.is_error:
            self.error = "tool_error"

    def refused(self, problem: BaseException) -> None:
        """Record an exception."""
        self.error = type(problem).__name__
        if self._span is not None and isinstance(problem, ServerError):
            self._span.set_attribute(STATUS, str(problem.code))


_NUMBERS = count(1)


def call_facts(tool: Tool, session: str, principal: str | None) -> dict[str, Any]:
    """Return the fields that both events of a new call have."""
    return {
        "server": tool.server,
        "tool": tool.remote_name,
        "session": session,
        "call": next(_NUMBERS),
        "principal": principal,
        "script": SCRIPT.get(),
    }


def traced() -> bool:
    """Return whether the application uses OpenTelemetry."""
    return "opentelemetry" in sys.modules


@contextmanager
def tool_call(tool: Tool, session: str) -> Generator[CallRecord]:
    """Record one `tools/call`: a client span and its duration."""
    if not traced():
        yield CallRecord(None, EMPTY)
        return
    from opentelemetry import propagate, trace

    about = {METHOD: "tools/call", TOOL: tool.remote_name, OPERATION: "execute_tool"}
    started = time.monotonic()
    with trace.get_tracer("mooring").start_as_current_span(
        f"tools/call {tool.remote_name}",
        kind=trace.SpanKind.CLIENT,
        attributes={**about, SERVER: tool.server, SESSION: session},
        record_exception=False,
    ) as span:
        meta: dict[str, str] = {}
        propagate.inject(meta)
        record = CallRecord(span, meta)
        try:
            yield record
        finally:
            if record.error is not None:
                span.set_attribute(ERROR, record.error)
                span.set_status(trace.StatusCode.ERROR)
            outcome = {ERROR: record.error} if record.error else {}
            _duration("operation").record(
                time.monotonic() - started, {**about, SERVER: tool.server, **outcome}
            )


class ConnectionTimer:
    """Measures how long each server stays connected."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def observe(self, event: Event) -> None:
        """Record the duration of a connection when an event ends it."""
        if isinstance(event, ServerConnected):
            self._since[event.server] = time.monotonic()
        elif isinstance(event, ServerLost | ServerRemoved) or (
            isinstance(event, StateChanged) and event.old == "connected"
        ):
            started = self._since.pop(event.server, None)
            if started is not None and traced():
                lost = {ERROR: "ConnectionLost"} if isinstance(event, ServerLost) else {}
                _duration("session").record(time.monotonic() - started, {SERVER: event.server, **lost})


def _duration(what: str) -> Histogram:
    from opentelemetry import metrics

    # The meter keeps one instrument per name.
    return metrics.get_meter("mooring").create_histogram(f"mcp.client.{what}.duration", unit="s")


log = logger("mooring.host")


INTERVAL, MAX_LAG = 1.0, 0.5
"""Seconds between two checks of the event loop, and the delay from which on it is reported."""


async def monitor_loop(emit: Callable[[Event], None]) -> None:
    """Emit `LoopLagged` when the application has blocked the event loop. Never returns."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(INTERVAL)
        if (late := time.monotonic() - before - INTERVAL) > MAX_LAG:
            log.warning("event loop blocked: seconds=%.1f", late)
            emit(LoopLagged(seconds=late))


class AuditManager:
    """Opens and replaces the audit log of a host."""

    def __init__(self, settings: AuditSettings | None, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self.log = self._open(settings)
        """The log in use; None: calls are not logged."""

    async def switch(self, settings: AuditSettings | None) -> None:
        """Use another audit log from now on, or none."""
        old, self.log = self.log, self._open(settings)
        if old is not None:
            await old.close()

    async def apply(self, old: AuditSettings | None, new: AuditSettings | None) -> None:
        """Switch the log if its settings changed."""
        if old != new:
            await self.switch(new)

    async def check(self) -> None:
        """Warn at once if the log cannot be written."""
        if self.log is not None:
            await self.log.check()

    async def close(self) -> None:
        """Write the entries that are still queued."""
        if self.log is not None:
            await self.log.close()

    def _open(self, settings: AuditSettings | None) -> Audit | None:
        if settings is None:
            return None
        from mooring.audit import Audit  # most hosts have no audit log

        return Audit(settings, self._redact)
