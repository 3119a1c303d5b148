"""The errors that mooring raises.

    MooringError
    ├── ConfigError            .file .place: where it is written, what was expected, what to do
    ├── UnknownTool            .suggestions: similar names; .server .state: the server that may have it
    ├── UnknownServer          .suggestions
    ├── UnknownResource        .suggestions
    │   └── AmbiguousResource  .suggestions: the servers that have it
    ├── UnknownPrompt          .suggestions
    ├── ConnectError           .server: the server could not be reached
    ├── AuthNeeded             .server .url
    ├── NotTrusted             .server .file: the project file that configures it is not approved
    ├── PolicyDenied           .server .tool .reason
    │   └── ToolChanged
    ├── GuardDenied            .reason: raised by guards; callers get PolicyDenied
    └── CallError              .server .tool .elapsed .outcome
        ├── CallTimeout
        ├── ConnectionLost
        ├── CircuitOpen        .retry_after
        ├── Overloaded         the server's queue is full
        └── ServerError        .code .data: the server answered with a protocol error

`outcome` says whether the tool may have run: "not sent" (it did not), "failed" (the server reported an
error), "unknown" (the connection ended or the time ran out after sending).
Messages are written for models and people: they name the thing and the next step, and never contain a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

__all__ = [
    "AmbiguousResource",
    "AuthNeeded",
    "CallError",
    "CallTimeout",
    "CircuitOpen",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "GuardDenied",
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
    """Base class of the errors that mooring raises."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ConfigError(MooringError):
    """The configuration cannot be used as written.

    Attributes:
        problem: What is wrong and what to do, without the place.
        file: The file, as in the configuration or on the command line; None for configuration made in Python.
        place: Where in the file: `servers.github.args`, or `line 3`.
    """

    def __init__(self, problem: str, *, file: str | None = None, place: str | None = None) -> None:
        super().__init__(": ".join(part for part in (file, place, problem) if part))
        self.problem = problem
        self.file = file
        self.place = place


class _Unknown(MooringError):
    kind = "name"

    def __init__(self, name: str, suggestions: Sequence[str] = (), *, hint: str = "") -> None:
        near = f" Did you mean {' or '.join(repr(s) for s in suggestions)}?" if suggestions else ""
        super().__init__(f"There is no {self.kind} {name!r}.{near}{' ' + hint if hint else ''}")
        self.name = name
        self.suggestions = tuple(suggestions)


class _UnknownEntry(_Unknown):
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
        self.state = state


class UnknownTool(_UnknownEntry):
    """No tool has this name.

    Attributes:
        name: The name that was asked for.
        suggestions: Similar names that exist, the best first.
        server: The server that may have the tool and is not connected, if there is one.
        state: The state of that server: `needs-auth`, `failed`, `pending` or `disabled`.
    """

    kind = "tool"


class UnknownServer(_Unknown):
    """No server has this name.

    Attributes:
        name: The name that was asked for.
        suggestions: Similar names that exist, the best first.
    """

    kind = "server"


class UnknownResource(_UnknownEntry):
    """No server lists this resource.

    Attributes:
        name: The URI that was asked for.
        suggestions: Similar URIs that exist, the best first.
        server: The first server that may have the resource and is not connected, if there is one.
        state: The state of that server: `needs-auth`, `failed`, `pending` or `disabled`.
    """

    kind = "resource"


class AmbiguousResource(UnknownResource):
    """Several servers have this resource.

    Attributes:
        name: The URI that was asked for.
        suggestions: The servers that have it.
        server: None.
        state: None.
    """

    kind = "single server for"


class UnknownPrompt(_Unknown):
    """No prompt has this name.

    Attributes:
        name: The name that was asked for.
        suggestions: Similar names that exist, the best first.
    """

    kind = "prompt"


