"""Every error that mooring raises on purpose.

    MooringError
    ├── ConfigError            .file .place: where it is written, what was expected, what to do
    ├── UnknownTool            .suggestions: the nearest names there are; .server .state: who would own it
    ├── UnknownServer          .suggestions
    ├── UnknownResource        .suggestions
    │   └── AmbiguousResource  .suggestions: the servers that offer it
    ├── UnknownPrompt          .suggestions
    ├── ConnectError           .server .attempts: the server could not be reached
    ├── AuthNeeded             .server .url
    ├── NotTrusted             .server .file: the file that names it was merely found, and never approved
    ├── PolicyDenied           .server .tool .reason
    │   └── ToolChanged
    └── CallError              .server .tool .elapsed .outcome
        ├── CallTimeout
        ├── ConnectionLost
        ├── CircuitOpen        .retry_after
        ├── Overloaded         the server's queue is full
        └── ServerError        .code .data: the server answered with a protocol error

`outcome` tells whether the tool may have run: "not sent" (it surely did not), "failed" (the server
says so), "unknown" (the connection or the time ran out after sending).
Messages are written for a model or a person to read: they name the thing and the next step, and
never hold a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

__all__ = [
    "AmbiguousResource",
    "AuthNeeded",
    "CallError",
    "CallTimeout",
    "CircuitOpen",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "MooringError",
    "NotTrusted",
    "Outcome",
    "Overloaded",
    "PolicyDenied",
    "ServerError",
    "ToolChanged",
    "UnknownPrompt",
    "UnknownResource",
    "UnknownServer",
    "UnknownTool",
]

Outcome = Literal["not sent", "failed", "unknown"]


class MooringError(Exception):
    """Root of the tree: catch this to catch everything that mooring raises on purpose."""


class ConfigError(MooringError):
    """A configuration cannot be used as written."""

    def __init__(self, problem: str, *, file: str | None = None, place: str | None = None) -> None:
        super().__init__(": ".join(part for part in (file, place, problem) if part))
        self.problem = problem
        self.file = file
        """The file as the user would name it; None for configuration made in Python."""
        self.place = place
        """Where in the file: `servers.github.args`, or `line 3`."""


class _Unknown(MooringError):
    kind = "name"

    def __init__(self, name: str, suggestions: Sequence[str] = (), *, hint: str = "") -> None:
        near = f" Did you mean {' or '.join(repr(s) for s in suggestions)}?" if suggestions else ""
        super().__init__(f"There is no {self.kind} {name!r}.{near}{' ' + hint if hint else ''}")
        self.name = name
        self.suggestions = tuple(suggestions)


class UnknownTool(_Unknown):
    kind = "tool"

    def __init__(
        self,
        name: str,
        suggestions: Sequence[str] = (),
        *,
        hint: str = "",
        server: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(name, suggestions, hint=hint)
        self.server = server
        """The server that would own the name and is not connected, if there is one."""
        self.state = state
        """Its state: `needs-auth`, `failed`, `pending` or `disabled`."""


class UnknownServer(_Unknown):
    kind = "server"


class UnknownResource(_Unknown):
    kind = "resource"


class AmbiguousResource(UnknownResource):
    kind = "single server for"


class UnknownPrompt(_Unknown):
    kind = "prompt"


class ConnectError(MooringError):
    """A server could not be started or reached."""

    def __init__(self, message: str, *, server: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.server = server
        self.attempts = attempts


class AuthNeeded(MooringError):
    """The server wants a login before it answers."""

    def __init__(self, message: str, *, server: str, url: str | None = None) -> None:
        super().__init__(message)
        self.server = server
        self.url = url


class NotTrusted(MooringError):
    """A server is not started, because nobody on this machine has approved the file that names it."""

    def __init__(self, message: str, *, server: str, file: str | None = None) -> None:
        super().__init__(message)
        self.server = server
        self.file = file


class PolicyDenied(MooringError):
    """Configuration or the user forbids this call."""

    def __init__(self, message: str, *, server: str, tool: str, reason: str) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.reason = reason


class ToolChanged(PolicyDenied):
    """The tool is not what was approved. The message quotes nothing of the new definition, since a model
    may read it; `details` shows the whole difference to a person."""

    def __init__(self, message: str, *, server: str, tool: str, reason: str, details: str = "") -> None:
        super().__init__(message, server=server, tool=tool, reason=reason)
        self.details = details


class CallError(MooringError):
    """A call did not bring a result of the tool."""

    def __init__(
        self, message: str, *, server: str, tool: str, elapsed: float = 0.0, outcome: Outcome = "failed"
    ) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.elapsed = elapsed
        self.outcome: Outcome = outcome


class CallTimeout(CallError):
    """The answer did not come in time; the call was cancelled on the wire."""


class ConnectionLost(CallError):
    """The connection ended before the answer came, or could not be had at all."""


class CircuitOpen(CallError):
    """The server failed too often and is left alone for a while."""

    def __init__(
        self, message: str, *, server: str, tool: str, elapsed: float = 0.0, retry_after: float
    ) -> None:
        super().__init__(message, server=server, tool=tool, elapsed=elapsed, outcome="not sent")
        self.retry_after = retry_after


class Overloaded(CallError):
    """The call queue of the server is full (`max_queue`)."""


class ServerError(CallError):
    """The server answered the request with an error of the protocol, or of HTTP."""

    def __init__(
        self,
        message: str,
        *,
        server: str,
        tool: str,
        elapsed: float = 0.0,
        outcome: Outcome = "failed",
        code: int,
        data: Any = None,
        said: str = "",
    ) -> None:
        super().__init__(message, server=server, tool=tool, elapsed=elapsed, outcome=outcome)
        self.code = code
        self.data = data
        self.said = said
        """The server's own words."""
