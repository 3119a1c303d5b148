"""The supervisor of one server: the only task that opens and closes its connection."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from mooring import concurrency
from mooring.config.logs import logger
from mooring.config.models import ServerConfig, Target
from mooring.core.apps import reserved_names
from mooring.core.breaker import Restarts
from mooring.core.events import Event, ServerConnected, ServerLost
from mooring.core.redact import Redactor
from mooring.core.types import CachedSnapshot, Snapshot
from mooring.errors import AuthNeeded, ConnectError, MooringError
from mooring.servers.active import ActiveConnection, Guard, compared, set_level
from mooring.servers.elicitation import ElicitationHandler
from mooring.servers.freshness import Freshness, Relister, differs
from mooring.servers.negotiate import doubted, first_era, negotiate, refuse_older
from mooring.servers.notifications import NotificationRouter
from mooring.servers.start_queue import ConnectTimer, StartLimit, StartSlot, Urgency
from mooring.servers.state import Elsewhere, Place, ServerLease, under_lease
from mooring.servers.status import (
    STABLE,
    ConnectHistory,
    Flooding,
    Permanent,
    StateReporter,
    call_error,
    explain,
    leaf,
)
from mooring.transport.base import Transport
from mooring.transport.forwarding import FORWARDED
from mooring.transport.message import WireError
from mooring.transport.open import Wire, open_channel, wires
from mooring.transport.pool import HttpPool

if TYPE_CHECKING:
    from mooring.auth.subject import Subject

log = logger("mooring.connection")


class _Again(Exception):
    """This attempt continues with another transport or era."""


class Supervisor(StateReporter):
    """Keeps a server connected in a loop: connect, list, publish, keep the lists fresh, wait after a failure.
    All other code only uses the `live` connection."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        enabled: bool,
        known: CachedSnapshot | None,
        resolve: Callable[[ServerConfig], Awaitable[Target]],
        redact: Redactor,
        pool: HttpPool,
        publish: Callable[[Snapshot], Guard | None],
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        questions: ElicitationHandler,
        starts: StartLimit,
    ) -> None:
        super().__init__(config, enabled=enabled, emit=emit)
        self.publish = publish
        self.extend: Callable[[Snapshot], Snapshot] = lambda listed: listed
        """Adds the tools that only another process of the server lists."""
        self.guard: Guard | None = None
        """Guard for the latest listing; None if the lock does not block."""
        self.questions = questions
        self.lists = Relister(config.name, self._list_again)
        self.notices = NotificationRouter(
            config.name, emit=emit, stale=stale, mark_dirty=self.lists.mark_dirty, heard=questions.heard
        )
        self._known = known
        self._listed: Snapshot | None = None
        self.reserved: frozenset[str] = frozenset()
        """Tools of the current listing that only pages may call."""
        self.live: ActiveConnection | None = None
        """The active connection; None as soon as its transport is closed."""
        self.connected_at: float | None = None
        self.next_try: float | None = None
        """On the monotonic clock: when the next automatic attempt starts."""
        self.freshness: Freshness | None = None
        self.attempts = ConnectHistory(known)
        self.principal: str | None = None
        """Principal whose login is used; None for the user who runs the host."""
        self.caller: Subject | None = None
        self.lease: ServerLease | None = None
        """Of a server that one node of a cluster runs."""
        self.place: Place | None = None
        """Decides which node runs a server that has `placement: cluster`."""
        self.log_level: str | None = None
        """Log level for a handshake server; None: its own default."""
        self.ended = asyncio.Event()
        self.redact = redact
        self._resolve = resolve
        self._pool = pool
        self._starts = starts
        self._slot: StartSlot | None = None
        self._urgency: Urgency = 0
        self._timer: ConnectTimer | None = None
        self._full_wait = True
        self._given_up = False
        """Whether this attempt has failed and its callers have the error; its child may still be ending."""
        self._last_output: list[str] = []
        self._waiters: list[asyncio.Future[ActiveConnection]] = []
        self._wake = asyncio.Event()
        self._woken_by_waiters = False
        """Whether only callers that wait for an attempt have set `_wake`."""
        self._life = anyio.CancelScope()
        self._clock = anyio.CancelScope()
        if not enabled:
            self.settled.set()
            self.ended.set()

    # --- for callers ----------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The last known listing of the server."""
        if self._listed is None:
            self._listed = self._known.snapshot if self._known else Snapshot(server=self.config.name)
        return self._listed

    def connect_now(self, urgency: Urgency = 2, *, again: bool = True) -> None:
        """Connect now: end the wait for a retry, or start a lazy server.

        Args:
            urgency: Order among the servers that start.
            again: Whether another attempt follows at once if one is under way and fails.
        """
        self._woken_by_waiters = not again and (self._woken_by_waiters or not self._wake.is_set())
        self._wake.set()
        if urgency > self._urgency:
            self._urgency = urgency
            self._starts.update_order()

    async def introduce(self) -> Target:
        """Return the resolved target, and set `access` for it. Raises ConfigError if a secret is missing."""
        target = await self._resolve(self.config)
        if target.url is not None:
            from mooring.auth.credentials import access_for

            way = await self._pool.ways.to(self.config, target)
            self.redact.learn(way.secrets(target.url))
            self.access = access_for(
                self.config,
                target,
                way,
                self.access,
                self._note_auth,
                self.redact,
                self.principal,
                self._pool.grants,
                partial(self._resolve, self.config),
                self._pool.cipher,
            )
            if self.access is not None:
                self.access.caller = self.caller
        return target

    def act_for(self, caller: Subject) -> None:
        """Remember the gateway client that uses this connection, for requests that belong to no call."""
        self.caller = caller
        if self.access is not None:
            self.access.caller = caller

    def _extensions(self) -> dict[str, Any]:
        """The extensions to declare to this server beside those of all servers."""
        if not self.config.auth:
            return {}
        from mooring.config.network import auth_extensions

        return auth_extensions(self.config.auth)

    async def connected(self, timeout: float | None, urgency: Urgency | None = 2) -> ActiveConnection:
        """Return the live connection; wait up to `timeout` (None: until the attempt has ended). With
        `urgency` None, no attempt is requested: only a running or due one is awaited.

        Raises:
            MooringError: There is no connection.
        """
        if self.live is not None:
            return self.live
        if self.state == "disabled":
            raise self.problem or Permanent("it is disabled in the configuration", server=self.config.name)
        if self.ended.is_set():
            raise Permanent("its connection was closed", server=self.config.name)
        due = self.state == "pending" or self._wake.is_set() or self._may_try()
        if self.problem is not None and not due:
            raise self.problem
        return await self._wait(timeout, urgency)

    async def refresh(self) -> None:
        """List again, after connecting if needed. Concurrent callers share one listing.

        Raises:
            MooringError: It failed; the earlier listing stays.
        """
        if self.state == "disabled" or self.ended.is_set():
            raise self.problem or Permanent("it is disabled or closed", server=self.config.name)
        live = self.live
        if live is not None:
            try:
                await self.lists.ask()
                return
            except MooringError:
                if live.channel.closed_reason is None:
                    raise
        await self._wait(None, 1)  # also if its session had expired: the new connection lists

    def privately(self, session: str | None, publish: Callable[[Snapshot], Guard | None]) -> None:
        """Make this the private connection of one session: its states are not those of the server."""
        self.session = self.notices.session = session
        self.private = True
        self.publish, self._emit = publish, self._keep_quiet

    def _keep_quiet(self, event: Event) -> None: ...
    async def answer(
        self, method: str, params: Mapping[str, Any], on: Transport | None = None
    ) -> dict[str, Any]:
        """Return the result of a request of the server; see `ElicitationHandler.answer`."""
        return await self.questions.answer(
            self.config.name, method, params, on.forwarded_requests if on else ()
        )

    async def stop(self) -> None:
        """Stop the supervisor: running calls are cancelled, the child and its descendants ended."""
        self._life.cancel()
        self._fail_waiters(self._waiters, self._gone())
        await self.ended.wait()

    def _gone(self) -> MooringError:
        return Permanent("its connection was closed", server=self.config.name)

    def _may_try(self) -> bool:
        """Whether a call may end the wait for a retry: not if a retry cannot succeed, nor in a crash loop."""
        if isinstance(self.problem, AuthNeeded):
            return self.access is not None and self.access.news()
        useless = isinstance(self.problem, Permanent | Flooding)
        return not useless and not self.attempts.restarts.rest(concurrency.monotonic())

    async def _wait(self, timeout: float | None, urgency: Urgency | None) -> ActiveConnection:
        if urgency is not None:
            self.connect_now(urgency, again=False)
        waiter: asyncio.Future[ActiveConnection] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            raise ConnectError("it was not connected in time", server=self.config.name) from None
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    # --- the loop -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until `stop()`. A failing server becomes a state, never an exception."""
        if self.state == "disabled":
            return
        FORWARDED.set(None)  # later messages do not belong to the call that started the task
        try:
            with self._life:
                if self.config.start == "lazy":
                    await self._wake.wait()
                while True:
                    self._wake.clear()
                    await self._once()
                    self._full_wait = await self._rest()
        finally:
            self.live = None
            self._fail_waiters(self._waiters, self._gone())
            self.lists.fail(self._gone())
            self.settled.set()
            self.ended.set()

    async def _once(self) -> None:
        """Connect and serve until it ends; the only broad `except` of the library."""
        self._to("pending", self.problem)
        self._last_output, self._given_up = [], False
        opened_at = concurrency.monotonic()
        try:
            reason = await self._connect_and_serve()
        except Exception as group:
            if not self._given_up:
                fault = leaf(group)
                problem = explain(fault, self.config, self._last_output, self.redact)
                if isinstance(problem, AuthNeeded) and self.access is not None:
                    problem = await self.access.explain(str(fault))
                self._give_up(problem)
            return
        finally:
            self.live = self.connected_at = self.freshness = None
        duration = concurrency.monotonic() - opened_at
        if duration > STABLE:
            self._warned.clear()
        self._warn_once(f"server {self.config.name!r} was lost: {reason}")
        self._emit(ServerLost(server=self.config.name, reason=reason))
        problem = ConnectError(reason, server=self.config.name)
        if self.attempts.flooding:
            self._give_up(problem)
        else:  # calls that have come since the loss wait for the next connection
            self._fail(problem, self.attempts.lost(duration, waiting=bool(self._waiters)))

    def _give_up(self, problem: MooringError) -> None:
        """Fail this attempt. Callers get the error now; the child may still be ending."""
        self._given_up = True
        self._end_start()
        if self.attempts.flooding:
            problem = Flooding(str(problem), server=self.config.name)
        self._fail(problem, self.attempts.failed(full_wait=self._full_wait, waiting=bool(self._waiters)))

    def _end_start(self) -> None:
        """Release the slot and the timer of a start that has ended."""
        self._urgency = 0
        if self._slot is not None:
            self._slot.release()
        if self._timer is not None:
            self._timer.stop()

    def _fail(self, problem: MooringError, delay: float) -> None:
        """Set the state for `delay` seconds without a connection. If it is opened again at once, only callers
        that wait for a listing get the error."""
        now, state = concurrency.monotonic(), "needs-auth" if isinstance(problem, AuthNeeded) else "failed"
        if delay or isinstance(problem, AuthNeeded | Permanent):
            self._warn_unavailable(state, problem)
        if isinstance(problem, AuthNeeded | Permanent):
            self.next_try = None
        else:
            if delay and self.attempts.restarts.rest(now):
                again = f"it was started {Restarts.LIMIT} times within {Restarts.WINDOW:g} s without any use"
                problem = ConnectError(
                    f"{problem}\n{again}; next try in {delay:.0f} s", server=self.config.name
                )
            self.next_try = now + delay
        self.lists.fail(problem)
        if delay or self.next_try is None:
            self._to(state, problem)
            self._fail_waiters(self._waiters, problem)
            if self._woken_by_waiters:
                # They waited for the current attempt and have its result: they must not cause another one.
                self._wake.clear()
        else:
            self._to("pending", problem)

    async def _rest(self) -> bool:
        """Wait before the next attempt. Return False if a caller ended the wait."""
        with anyio.move_on_after(
            math.inf if self.next_try is None else self.next_try - concurrency.monotonic()
        ) as rest:
            await self._wake.wait()
        self.next_try = None
        return rest.cancelled_caught

    async def _connect_and_serve(self) -> str:
        """Serve until the transport is closed; return why.

        Raises:
            Exception: It was never connected.
        """
        started = concurrency.monotonic()
        target = await self.introduce()
        left = list(wires(self.config))
        if left[0] == "stdio":
            self.attempts.restarts.started(concurrency.monotonic())
        self._clock = anyio.CancelScope()
        spent = concurrency.monotonic() - started
        timer = self._timer = ConnectTimer(self.config.connect_timeout - spent, self._clock.cancel)
        timer.resume()
        try:
            with self._clock:
                while True:
                    try:
                        return await self._serve_on(left, target, timer)
                    except Exception as group:
                        problem = leaf(group)
                        if self.live is not None or self._given_up:
                            raise
                        if not isinstance(problem, _Again) and not self.attempts.another_way(left, problem):
                            raise
        finally:
            self._end_start()
        raise TimeoutError

    async def _serve_on(self, left: list[Wire], target: Target, timer: ConnectTimer) -> str:
        kind, config, access = left[0], self.config, self.access
        if self.place is not None:
            timer.pause()
            placed = await self.place()
            timer.resume()
            if isinstance(placed, Elsewhere):
                self.lease, kind, config, target, access = None, "http", placed.config, placed.target, None
            else:
                self.lease = placed
        if kind == "stdio":
            timer.pause()
            if self._slot is not None:
                self._slot.release()
            self._slot = await self._starts.enter(lambda: self._urgency)
            timer.resume()
        opening = open_channel(kind, config, target, self._pool, self.redact, access)
        if self.lease is not None:
            opening = under_lease(self.lease, self.config.name, opening)
        async with opening as channel:
            channel.on_flood = self.attempts.opened()
            if self._slot is not None and channel.pid is not None:
                self._slot.started(channel.pid)
                timer.watch(channel.pid)
            try:
                channel.on_ask = partial(self.answer, on=channel)
                self.attempts.first = first_era(kind, self.config, self.questions.capabilities)
                peer = await negotiate(
                    channel,
                    era=self.attempts.era,
                    guessed=self.attempts.guessed,
                    config=self.config,
                    # Half of the time is reserved for servers that do not respond to a probe.
                    probe_timeout=min(self.config.probe_timeout, self.config.connect_timeout / 2),
                    capabilities=self.questions.capabilities,
                    extensions={**self.questions.extensions, **self._extensions()},
                )
                refuse_older(peer, self.config.min_protocol)
                live = ActiveConnection(channel, peer, self.redact)
                freshness = Freshness(
                    live, self.config.sweep_interval, self.lists.mark_dirty, self.notices.missed
                )
                self.freshness = freshness
                self.notices.attach(live, freshness)
                channel.spawn(freshness.run)
                self.lists.begin(freshness)
                before = self._listed or self._known  # a cached snapshot is not built for this
                listed = await live.list(self.config.list_timeout, before.extensions if before else ())
                listed = doubted(listed, self.attempts.seen)
                snapshot = await compared(self._listed, self.extend(listed))
                if self.log_level is not None:
                    await set_level(live, self.log_level)
            except Exception as fault:
                await self._not_served(channel, left, fault)
                raise
            except anyio.get_cancelled_exc_class():
                self._last_output = channel.last_output()
                if self._clock.cancel_called:
                    self._give_up(explain(TimeoutError(), self.config, self._last_output, self.redact))
                raise
            self._end_start()
            channel.listed = True
            self.attempts.connected(peer)
            channel.on_closed = self._channel_closed
            freshness.listed()
            self.notices.connected(live, self.config.list_timeout)
            self._online(live, snapshot)
            await self.lists.run(live, freshness)
            reason = self.redact(await channel.failure_reason())
            self.lists.fail(ConnectError(reason, server=self.config.name))
            return reason

    async def _not_served(self, channel: Transport, left: list[Wire], fault: Exception) -> None:
        """Decide what follows a failure before the channel is closed, which may take its whole grace.

        Raises:
            _Again: another transport or era is due.
        """
        if isinstance(fault, WireError) and channel.closed_reason is not None:
            fault.args = (await channel.failure_reason(),)
        self._last_output = channel.last_output()
        if isinstance(fault, WireError) and fault.kind == "auth":
            return  # the advice is determined after the channel is closed
        if self.attempts.another_way(left, fault):
            raise _Again from fault
        self._give_up(explain(fault, self.config, self._last_output, self.redact))

    def _online(self, live: ActiveConnection, snapshot: Snapshot) -> None:
        name = self.config.name
        self.live, self._listed, self._known = live, snapshot, None
        self.reserved = reserved_names(snapshot.tools)
        self.connected_at = time.time()
        if self.access is not None:
            self.access.accepted()
        self.guard = self.publish(snapshot)
        self._to("connected", None)
        self._emit(ServerConnected(server=name, protocol=live.peer.protocol, tools=len(snapshot.tools)))
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(live)

    def _channel_closed(self, reason: str) -> None:
        """Remove the closed connection synchronously, so that no request uses it."""
        self.live = None
        self.lists.wake()

    async def _list_again(self, live: ActiveConnection, freshness: Freshness) -> MooringError | None:
        """List once and publish; return why that failed."""
        with live.channel.lifetime():
            try:
                listed = await live.list(self.config.list_timeout, self.snapshot.extensions)
                listed = doubted(listed, self.attempts.seen)
                snapshot = await compared(self.snapshot, self.extend(listed))
                self.notices.relisted(self.snapshot, snapshot)
                changed = differs(self.snapshot, snapshot)
                self._listed, self.reserved = snapshot, reserved_names(snapshot.tools)
                freshness.listed(changed=changed)
                self.guard = self.publish(self.snapshot)
            except WireError as fault:
                if fault.kind in ("session", "refused") or (fault.kind == "auth" and fault.status != 403):
                    live.channel.mark_closed(str(fault))  # a new connection has a session, or shows the cause
                problem = call_error(fault, self.config.name, "tools/list", 0.0, None, self.redact)
                self._warn_once(f"server {self.config.name!r} could not be listed: {problem}")
                return problem
        return None

    # --- states ---------------------------------------------------------------------------------

    @staticmethod
    def _fail_waiters(waiters: list[Any], problem: MooringError) -> None:
        pending = waiters[:]
        waiters.clear()
        for waiter in pending:
            if not waiter.done():
                waiter.set_exception(problem)
