"""What happened, in the past tense. A host's event stream carries these, in order."""

from __future__ import annotations

from typing import Literal

from mooring.core.types import State
from mooring.core.value import Value

__all__ = [
    "ApprovalAsked",
    "CallDenied",
    "CallFinished",
    "CallStarted",
    "CatalogChanged",
    "ConfigApplied",
    "ConfigRejected",
    "Event",
    "EventsDropped",
    "LoginNeeded",
    "LoopLagged",
    "ResourceUpdated",
    "ServerConnected",
    "ServerLost",
    "ServerRemoved",
    "SessionEnded",
    "StateChanged",
    "ToolSetAside",
]


class Event(Value):
    """Root of all events."""


class StateChanged(Event):
    """A server went from one state to another. Every change has exactly one of these."""

    server: str
    old: State
    new: State
    reason: str | None = None


class ServerConnected(Event):
    """A connection is up, and its lists are read."""

    server: str
    protocol: str
    tools: int


class ServerLost(Event):
    """A connection that was up has ended without being asked to."""

    server: str
    reason: str


class LoginNeeded(Event):
    """A server wants a login, or more rights than the login has. Not the error of the same name."""

    server: str
    reason: str
    login: bool
    """Whether `host.login` can help: not where the server has no such login, or an unsafe one."""


class ServerRemoved(Event):
    """A server is no longer part of the host."""

    server: str


class SessionEnded(Event):
    """A conversation is over: its own connections are ended."""

    session: str
    reason: Literal["left", "idle"]


class CatalogChanged(Event):
    """The merged catalog is another one: local tool names, sorted."""

    revision: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    resources: bool = False
    """Whether the resources or their templates are others."""


class ToolSetAside(Event):
    """A tool is not what was approved and is not shown: `server/tool`, the server's own name of it."""

    tool: str


class ResourceUpdated(Event):
    """A resource that was subscribed to is another one now."""

    server: str
    uri: str
    missed: bool = False
    """The server could not be heard for a while, so that a change may have gone unnoticed."""
    session: str | None = None
    """The conversation that has the server for itself; None: everybody's."""


class ConfigApplied(Event):
    """Another configuration was taken over: names of servers."""

    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()


class ConfigRejected(Event):
    """A configuration file changed and cannot be used; the last good one stays."""

    problem: str


class ApprovalAsked(Event):
    """A call waits for somebody's yes."""

    server: str
    tool: str
    session: str
    reason: str


class CallDenied(Event):
    """A call was not made: the configuration denies it, or nobody said yes."""

    server: str
    tool: str
    session: str
    reason: str


class CallStarted(Event):
    """A call of a tool begins."""

    server: str
    tool: str
    session: str


class CallFinished(Event):
    """A call of a tool has ended, with an answer or an error."""

    server: str
    tool: str
    session: str
    duration: float
    is_error: bool
    error: str | None = None
    """Class of the error when the tool itself did not answer: `CallTimeout`, `ConnectionLost` …"""


class LoopLagged(Event):
    """Something blocked the event loop: for so many seconds nobody was served. No server is to blame."""

    seconds: float


class EventsDropped(Event):
    """This listener was too slow: so many events were thrown away before the next one."""

    count: int
