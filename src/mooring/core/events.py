"""Events of a host, in the order of its event stream."""

from __future__ import annotations

from typing import Literal

from mooring.core.types import State
from mooring.core.value import Value, field

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
    "ScriptCalled",
    "ScriptFinished",
    "ScriptStarted",
    "ServerConnected",
    "ServerLost",
    "ServerRemoved",
    "SessionEnded",
    "StateChanged",
    "ToolSetAside",
]


class Event(Value):
    """Base class of all events."""


class StateChanged(Event):
    """The state of a server changed. Every change has exactly one of these events."""

    server: str
    """Name of the server."""
    old: State
    """State before."""
    new: State
    """State after."""
    reason: str | None = None
    """Why, if it is known."""


class ServerConnected(Event):
    """A server is connected and its lists are read."""

    server: str
    """Name of the server."""
    protocol: str
    """Negotiated protocol version."""
    tools: int
    """Number of tools."""


class ServerLost(Event):
    """A connection ended unexpectedly."""

    server: str
    """Name of the server."""
    reason: str
    """Why the connection ended."""


class LoginNeeded(Event):
    """A server requires a login, or more rights than the current login has."""

    server: str
    """Name of the server."""
    reason: str
    """What the server requires."""
    login: bool
    """Whether `host.login` can help; False if the server has no login or an unsafe one."""


class ServerRemoved(Event):
    """A server was removed from the host."""

    server: str
    """Name of the server."""


class SessionEnded(Event):
    """A session ended, and its own connections are closed."""

    session: str
    """Id of the session."""
    reason: Literal["left", "idle"]
    """`left` when it was closed, `idle` after `session_ttl`."""


class CatalogChanged(Event):
    """The catalog changed."""

    revision: str
    """Revision of the new catalog."""
    added: tuple[str, ...] = ()
    """Local names of new tools, sorted."""
    removed: tuple[str, ...] = ()
    """Local names of removed tools, sorted."""
    changed: tuple[str, ...] = ()
    """Local names of tools with another definition, sorted."""
    resources: bool = False
    """Whether resources, templates, skills or tools of pages changed."""


class ToolSetAside(Event):
    """A tool differs from its approved definition and is hidden."""

    tool: str
    """`server/tool`, with the server's own name of the tool."""


class ResourceUpdated(Event):
    """A subscribed resource changed."""

    server: str
    """Name of the server."""
    uri: str
    """Address of the resource."""
    missed: bool = False
    """True after an interruption of the subscription, in which a change may have been missed."""
    session: str | None = None
    """Id of the session that the server belongs to; None for a shared server."""


class ConfigApplied(Event):
    """A new configuration was applied."""

    started: tuple[str, ...] = ()
    """Names of servers that are new."""
    stopped: tuple[str, ...] = ()
    """Names of servers that were removed."""
    restarted: tuple[str, ...] = ()
    """Names of servers whose configuration changed."""


class ConfigRejected(Event):
    """A configuration file changed and cannot be used. The last valid configuration stays."""

    problem: str
    """What is wrong with the file."""


class ApprovalAsked(Event):
    """A call waits for approval."""

    server: str
    """Name of the server."""
    tool: str
    """The server's own name of the tool."""
    session: str
    """Id of the session."""
    reason: str
    """The rule that requires approval."""


class CallDenied(Event):
    """A call was denied by the configuration, or was not approved."""

    server: str
    """Name of the server."""
    tool: str
    """The server's own name of the tool."""
    session: str
    """Id of the session."""
    reason: str
    """The rule or the answer that denied it."""


class CallStarted(Event):
    """A call started."""

    server: str
    """Name of the server."""
    tool: str
    """The server's own name of the tool."""
    session: str
    """Id of the session."""
    call: int = field(default=0, shown=False, compare=False)
    """Number of the call in this process: the same in both events of a call."""
    principal: str | None = field(default=None, shown=False, compare=False)
    """Authenticated user of the session; None if there is none."""
    script: str | None = field(default=None, shown=False, compare=False)
    """Id of the run of the script that makes the call; None if it is not made by a script."""


class CallFinished(Event):
    """A call ended with a result or an error."""

    server: str
    """Name of the server."""
    tool: str
    """The server's own name of the tool."""
    session: str
    """Id of the session."""
    duration: float
    """Seconds."""
    is_error: bool
    """Whether the call or the tool failed."""
    error: str | None = None
    """Class of the error when the tool itself did not answer: `CallTimeout`, `ConnectionLost` …"""
    call: int = field(default=0, shown=False, compare=False)
    """Number of the call in this process: the same in both events of a call."""
    principal: str | None = field(default=None, shown=False, compare=False)
    """Authenticated user of the session; None if there is none."""
    script: str | None = field(default=None, shown=False, compare=False)
    """Id of the run of the script that makes the call; None if it is not made by a script."""


class ScriptStarted(Event):
    """A script started."""

    script: str
    """Id of this run of the script."""
    session: str
    """Id of the session."""


class ScriptCalled(Event):
    """A call inside a script started or finished. It also has a `CallStarted` and a `CallFinished`."""

    script: str
    """Id of this run of the script."""
    session: str
    """Id of the session."""
    server: str
    """Name of the server."""
    tool: str
    """The server's own name of the tool."""
    number: int
    """Calls that the script has made."""
    state: Literal["started", "finished"]
    """Whether the call started or ended."""
    is_error: bool = False
    """Whether the call or the tool failed."""


class ScriptFinished(Event):
    """A script ended."""

    script: str
    """Id of this run of the script."""
    session: str
    """Id of the session."""
    calls: int
    """Calls that the script has made."""
    duration: float
    """Seconds."""
    is_error: bool
    """Whether the script failed or was stopped."""


class LoopLagged(Event):
    """Something blocked the event loop, so that no request was served. Servers are not the cause."""

    seconds: float
    """How long the event loop was blocked."""


def shown_session(session: str) -> str:
    """Return the id of a session as it is shown: the id of a gateway client is a credential."""
    return session if len(session) <= 16 else session[:8]


class EventsDropped(Event):
    """This listener was too slow: events before the next one were dropped."""

    count: int
    """Number of events that this listener missed."""
