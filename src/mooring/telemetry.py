"""OpenTelemetry spans and metrics, the monitor of event loop delays, and the audit log in use."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
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
    """What became of one call; `meta` goes with the request, so that the server's spans join ours."""

    def __init__(self, span: Span | None, meta: Mapping[str, Any]) -> None:
        self._span = span
        self.meta = meta
        self.error: str | None = None

    def ended(self, result: Result) -> None:
        if result.is_error:
            self.failed("tool_error")

    def refused(self, problem: BaseException) -> None:
        self.failed(type(problem).__name__)
        if self._span is not None and isinstance(problem, ServerError):
            self._span.set_attribute(STATUS, str(problem.code))

    def failed(self, kind: str) -> None:
        self.error = kind


def traced() -> bool:
    """Whether the application uses OpenTelemetry."""
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


class SessionClock:
    """How long each server stayed connected."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def heard(self, event: Event) -> None:
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


PULSE, LAG = 1.0, 0.5
"""How often the loop is felt, and from how many seconds on a lag is told."""


async def feel(emit: Callable[[Event], None]) -> None:
    """Tell when the application has blocked the loop; its servers are not held for dead because of it."""
    while True:
        asleep = time.monotonic()
        await asyncio.sleep(PULSE)
        if (late := time.monotonic() - asleep - PULSE) > LAG:
            log.warning("the event loop was blocked for %.1f s", late)
            emit(LoopLagged(seconds=late))


class AuditManager:
    """Has the log of a host, if there is one."""

    def __init__(self, settings: AuditSettings | None, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self.log = self._at(settings)

    async def note_in(self, settings: AuditSettings | None) -> None:
        """From now on note every call in this audit log, or in none."""
        old, self.log = self.log, self._at(settings)
        if old is not None:
            await old.close()

    async def apply(self, old: AuditSettings | None, new: AuditSettings | None) -> None:
        """Take over what has changed in the configuration."""
        if old != new:
            await self.note_in(new)

    async def check(self) -> None:
        """Tell at once if the log cannot be written."""
        if self.log is not None:
            await self.log.check()

    async def close(self) -> None:
        """Write what is not written yet."""
        if self.log is not None:
            await self.log.close()

    def _at(self, settings: AuditSettings | None) -> Audit | None:
        if settings is None:
            return None
        from mooring.audit import Audit  # most hosts note nothing

        return Audit(settings, self._redact)
