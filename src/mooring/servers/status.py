"""State of one server, results of its connection attempts, and errors of the transport as mooring errors."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from mooring import concurrency
from mooring.config.logs import logger
from mooring.config.models import ServerConfig
from mooring.core import events
from mooring.core.breaker import Restarts, backoff
from mooring.core.eras import MODERN_CODES, era_of
from mooring.core.events import Event, StateChanged
from mooring.core.text import without_hidden
from mooring.core.types import CachedSnapshot, Era, ServerStatus, State
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
from mooring.servers.negotiate import Incompatible, Peer
from mooring.transport.message import WireError
from mooring.transport.open import CannotStart, Wire

if TYPE_CHECKING:
    from mooring.auth.credentials import Credentials
    from mooring.config.models import ServerConfig
    from mooring.core.redact import Redactor

log = logger("mooring.connection")


class Permanent(ConnectError):
    """A failure that retries cannot fix until the configuration changes or a caller requests a retry."""


class Flooding(ConnectError):
    """The server was disconnected because of a flood; calls do not reconnect it sooner."""


def leaf(problem: BaseException) -> BaseException:
    """Return the first exception inside nested groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem


def explain(
    problem: BaseException, config: ServerConfig, last_output: Sequence[str], redact: Redactor
) -> MooringError:
    """Return why a server is not connected, and what to do next."""
    found = _explained(problem, config, last_output)
    found.args = (redact(str(found)),)
    return found


def _explained(problem: BaseException, config: ServerConfig, last_output: Sequence[str]) -> MooringError:
    name = config.name
    if isinstance(problem, ConnectError):
        return problem
    if isinstance(problem, WireError):
        if problem.kind == "auth":
            return AuthNeeded(f"{name!r}: {problem}; check its credentials in `headers`", server=name)
        if problem.kind == "timeout":
            text = f"it did not list its tools within {config.list_timeout:g} s; raise `list_timeout`"
            return ConnectError("\n".join([text, *last_output]), server=name)
        return ConnectError(str(problem), server=name)
    if isinstance(problem, TimeoutError):
        waited = (
            f"no answer within {config.connect_timeout:g} s; "
            "raise `connect_timeout` if it is only slow to start"
        )
        return ConnectError("\n".join([waited, *last_output]), server=name)
    if isinstance(problem, CannotStart | Incompatible | ConfigError):
        return Permanent(str(problem), server=name)
    if isinstance(problem, OSError):
        return ConnectError(f"it could not be started: {problem.strerror or problem}", server=name)
    log.error("%s failed with an unexpected error", name, exc_info=problem)
    return ConnectError(f"unexpected {type(problem).__name__}: {problem}", server=name)


