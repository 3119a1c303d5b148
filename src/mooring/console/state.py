"""The state of the console and of `mooring watch`: every number that they show is made here. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Literal

from mooring.console.journal import Journal
from mooring.core.events import (
    CallDenied,
    CallFinished,
    CallStarted,
    CatalogChanged,
    ConfigApplied,
    ConfigRejected,
    Event,
    EventsDropped,
    LoopLagged,
    ScriptFinished,
    ScriptStarted,
    ServerRemoved,
    StateChanged,
    ToolSetAside,
    shown_session,
)
from mooring.core.text import clean, clean_line, line
from mooring.core.types import ServerStatus
from mooring.errors import next_command

__all__ = ["LIMITS", "ConsoleState", "Level", "can_log_in", "event_text", "state_label"]

LIMITS = {"calls": 1_000, "scripts": 200, "wire": 500, "log": 500, "inbox": 100, "tries": 50}
"""Rows of tables that grow."""
SAMPLES = 1_000
"""Calls over which p50 and p95 are taken."""
TREND = 16
"""Round trips that are shown of a server."""
RATE_OVER = 10
"""Seconds over which the call rate is averaged."""
MOST_TOOLS = 2_000
"""Tools whose calls are counted; the one that was called least recently goes first."""
TOP = 10
LINES_PER_SECOND = 20
"""Lines that one server writes to stderr and that the log shows."""
LONGEST = 300
"""Characters of a text in a row."""
Level = Literal["info", "good", "warning", "error"]


class CallStats:
    """Number, failures, times and rate of finished calls."""

    __slots__ = ("_ends", "_times", "calls", "errors")

    def __init__(self, samples: int = SAMPLES) -> None:
        self.calls = self.errors = 0
        self._times: deque[float] = deque(maxlen=samples)
        self._ends: deque[tuple[int, int]] = deque(maxlen=RATE_OVER + 1)
        """Second, and calls that ended in it."""

    def add(self, ms: float | None, failed: bool, now: float) -> None:
        """Count a call; `ms` is None if it was not sent."""
        self.calls += 1
        self.errors += failed
        if ms is not None:
            self._times.append(ms)
        second = int(now)
        if self._ends and self._ends[-1][0] == second:
            self._ends[-1] = (second, self._ends[-1][1] + 1)
        else:
            self._ends.append((second, 1))

    def rate(self, now: float) -> float:
        """Return the calls per second over the last `RATE_OVER` seconds."""
        return sum(count for second, count in self._ends if now - second <= RATE_OVER) / RATE_OVER

    def document(self) -> dict[str, Any]:
        """Return the numbers of a row."""
        times = sorted(self._times)
        return {
            "calls": self.calls,
            "errors": self.errors,
            "error_rate": round(self.errors / self.calls, 4) if self.calls else 0.0,
            "p50": percentile(times, 0.50),
            "p95": percentile(times, 0.95),
        }


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the values do not exceed; None without values."""
    if not ordered:
        return None
    rank = max(1, -(-int(share * 10_000) * len(ordered) // 10_000))
    return round(ordered[rank - 1], 1)


class ConsoleState:
    """Makes the rows and numbers of the console from what happens in a host.

    It reads no clock: `now` is in seconds since the epoch.

    Args:
        journal: Holds the rows and values.
        log_calls: Whether finished calls get a line in the log; the table `calls` has them anyway.
    """

    def __init__(self, journal: Journal, *, log_calls: bool = False) -> None:
        self.journal, self._log_calls = journal, log_calls
        self.trips: dict[str, deque[float | None]] = {}
        """Milliseconds of the last round trips to each server; None: no response."""
        self._all = CallStats()
        self._denied = 0
        self._servers: dict[str, CallStats] = {}
        self._tools: OrderedDict[tuple[str, str], CallStats] = OrderedDict()
        self._running: dict[int, float] = {}
        self._recorded: set[int] = set()
        """Calls whose messages are kept, and whose events did not arrive yet."""
        self._facts: Mapping[str, Mapping[str, Any]] = {}
        self._numbers = 0
        self._lines: dict[str, tuple[int, int]] = {}
        self._stale: set[str] = set()
        """Servers whose row has to be made again."""
        journal.set("activity", self._activity(0.0))

    # --- what happens ---------------------------------------------------------------------------

    def add_event(self, event: Event, now: float) -> None:
        """Add an event of the host."""
        match event:
            case CallStarted():
                self._started(event, now)
            case CallFinished():
                self._finished(event, now)
            case CallDenied():
                self._refused(event, now)
            case ScriptStarted():
                row = {"id": event.script, "session": shown_session(event.session), "state": "running"}
                self.journal.put("scripts", {**row, "started": now, "ms": None, "calls": 0})
            case ScriptFinished():
                row = self.journal.row("scripts", event.script)
                if row is not None:
                    ended = {"state": "error" if event.is_error else "ok", "ms": _ms(event.duration)}
                    self.journal.put("scripts", {**row, **ended, "calls": event.calls})
            case EventsDropped():
                self._lost()
            case ServerRemoved():
                self.trips.pop(event.server, None)
                self._servers.pop(event.server, None)
            case _:
                pass
        quiet = isinstance(event, CallFinished) and not self._log_calls
        if not quiet and (said := event_text(event)) is not None:
            self.add_log(said[0], said[1], now, server=getattr(event, "server", None))

    def _started(self, event: CallStarted, now: float) -> None:
        self._running[event.call] = now
        row = {
            "id": f"c{event.call}",
            "server": event.server,
            "tool": line(event.tool, LONGEST),
            "session": shown_session(event.session),
            "principal": event.principal,
            "script": event.script,
            "started": round(now, 3),
            "ms": None,
            "outcome": "running",
            "error": None,
            "recorded": event.call in self._recorded,
        }
        self._recorded.discard(event.call)
        self.journal.put("calls", row)
        self._stale.add(event.server)

    def _finished(self, event: CallFinished, now: float) -> None:
        self._running.pop(event.call, None)
        outcome = "failed" if event.error else "error" if event.is_error else "ok"
        key = f"c{event.call}"
        row = self.journal.row("calls", key)
        if row is not None:
            ended = {"ms": _ms(event.duration), "outcome": outcome, "error": event.error}
            self.journal.replace("calls", {**row, **ended})
        self._count(event.server, event.tool, _ms(event.duration), event.is_error, now)
        self.add_round_trip(event.server, None if event.error else event.duration)

    def _lost(self) -> None:
        """Mark running calls: the end of any of them may be among the events that were dropped."""
        self._running.clear()
        self._recorded.clear()
        for row in self.journal.rows("calls"):
            if row["outcome"] == "running":
                self.journal.put("calls", {**row, "outcome": "unknown"})

    def _refused(self, event: CallDenied, now: float) -> None:
        self._numbers += 1
        self._denied += 1
        row = {
            "id": f"d{self._numbers}",
            "server": event.server,
            "tool": line(event.tool, LONGEST),
            "session": shown_session(event.session),
            "principal": None,
            "script": None,
            "started": round(now, 3),
            "ms": None,
            "outcome": "denied",
            "error": line(event.reason, LONGEST),
            "recorded": False,
        }
        self.journal.put("calls", row)

    def _count(self, server: str, tool: str, ms: float, failed: bool, now: float) -> None:
        self._all.add(ms, failed, now)
        self._servers.setdefault(server, CallStats()).add(ms, failed, now)
        key = (server, tool)
        self._tools.setdefault(key, CallStats(200)).add(ms, failed, now)
        self._tools.move_to_end(key)
        if len(self._tools) > MOST_TOOLS:
            self._tools.popitem(last=False)
        self._stale.add(server)

    def mark_recorded(self, call: int, kept: bool) -> None:
        """Note whether the messages of a call are kept, so that it can be exported."""
        row = self.journal.row("calls", f"c{call}")
        if row is not None:
            self.journal.put("calls", {**row, "recorded": kept})
        elif kept and len(self._recorded) < LIMITS["calls"]:
            self._recorded.add(call)

    def add_round_trip(self, server: str, seconds: float | None) -> None:
        """Add a round trip; None: no response."""
        trips = self.trips.setdefault(server, deque(maxlen=TREND))
        trips.append(None if seconds is None else _ms(seconds))
        self._stale.add(server)

    def add_log(
        self,
        text: str,
        level: Level,
        now: float,
        *,
        server: str | None = None,
        source: Literal["host", "stderr"] = "host",
    ) -> None:
        """Add a line to the log. Of the lines that a server writes, `LINES_PER_SECOND` are added."""
        if source == "stderr" and not self._admits(server or "", int(now)):
            return
        self._numbers += 1
        row = {"id": f"l{self._numbers}", "time": round(now, 3), "level": level, "source": source}
        self.journal.put("log", {**row, "server": server, "text": line(text, LONGEST)})

    def _admits(self, server: str, second: int) -> bool:
        last, count = self._lines.get(server, (second, 0))
        count = count + 1 if last == second else 1
        self._lines[server] = (second, count)
        return count <= LINES_PER_SECOND

    # --- what there is --------------------------------------------------------------------------

    def set_servers(
        self, statuses: Iterable[ServerStatus], facts: Mapping[str, Mapping[str, Any]], now: float
    ) -> None:
        """Replace the servers. `facts` are more keys of a row by server, such as `file` and `restarts`."""
        found = {
            status.name: {**self._server(status, now), **facts.get(status.name, {})} for status in statuses
        }
        for gone in self._facts.keys() - found.keys():
            self.trips.pop(gone, None)
            self._servers.pop(gone, None)
        self._facts = found
        self.journal.put_all("servers", [self._row(name, now) for name in found])
        self._stale.clear()

    def _server(self, status: ServerStatus, now: float) -> dict[str, Any]:
        before = self._facts.get(status.name, {}).get("retry_at")
        retry = None if status.retry_in is None else round(now + status.retry_in)
        if before is not None and retry is not None and abs(before - retry) <= 2:
            retry = before  # the same attempt; only the clock went on
        return {
            "id": status.name,
            "state": status.state,
            "label": state_label(status),
            "reason": None if status.error is None else clean(status.error)[:2_000],
            "next": next_step(status),
            "transport": status.transport,
            "protocol": status.protocol,
            "era": None if status.protocol is None else "modern" if status.protocol >= "2026" else "legacy",
            "tools": status.tools,
            "resources": status.resources,
            "prompts": status.prompts,
            "skills": status.skills,
            "connected_at": status.connected_at,
            "fresh_within": status.fresh_within,
            "retry_at": retry,
            "breaker": status.breaker,
        }

    def _row(self, name: str, now: float) -> dict[str, Any]:
        stats = self._servers.get(name) or CallStats()
        trips = list(self.trips.get(name, ()))
        return {**self._facts[name], **stats.document(), "rate": stats.rate(now), "trips": trips}

    def flush(self, now: float) -> None:
        """Make the numbers that depend on calls and on the time again."""
        moving = {name for name, row in self.journal.tables.get("servers", {}).items() if row["rate"]}
        for name in (self._stale | moving) & self._facts.keys():
            self.journal.replace("servers", self._row(name, now))
        self._stale.clear()
        self.journal.set("activity", self._activity(now))

    def _activity(self, now: float) -> dict[str, Any]:
        stats = self._all
        first = nlargest(TOP, self._tools.items(), key=lambda item: item[1].calls)
        top = [{"server": server, "tool": tool, **one.document()} for (server, tool), one in first]
        numbers = stats.document()
        numbers["finished"] = numbers.pop("calls")
        return {
            "running": len(self._running),
            **numbers,
            "denied": self._denied,
            "rate": stats.rate(now),
            "top": top,
        }


def state_label(status: ServerStatus) -> str:
    """Return the state of a server in words."""
    if status.breaker != "closed":
        return f"breaker {status.breaker}"
    if status.state == "connected" and status.fresh_within is not None:
        return f"fresh within {status.fresh_within:.0f} s" if status.fresh_within >= 1 else "fresh"
    return status.state


def next_step(status: ServerStatus) -> str | None:
    """Return what to do about a server that is not connected: mostly a command."""
    if status.state in ("connected", "pending"):
        return None
    if (found := next_command(status.error or "", None)) is not None:
        return found
    return f"mooring enable {status.name}" if status.state == "disabled" else "mooring doctor"


def can_log_in(status: ServerStatus) -> bool:
    """Whether a server needs a login that is possible: then its reason names the command."""
    return status.state == "needs-auth" and "`mooring login " in (status.error or "")


def event_text(event: Event) -> tuple[str, Level] | None:
    """Return an event as one line; None for events that are not shown."""
    match event:
        case StateChanged():
            level: Level = (
                "error" if event.new == "failed" else "good" if event.new == "connected" else "info"
            )
            return clean_line(f"{event.server}: {event.new} {_reason(event.reason)}"), level
        case CallFinished() if event.is_error:
            return clean_line(f"{event.server}: call of {event.tool} failed {_reason(event.error)}"), "error"
        case CallFinished():
            return clean_line(f"{event.server}: {event.tool} in {event.duration * 1000:.0f} ms"), "info"
        case CatalogChanged():
            parts = (("+", event.added), ("-", event.removed), ("~", event.changed))
            counts = ", ".join(f"{sign}{len(names)}" for sign, names in parts if names)
            return f"tools changed: {counts}", "info"
        case ToolSetAside():
            return clean_line(f"{event.tool} is blocked: it changed since it was approved"), "warning"
        case ConfigApplied():
            return "configuration applied", "info"
        case ConfigRejected():
            return clean_line(f"configuration rejected: {event.problem}"), "error"
        case LoopLagged():
            return f"the event loop was blocked for {event.seconds:.1f} s", "warning"
        case EventsDropped():
            return f"{event.count} event{'' if event.count == 1 else 's'} not shown", "info"
        case _:
            return None


def _reason(text: str | None) -> str:
    return f"({text.splitlines()[0]})" if text else ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
