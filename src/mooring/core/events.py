"""What happened, in the past tense. A host's event stream carries these, in order."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.types import State

__all__ = [
    "CallFinished",
    "CallStarted",
    "CatalogChanged",
    "ConfigApplied",
    "ConfigRejected",
    "Event",
    "EventsDropped",
    "ServerConnected",
    "ServerLost",
    "ServerRemoved",
    "StateChanged",
    "ToolSetAside",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Root of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """A server went from one state to another. Every change has exactly one of these."""

    server: str
    old: State
    new: State
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConnected(Event):
    server: str
    protocol: str
    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLost(Event):
    """A connection that was up has ended without being asked to."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRemoved(Event):
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged(Event):
    """The merged catalog is another one: local tool names, sorted."""

    revision: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetAside(Event):
    """A tool is not what was approved and is not shown: `server/tool`, the server's own name of it."""

    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigApplied(Event):
    """Another configuration was taken over: names of servers."""

    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRejected(Event):
    """A configuration file changed and cannot be used; the last good one stays."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(Event):
    server: str
    tool: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished(Event):
    server: str
    tool: str
    session: str
    duration: float
    is_error: bool
    error: str | None = None
    """Class of the error when the tool itself did not answer: `CallTimeout`, `ConnectionLost` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDropped(Event):
    """This listener was too slow: so many events were thrown away before the next one."""

    count: int