def call_error(
    fault: WireError, server: str, tool: str, elapsed: float, words: str | None, redact: Redactor
) -> CallError | AuthNeeded:
    """Return why a request to a connected server has no result."""
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
        # Without a status nothing was sent: the text says why, and a login may not help.
        advice = "" if fault.status is None else "; log in, then call again"
        return AuthNeeded(f"{server!r}: {fault}{advice}", server=server)
    if fault.kind == "timeout":
        return CallTimeout(
            f"{tool!r} of {server!r} did not respond within {elapsed:.3g} s and was cancelled; "
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


STABLE = 10.0
"""Seconds: a connection that lived longer did not fail at connecting, so the next attempt comes at once."""
TRIES = 3
"""Failed attempts to reconnect before waiting callers get the error."""
FALLBACK = (400, 404, 405, 415)
"""Statuses that mean "no Streamable HTTP here", so that legacy SSE is worth a try."""


class ConnectHistory:
    """History of connection attempts and their results. One attempt may start a child twice, once per era."""

    def __init__(self, known: CachedSnapshot | None) -> None:
        self.restarts = Restarts()
        self.era: Era | None = era_of(known.protocol if known else None)
        """The era of the last connection: a guess until the server has responded in this process."""
        self.seen = known.protocol if known else None
        """The newest protocol that the server has ever spoken."""
        self.guessed = self.era is not None
        self.first: Era = "modern"
        """Return the era to try first on a server that may speak both."""
        self._exits = False
        """Whether the child exited in both eras although it had read the request."""
        self._failures = 0
        self.flooding = False
        """Whether the last connection was cut because the server flooded it."""
        self._connected_before = False
        self.connects = 0
        """How often the server was connected."""
        self._failed_attempts = 0
        """Failed attempts since the server was last connected."""

    def opened(self) -> Callable[[], None]:
        """Record an open connection; call the returned function if it is closed because the server floods."""
        self.flooding = False
        return self._cut

    def _cut(self) -> None:
        self.flooding = True

    def connected(self, peer: Peer) -> None:
        """Record the negotiated protocol of a server that has been listed."""
        self.era, self.guessed, self._exits = peer.era, False, False
        self.seen = max(self.seen or "", peer.protocol)
        self._connected_before, self._failed_attempts = True, 0
        self.connects += 1

    def failed(self, *, full_wait: bool, waiting: bool) -> float:
        """Count a failed attempt; return the seconds to wait: 1, 2, 4, 8, 16, 30, each ± 20 %.

        Args:
        full_wait: False if a caller ended the wait before it; then the next wait is not longer.
            waiting: Whether callers wait. A server that was connected before is tried again for them at once.
        """
        self._failures = self._failures + 1 if full_wait or self.flooding else max(self._failures, 1)
        self._failed_attempts += 1
        if self.flooding:
            return backoff(self._failures, random.random())
        if waiting and self._connected_before and self._failed_attempts < TRIES:
            return self._guarded(0.0)
        delay = backoff(self._failures, random.random())
        return delay if full_wait else self._guarded(delay)

    def lost(self, lived: float, *, waiting: bool) -> float:
        """Count a connection that ended after `lived` seconds; return the seconds to wait."""
        self._failures = 0 if lived > STABLE else self._failures + 1
        return self._guarded(0.0 if waiting else backoff(self._failures - 1, random.random()))

    def _guarded(self, delay: float) -> float:
        """Return the wait after a start that callers requested, so that callers cannot drive a crash loop."""
        return max(delay, self.restarts.rest(concurrency.monotonic()))

    def another_way(self, left: list[Wire], problem: BaseException) -> bool:
        """Whether this attempt continues with another transport or era, because only the tried one may have
        failed. Removes the first of `left` if its transport was wrong."""
        if not isinstance(problem, WireError):
            return False
        if left[0] == "stdio" and problem.kind == "closed" and problem.outcome == "not sent":
            return False  # the child exited before it read anything: no other request would change that
        if self.guessed and problem.kind not in ("auth", "refused", "timeout"):
            self.era, self.guessed = None, False
            return True
        if left[0] == "stdio":
            return self._other_era(problem)
        if left[0] == "http" and len(left) > 1 and problem.status in FALLBACK:
            if problem.code in MODERN_CODES:
                return False  # it speaks Streamable HTTP and rejects the request for another reason
            left.pop(0)
            return True
        return False

    def _other_era(self, problem: WireError) -> bool:
        """Whether to start the child again in the other era: some servers exit on an unknown request.

        A child that exits in both eras is started once per attempt from then on, in alternate eras.
        """
        if self.first == "legacy":
            # Some cannot list all their tools in the handshake era: start those again in the other.
            again = self.era is None and problem.kind == "answer"
            self.era = "modern" if again else None
            return again
        if problem.kind != "closed":
            again = self._exits and self.era == "legacy"
            self.era, self._exits = None, False
            return again
        if self._exits:
            self.era = None if self.era == "legacy" else "legacy"
            return False
        again = self.era is None
        self.era, self._exits = ("legacy", False) if again else (None, True)
        return again


_ALLOWED: Mapping[State, tuple[State, ...]] = {
    "disabled": (),
    "pending": ("connected", "failed", "needs-auth", "pending"),
    "connected": ("pending", "failed"),
    "failed": ("pending", "failed"),
    "needs-auth": ("pending",),
}


class StateReporter:
    """Base of the supervisor: the state of one server, with an event and a log line for each change."""

    def __init__(self, config: ServerConfig, *, enabled: bool, emit: Callable[[Event], None]) -> None:
        self.config = config
        self.state: State = "pending" if enabled else "disabled"
        self.problem: MooringError | None = None
        self.access: Credentials | None = None
        """Credentials for an HTTP server; None for stdio servers and servers with their own Authorization."""
        self.session: str | None = None
        """The session that this connection belongs to; None for the shared one."""
        self.private = False
        """Whether another connection has the state of the server."""
        self.settled = asyncio.Event()
        """Set when the first attempt to connect has succeeded or failed."""
        self._emit = emit
        self._warned: set[str] = set()
        """Causes that were logged as warnings since the server last worked."""

    def _to(self, state: State, problem: MooringError | None) -> None:
        """Change the state: the only place where that happens."""
        old = self.state
        if state not in _ALLOWED[old]:
            raise AssertionError(f"{self.config.name}: {old} -> {state}")
        self.state, self.problem = state, problem
        if state != "pending":
            self.settled.set()
        if state != old:
            reason = str(problem) if problem else None
            log.info("%s: %s -> %s%s", self.config.name, old, state, f" ({reason})" if reason else "")
            self._emit(StateChanged(server=self.config.name, old=old, new=state, reason=reason))
            if state == "needs-auth":
                self._note_auth(reason or "")

    def _note_auth(self, reason: str) -> None:
        login = self.access is not None and self.access.wanted is not None
        self._emit(events.LoginNeeded(server=self.config.name, reason=reason, login=login))

    def _warn_unavailable(self, state: State, problem: MooringError) -> None:
        """Log why the server cannot be used and what to do about it."""
        name, reason = self.config.name, str(problem)
        known = ServerStatus(name=name, state=state, transport=self.config.transport, error=reason)
        plain, advice = _advised(self.config, known)
        if self.private:
            log.debug("a further connection of server %r cannot be opened: %s", name, plain)
            return
        self._warn_once(f"server {name!r} is not available: {plain}", advice)

    def _warn_once(self, text: str, advice: str | None = None) -> None:
        """Log a warning once per cause; repeated failures of the same kind go to the debug log."""
        cause = re.sub(r"\d+", "", text.split("\n", 1)[0])
        first = cause not in self._warned and self.session is None
        self._warned.add(cause)
        (log.warning if first else log.debug)("%s%s", text, f"\nWhat to do: {advice}" if advice else "")


def _advised(config: ServerConfig, status: ServerStatus) -> tuple[str, str | None]:
    """Return why the server cannot be used, and what to do unless that text says it."""
    reason = (status.error or "").removeprefix(f"{config.name!r}: ")
    try:
        from mooring.servers.diagnosis import diagnose, without_advice
    except OSError:  # no file descriptor is free, which may also be why the server failed
        return reason, None
    found = diagnose(config, status)
    if found is None or f"`mooring login {config.name}`" in reason:
        return reason, None
    return without_advice(reason, config.name), found.next