class ConnectError(MooringError):
    """A server could not be started or reached.

    Attributes:
        server: Its name in the configuration.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class AuthNeeded(MooringError):
    """The server requires a login.

    Attributes:
        server: Its name in the configuration.
        url: The address to open for the login, when it is known.
        login: Whether a login in a browser may help.
    """

    def __init__(self, message: str, *, server: str, url: str | None = None, login: bool = True) -> None:
        super().__init__(message)
        self.server = server
        self.url = url
        self.login = login


class NotTrusted(MooringError):
    """A server is not started because the project file that configures it is not approved on this machine.

    Attributes:
        server: Its name in the configuration.
        file: The file that configures it.
    """

    def __init__(self, message: str, *, server: str, file: str | None = None) -> None:
        super().__init__(message)
        self.server = server
        self.file = file


TELL_USER = "Do not try again; tell the user what you wanted to do."
"""Advice to a model, at the end of the message of a denied call."""


class PolicyDenied(MooringError):
    """The configuration or the user denied this call.

    Attributes:
        server: The server of the tool.
        tool: The server's own name of the tool.
        reason: The rule that denied the call.
        called: Whether the call was made, and a guard withheld its result.
    """

    def __init__(self, message: str, *, server: str, tool: str, reason: str, called: bool = False) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.reason = reason
        self.called = called


class GuardDenied(MooringError):
    """Raised by a guard to deny a call or to withhold its result.

    Attributes:
        reason: For the caller; without values of the arguments.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ToolChanged(PolicyDenied):
    """The definition of the tool changed since it was approved.

    The message quotes nothing of the new definition, because a model may read it.

    Attributes:
        server: The server of the tool.
        tool: The server's own name of the tool.
        reason: The rule that denied the call.
        details: The whole difference, for a person to read.
    """

    def __init__(self, message: str, *, server: str, tool: str, reason: str, details: str = "") -> None:
        super().__init__(message, server=server, tool=tool, reason=reason)
        self.details = details


class CallError(MooringError):
    """A call did not bring a result of the tool.

    Attributes:
        server: The server of the tool.
        tool: The server's own name of the tool.
        elapsed: Seconds from the start of the call to the error.
        outcome: Whether the tool may have run: `not sent`, `failed` or `unknown`.
    """

    def __init__(
        self, message: str, *, server: str, tool: str, elapsed: float = 0.0, outcome: Outcome = "failed"
    ) -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.elapsed = elapsed
        self.outcome: Outcome = outcome


class CallTimeout(CallError):
    """The call timed out. A cancellation was sent to the server."""


class ConnectionLost(CallError):
    """The connection ended before the response arrived, or could not be opened."""


class CircuitOpen(CallError):
    """The server failed too often and is not called for a while.

    Attributes:
        retry_after: Seconds until the next call is tried.
    """

    def __init__(
        self, message: str, *, server: str, tool: str, elapsed: float = 0.0, retry_after: float
    ) -> None:
        super().__init__(message, server=server, tool=tool, elapsed=elapsed, outcome="not sent")
        self.retry_after = retry_after


class Overloaded(CallError):
    """The call queue of the server is full (`max_queue`)."""


class ServerError(CallError):
    """The server answered with a JSON-RPC error or an HTTP error.

    Attributes:
        code: The JSON-RPC error code.
        data: The `data` of the JSON-RPC error.
        said: The server's own message.
    """

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


def raise_alone(problem: BaseException) -> NoReturn:
    """Raise `problem` with an empty `__context__` and `__cause__`.

    `raise ... from None` hides the handled exception from tracebacks, but keeps it in `__context__`. It may
    quote a secret: text of a server, a request with its headers, the bytes of a file. Use this function in an
    `except` block when the handled exception is not redacted.
    """
    try:
        raise problem
    finally:
        problem.__context__ = problem.__cause__ = None


_COMMAND = r"`(mooring [^`\n]{1,200})`"


def next_command(message: str, problem: BaseException | None) -> str | None:
    """Return the command to try next: the one in the message, or the usual one for this kind of error."""
    if found := re.search(_COMMAND, message):
        return found[1]
    match problem:
        case AuthNeeded():
            return f"mooring login {problem.server}" if problem.login else "mooring doctor"
        case NotTrusted():
            return f"mooring trust {problem.file}" if problem.file else "mooring trust"
        case ToolChanged():
            return f"mooring approve {problem.server}/{problem.tool}"
        case UnknownServer():
            return "mooring list"
        case UnknownTool():
            return "mooring tools"
        case UnknownResource():
            return "mooring resources"
        case UnknownPrompt():
            return "mooring prompts"
        case ConfigError() | ConnectError() | CallError():
            return "mooring doctor"
        case _:
            return None
