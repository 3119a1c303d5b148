"""What went wrong, in the words of our error tree: the one place where faults of the wire and of the
system become errors that people and models read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from mooring.config.logs import logger
from mooring.core.text import without_hidden
from mooring.errors import (
    AuthNeeded,
    CallError,
    CallTimeout,
    ConfigError,
    ConnectError,
    ConnectionLost,
    MooringError,
    ServerError,
)
from mooring.net.message import WireError
from mooring.net.negotiate import Incompatible
from mooring.net.open import CannotStart

if TYPE_CHECKING:
    from mooring.core.config import ServerConfig
    from mooring.core.redact import Redactor

log = logger("mooring.connection")


class Permanent(ConnectError):
    """Trying again is useless until the configuration changes or somebody asks for it."""


class Flooding(ConnectError):
    """The server was cut off because of what it sent unasked: calls do not make it come back sooner."""


def leaf(problem: BaseException) -> BaseException:
    """The first real exception inside nested groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem


def explain(
    problem: BaseException, config: ServerConfig, last_words: Sequence[str], redact: Redactor
) -> MooringError:
    """Why a server is not connected, and what to do next."""
    found = _explained(problem, config, last_words)
    found.args = (redact(str(found)),)
    return found


def _explained(problem: BaseException, config: ServerConfig, last_words: Sequence[str]) -> MooringError:
    name = config.name
    if isinstance(problem, ConnectError):
        return problem
    if isinstance(problem, WireError):
        if problem.kind == "auth":
            return AuthNeeded(f"{name!r}: {problem}; look at its credentials in `headers`", server=name)
        if problem.kind == "timeout":
            text = f"it did not list its tools within {config.list_timeout:g} s; raise `list_timeout`"
            return ConnectError("\n".join([text, *last_words]), server=name)
        return ConnectError(str(problem), server=name)
    if isinstance(problem, TimeoutError):
        patience = (
            f"no answer within {config.connect_timeout:g} s; "
            "raise `connect_timeout` if it is only slow to start"
        )
        return ConnectError("\n".join([patience, *last_words]), server=name)
    if isinstance(problem, CannotStart | Incompatible | ConfigError):
        return Permanent(str(problem), server=name)
    if isinstance(problem, OSError):
        return ConnectError(f"it could not be started: {problem.strerror or problem}", server=name)
    log.error("%s failed in a way that mooring did not foresee", name, exc_info=problem)
    return ConnectError(f"unexpected {type(problem).__name__}: {problem}", server=name)


def call_error(
    fault: WireError, server: str, tool: str, elapsed: float, words: str | None, redact: Redactor
) -> CallError | AuthNeeded:
    """Why a request to a connected server brought no result."""
    found = _call_error(fault, server, tool, elapsed, words)
    found.args = (redact(str(found)),)
    if isinstance(found, ServerError):
        found.data = redact.within(found.data)
        found.said = redact(found.said)
    return found


def _call_error(
    fault: WireError, server: str, tool: str, elapsed: float, words: str | None
) -> CallError | AuthNeeded:
    if fault.kind == "auth":
        return AuthNeeded(f"{server!r}: {fault}; log in, then call again", server=server)
    if fault.kind == "timeout":
        return CallTimeout(
            f"{tool!r} of {server!r} gave no answer within {elapsed:.3g} s and was cancelled; "
            "it may or may not have taken effect",
            server=server,
            tool=tool,
            elapsed=elapsed,
            outcome="unknown",
        )
    if fault.kind in ("closed", "refused", "session"):
        doubt = "it may or may not have taken effect" if fault.outcome == "unknown" else "it was not sent"
        return ConnectionLost(
            f"the call of {tool!r} failed, {doubt}: {server!r} is not reachable: {words or fault}",
            server=server,
            tool=tool,
            elapsed=elapsed,
            outcome=fault.outcome,
        )
    return ServerError(
        f"{server!r} answered {tool!r} with an error: {without_hidden(str(fault))}",
        server=server,
        tool=tool,
        elapsed=elapsed,
        outcome=fault.outcome,
        code=fault.code,
        data=fault.data,
        said=str(fault) if fault.kind == "answer" else "",
    )
