"""One request to a server: concurrency limit, breaker, and retry where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from mooring import concurrency
from mooring.core.apps import RESERVED
from mooring.core.breaker import Breaker, BreakerState
from mooring.core.types import EMPTY
from mooring.errors import (
    AuthNeeded,
    CallError,
    CallTimeout,
    CircuitOpen,
    MooringError,
    NotTrusted,
    Overloaded,
    PolicyDenied,
    raise_alone,
)
from mooring.servers.active import ActiveConnection
from mooring.servers.status import call_error
from mooring.servers.supervisor import Supervisor
from mooring.transport.limits import Progress
from mooring.transport.message import WireError


class RelistLimit:
    """A token bucket: `most` at once, and one more every `every` seconds."""

    def __init__(self, most: int, every: float) -> None:
        self._most, self._every = most, every
        self._left, self._since = float(most), concurrency.monotonic()

    def take(self) -> bool:
        """Take one token; return False if none is left."""
        now = concurrency.monotonic()
        self._left = min(self._left + (now - self._since) / self._every, float(self._most))
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class QueueFull(Exception):
    """The queue has no room for another request."""


class ConcurrencyLimiter:
    """Permits for concurrent requests, granted in the order of arrival.

    The limits are arguments of each call, because a reload may change them while requests are running.
    """

    def __init__(self) -> None:
        self.under_way = 0
        """Permits that are held."""
        self._queue: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def take(self, limit: int | None) -> bool:
        """Take a permit if one is free and no request is waiting for it. Give it back with `leave()`."""
        if limit is not None and (self.under_way >= limit or self._queue):
            return False
        self.under_way += 1
        return True

    async def enter(self, limit: int | None, max_queue: int, timeout: float) -> None:
        """Take a permit, waiting for it in the queue for up to `timeout` seconds.

        Raises:
            QueueFull: the queue already holds `max_queue` requests.
            TimeoutError: no permit became free in time.
        """
        if self.take(limit):
            return
        if len(self._queue) >= max_queue:
            raise QueueFull
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        self._grant(limit)
        try:
            async with asyncio.timeout(timeout):
                await turn
        except BaseException:
            # The permit may have been granted in the same turn of the loop in which the wait ended.
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self.leave(limit)
            raise

    def leave(self, limit: int | None) -> None:
        """Give a permit back; the next request in the queue gets it."""
        self.under_way -= 1
        self._grant(limit)

    def _grant(self, limit: int | None) -> None:
        while self._queue and (limit is None or self.under_way < limit):
            turn = next(iter(self._queue))
            del self._queue[turn]
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)


shared_gate: Callable[[str], ConcurrencyLimiter] | None = None
"""Returns the limiter of a server that several processes share; None: each process counts for itself."""


def _new_gate(supervisor: Supervisor) -> ConcurrencyLimiter:
    if shared_gate is None or supervisor.session is not None:
        return ConcurrencyLimiter()
    return shared_gate(supervisor.config.name)


MAX_RETRY_AFTER = 30.0
HEALTHY = ("answer", "auth")
"""Errors that do not count against the transport: the server has responded."""
FOR_PAGE: ContextVar[bool] = ContextVar("mooring_for_page", default=False)
"""Whether a call is made for a page of the server (MCP Apps)."""
GUARDED = frozenset(
    (
        *("tools/call", "prompts/get", "resources/read", "completion/complete"),
        *("skills/get", "resources/directory/read"),
    )
)
"""Requests that are compared with the lock right before they are sent."""
RESENT = ("closed", "session", "refused")


class RequestSender:
    """Sends requests, each in its caller's task, through the breaker and the limit of one server."""

    def __init__(self, supervisor: Supervisor, gate: ConcurrencyLimiter | None = None) -> None:
        self.supervisor = supervisor
        self._breaker = Breaker()
        self._gate = gate or _new_gate(supervisor)
        self._known: MooringError | None = None
        """Last reason why there was no connection."""
        self._under_way = 0
        self._idle = asyncio.Event()

    @property
    def _name(self) -> str:
        return self.supervisor.config.name

    @property
    def gate(self) -> ConcurrencyLimiter:
        """The limit of concurrent calls at the server."""
        return self._gate

    def breaker(self, now: float) -> BreakerState:
        """State of the circuit breaker."""
        return self._breaker.state(now)

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        about: str,
        end: float,
        *,
        idle: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
        again: bool = False,
    ) -> dict[str, Any]:
        """Return the raw result of one request, which ends at `end`; errors name `about`.

        Raises:
            CallError, AuthNeeded: There is no result.
        """
        started = sent = concurrency.monotonic()
        probe = self._admitted(about, started)
        counted = False
        self._under_way += 1
        try:
            if not self._gate.take(self.supervisor.config.max_concurrency):
                await self._turn(about, end - started)
            try:
                live = self.supervisor.live or await self.live(end)
                if self.supervisor.guard is not None and method in GUARDED:
                    live = await self._guarded(method, params, about, end)
                if self.supervisor.reserved:
                    self._check_visibility(method, params)
                sent = concurrency.monotonic()
                left = max(end - sent, 0.0)
                if self.supervisor.lease is not None:
                    self._check_lease(about)
                try:
                    result = await live.ask(
                        method, params, timeout=left, idle=idle, on_progress=on_progress, meta=meta
                    )
                except WireError as fault:
                    if not await self._repeatable(fault, live, left, again):
                        raise
                    live = self.supervisor.live or await self.live(end)
                    if self.supervisor.guard is not None and method in GUARDED:
                        live = await self._guarded(method, params, about, end)
                    if self.supervisor.reserved:
                        self._check_visibility(method, params)
                    sent = concurrency.monotonic()
                    left = max(end - sent, 0.0)
                    if self.supervisor.lease is not None:
                        self._check_lease(about)
                    result = await self._last(live, method, params, left, idle, on_progress, meta)
                self._breaker.succeeded()
                self.supervisor.attempts.restarts.clear()
                counted = True
                return result
            except WireError as fault:
                counted = self._count_fault(fault, sent)
                elapsed, words = concurrency.monotonic() - started, fault.failure_reason
                server, redact = self.supervisor.config.name, self.supervisor.redact
                raise_alone(call_error(fault, server, about, elapsed, words, redact))
            finally:
                self._gate.leave(self.supervisor.config.max_concurrency)
        finally:
            self._under_way -= 1
            if not self._under_way and not self._idle.is_set():
                self._idle.set()
            if probe and not counted:
                self._breaker.abandoned()

    def _check_visibility(self, method: str, params: Mapping[str, Any]) -> None:
        """Refuse a call of a tool that only pages may call. The catalog may have shown it: an old lock or an
        older listing does not say who may call a tool."""
        if method != "tools/call" or FOR_PAGE.get():
            return
        if (tool := params["name"]) in self.supervisor.reserved:
            text = f"{tool!r} is not called: {RESERVED}"
            raise PolicyDenied(text, server=self._name, tool=tool, reason=RESERVED)

    def _check_lease(self, about: str) -> None:
        """Refuse a request to a server that this node may not use any more."""
        lease = self.supervisor.lease
        if lease is not None and (problem := lease.problem()) is not None:
            raise CallError(
                f"{about!r} was not sent: {problem}", server=self._name, tool=about, outcome="not sent"
            )

    async def idle(self) -> None:
        """Wait until no request is running."""
        self._idle.clear()
        if self._under_way and self.supervisor.live is not None:
            await self._idle.wait()

    async def live(self, end: float) -> ActiveConnection:
        """Return the live connection; wait for it until `end`.

        Raises:
            WireError, AuthNeeded, NotTrusted: There is no connection.
        """
        try:
            return await self.supervisor.connected(end - concurrency.monotonic())
        except (AuthNeeded, NotTrusted):
            raise
        except MooringError as problem:
            fault = WireError(str(problem), kind="refused", outcome="not sent")
            # A failed connection counts once, for any number of waiting callers. A caller that could not wait
            # for it says nothing about the server: the attempt goes on, and has its own timeout.
            fault.news = problem is not self._known and concurrency.monotonic() < end
            self._known = problem
            raise fault from problem

    async def _guarded(
        self, method: str, params: Mapping[str, Any], about: str, end: float
    ) -> ActiveConnection:
        """Return the live connection when its lists are up to date and the lock allows the request.

        An HTTP server may have been restarted since it was listed, unless a connection has been open all the
        time: it is listed again.

        Raises:
            ToolChanged: the request is for something that differs from its approved definition.
            CallError: the server may have changed and then could not be listed.
            WireError: there is no connection.
        """
        supervisor = self.supervisor
        if supervisor.live is not None and supervisor.freshness and not await supervisor.freshness.unbroken():
            supervisor.lists.mark_dirty()
        if supervisor.lists.outdated:
            listed = supervisor.live
            try:
                async with asyncio.timeout(end - concurrency.monotonic()):
                    await supervisor.lists.settle()
            except (MooringError, TimeoutError) as problem:
                reason = "not in time" if isinstance(problem, TimeoutError) else str(problem)
                if supervisor.live is listed or isinstance(problem, TimeoutError):
                    raise CallError(
                        f"{about!r} was not sent: server {self._name!r} may have changed, and what it offers "
                        f"now could not be compared with the lock: {reason}",
                        server=self._name,
                        tool=about,
                        outcome="not sent",
                    ) from None
        live = self.supervisor.live or await self.live(end)
        if (
            self.supervisor.guard is not None
            and (problem := self.supervisor.guard(method, params)) is not None
        ):
            raise problem
        return live

    async def _repeatable(
        self, fault: WireError, live: ActiveConnection, left: float | None, again: bool
    ) -> bool:
        """Whether to send a request again: the server certainly did not act on it or the tool is idempotent,
        and time is left (None: no further attempt). If not, the reason why the transport was closed is added
        to the fault."""
        if fault.kind in ("session", "refused", "auth") and fault.status != 403:
            live.channel.mark_closed(str(fault))  # a new connection shows the cause
        elif fault.kind == "closed" and live.channel.closed_reason is None:
            live.channel.on_gap()  # it may have restarted, and a server without sessions shows no sign
        if left is not None and await self._worth_repeating(fault, again, left):
            return True
        if live.channel.closed_reason is not None:
            fault.news, live.loss_reported = not live.loss_reported, True
            fault.failure_reason = await live.channel.failure_reason()
        return False

    async def _last(
        self,
        live: ActiveConnection,
        method: str,
        params: dict[str, Any],
        left: float,
        idle: float | None,
        on_progress: Progress | None,
        meta: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the result of the second and last attempt."""
        try:
            return await live.ask(method, params, timeout=left, idle=idle, on_progress=on_progress, meta=meta)
        except WireError as fault:
            await self._repeatable(fault, live, None, again=False)
            raise

    def _admitted(self, about: str, now: float) -> bool:
        """Pass the request through the breaker; return whether it is the probe.

        Raises:
            CircuitOpen: The breaker is open.
        """
        probe = self._breaker.state(now) != "closed"
        if not self._breaker.admit(now):
            wait = self._breaker.retry_after(now)
            raise CircuitOpen(
                f"{about!r} was not sent: {self._name!r} failed {Breaker.THRESHOLD} times in a row "
                f"(circuit breaker open); next attempt in {wait:.0f} s",
                server=self._name,
                tool=about,
                retry_after=wait,
            )
        return probe

    async def _turn(self, about: str, timeout: float) -> None:
        """Wait in the queue until the server may get another request.

        Raises:
            Overloaded: the queue is full.
            CallTimeout: no permit became free within `timeout`.
        """
        config, name = self.supervisor.config, self._name
        try:
            await self._gate.enter(config.max_concurrency, config.max_queue, timeout)
        except QueueFull:
            problem = (
                f"{about!r} was not sent. The call queue of server {name!r} is full "
                f"(max_queue={config.max_queue}). Try again later, or raise `max_concurrency` or `max_queue`."
            )
            raise Overloaded(problem, server=name, tool=about, outcome="not sent") from None
        except TimeoutError:
            problem = (
                f"{about!r} was not sent. It timed out after {timeout:.3g} s in the call queue of server "
                f"{name!r} (max_concurrency={config.max_concurrency}). Try again later, or raise "
                "`max_concurrency`."
            )
            raise CallTimeout(problem, server=name, tool=about, elapsed=timeout, outcome="not sent") from None

    def _count_fault(self, fault: WireError, sent: float) -> bool:
        if not fault.news:
            return False  # one lost connection counts as one failure, for any number of calls
        if fault.kind == "timeout":
            limit, idle = self.supervisor.config.call_limits(None)
            return self._breaker.timed_out(sent, concurrency.monotonic(), min(limit, idle or limit))
        if fault.kind in HEALTHY:
            self._breaker.succeeded()
        elif fault.kind != "status" or (fault.status or 0) >= 500:
            self._breaker.failed(concurrency.monotonic())
        else:
            return False
        return True

    async def _worth_repeating(self, fault: WireError, again: bool, left: float) -> bool:
        if fault.kind in RESENT:
            return again or fault.outcome == "not sent"
        wait = fault.retry_after
        if fault.status in (429, 503) and wait is not None and wait <= MAX_RETRY_AFTER and wait < left:
            await asyncio.sleep(wait)
            return True
        return False
