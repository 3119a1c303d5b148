"""The owner of one server's connection: the only task that opens and closes anything of it."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from mooring import clock
from mooring.config.logs import logger
from mooring.core import events
from mooring.core.breaker import Restarts, backoff
from mooring.core.config import ServerConfig, Target
from mooring.core.events import Event, ServerConnected, ServerLost, StateChanged
from mooring.core.known import Known
from mooring.core.redact import Redactor
from mooring.core.sharing import shared
from mooring.core.types import Snapshot, State
from mooring.errors import AuthNeeded, ConnectError, MooringError
from mooring.net.faults import Permanent, call_error, explain, leaf
from mooring.net.freshness import DEBOUNCE, Freshness
from mooring.net.live import Live
from mooring.net.loglevel import set_level
from mooring.net.message import WireError
from mooring.net.negotiate import MODERN_CODES, Era, doubted, era_of, negotiate, refuse_older
from mooring.net.notices import Notices
from mooring.net.open import Wire, open_channel, wires
from mooring.net.passage import PASSAGE
from mooring.net.pool import HttpPool
from mooring.net.questions import Questions

if TYPE_CHECKING:
    from mooring.net.access import Access

log = logger("mooring.connection")

STABLE = 10.0
"""A connection that lived so long did not fail at connecting: the next try is not held back."""
TRIES = 3
"""Tries to come back that may fail before those who wait for a server are told."""
FALLBACK = (400, 404, 405, 415)
"""Statuses that mean "no Streamable HTTP here", so that old SSE is worth a try."""
_ALLOWED: Mapping[State, tuple[State, ...]] = {
    "disabled": (),
    "pending": ("connected", "failed", "needs-auth", "pending"),
    "connected": ("pending", "failed"),
    "failed": ("pending", "failed"),
    "needs-auth": ("pending",),
}


class Owner:
    """Keeps a server connected: connect, publish what it offers, keep that fresh, notice its end, rest,
    again. Everybody else only asks for the `live` connection."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        enabled: bool,
        known: Known | None,
        resolve: Callable[[ServerConfig], Awaitable[Target]],
        redact: Redactor,
        pool: HttpPool,
        publish: Callable[[Snapshot], None],
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        questions: Questions,
    ) -> None:
        self.config = config
        self.publish = publish
        self.questions = questions
        self.notices = Notices(
            config.name, emit=emit, stale=stale, mark_dirty=self.mark_dirty, heard=self._heard
        )
        self._known = known
        self._listed: Snapshot | None = None
        self.live: Live | None = None
        """The connection while it is up; None the very moment its wire is gone."""
        self.state: State = "pending" if enabled else "disabled"
        self.problem: MooringError | None = None
        self.connected_at: float | None = None
        self.next_try: float | None = None
        """On the monotonic clock: when the server is tried again without being asked."""
        self.freshness: Freshness | None = None
        self.restarts = Restarts()
        self.access: Access | None = None
        """How an HTTP server is let know who asks; None where that is no matter of ours."""
        self.session: str | None = None
        """Whose connection alone it is; None: everybody's."""
        self.principal: str | None = None
        """Whose login is used; None: that of whoever runs the host."""
        self.log_level: str | None = None
        """From which level on a handshake server is to log; None: as it likes."""
        self.settled = asyncio.Event()
        """Set once the first try to connect has ended, well or not."""
        self.ended = asyncio.Event()
        self.redact = redact
        self._resolve = resolve
        self._pool = pool
        self._emit = emit
        self._era: Era | None = era_of(known.protocol if known else None)
        """What the server spoke the last time: only a guess until it has answered in this life."""
        self._guessed = self._era is not None
        self._seen = known.protocol if known else None
        """The newest protocol that the server ever spoke with us."""
        self._failures = 0
        self.connected_before = False
        self._in_vain = 0
        """Tries to connect that failed since it was last connected."""
        self._last_words: list[str] = []
        self._dirty = False
        self._waiters: list[asyncio.Future[Live]] = []
        self._refreshers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._kick = asyncio.Event()
        self._life = anyio.CancelScope()
        self._clock = anyio.CancelScope()
        if not enabled:
            self.settled.set()
            self.ended.set()

    # --- for everybody --------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """What the server offers, as far as it is known."""
        if self._listed is None:
            self._listed = self._known.snapshot if self._known else Snapshot(server=self.config.name)
        return self._listed

    def kick(self) -> None:
        """Do not rest any longer: somebody wants the server."""
        self._kick.set()

    def mark_dirty(self) -> None:
        """The server's lists are out of date."""
        self._dirty = True
        self._wake.set()

    async def introduce(self) -> Target:
        """Where to connect to, and from here on the `access` for it; ConfigError when a secret is missing."""
        target = await self._resolve(self.config)
        if target.url is not None:
            from mooring.net.access import access_for  # children want no login

            way = await self._pool.ways.to(self.config, target)
            self.redact.learn(way.secrets(target.url))
            self.access = access_for(self.config, target, way, self.access, self._tell_auth, self.principal)
        return target

    async def connected(self, timeout: float) -> Live:
        """The live connection, waited for no longer than `timeout`.

        Raises:
            MooringError: there is none, and why.
        """
        if self.live is not None:
            return self.live
        if self.state == "disabled":
            raise self.problem or Permanent("it is disabled in the configuration", server=self.config.name)
        if self.ended.is_set():
            raise Permanent("its connection was closed", server=self.config.name)
        if self.state != "pending" and self.problem is not None and not self._may_try():
            raise self.problem
        return await self._wait(timeout)

    async def refresh(self) -> None:
        """List everything anew, connecting first if need be. However many ask, one listing serves all.

        Raises:
            MooringError: it could not be done; what was known before stays.
        """
        if self.state == "disabled" or self.ended.is_set():
            raise self.problem or Permanent("it is disabled or closed", server=self.config.name)
        if self.live is None:
            patience = self.config.connect_timeout + self.config.list_timeout + self.config.shutdown_grace + 5
            await self._wait(patience)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refreshers.append(done)
        self._wake.set()
        await done

    def privately(self, session: str, publish: Callable[[Snapshot], None]) -> None:
        """From now on this is one conversation's own connection: its states are not the server's."""
        self.session = self.notices.session = session
        self.publish, self._emit = publish, _unheard

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request of the server's; see `Questions.answer`."""
        return await self.questions.answer(self.config.name, method, params, self.session)

    def _heard(self, method: str, params: Mapping[str, Any]) -> None:
        self.questions.heard(self.config.name, method, params, self.session)

    async def stop(self) -> None:
        """End the owner: in-flight calls are cancelled, the child and its descendants ended."""
        self._life.cancel()
        await self.ended.wait()

    def _may_try(self) -> bool:
        """Whether a mere call may end the rest: not where it is useless, nor in a crash loop."""
        if isinstance(self.problem, AuthNeeded):
            return self.access is not None and self.access.news()
        return not isinstance(self.problem, Permanent) and self.restarts.rest(clock.monotonic()) == 0

    async def _wait(self, timeout: float) -> Live:
        self._kick.set()
        waiter: asyncio.Future[Live] = asyncio.get_running_loop().create_future()
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
        PASSAGE.set(None)  # whoever's call woke it: what it says from now on is not said to them
        try:
            with self._life:
                if self.config.start == "lazy":
                    await self._kick.wait()
                rested = True
                while True:
                    self._kick.clear()
                    await self._once(rested)
                    rested = await self._rest()
        finally:
            self.live = None
            gone = Permanent("its connection was closed", server=self.config.name)
            self._tell(self._waiters, gone)
            self._tell(self._refreshers, gone)
            self.settled.set()
            self.ended.set()

    async def _once(self, rested: bool) -> None:
        """Connect and serve until it ends; this is the one broad catch of the library."""
        self._to("pending", self.problem)
        self._last_words = []
        born = clock.monotonic()
        try:
            reason = await self._connect_and_serve()
        except Exception as group:
            # A try that callers asked for before its time makes the next rest no longer.
            self._failures = self._failures + 1 if rested else max(self._failures, 1)
            fault = leaf(group)
            problem = explain(fault, self.config, self._last_words, self.redact)
            if isinstance(problem, AuthNeeded) and self.access is not None:
                problem = await self.access.explain(self.redact(str(fault)))
            self._in_vain += 1
            # One that was there and fell while it came back gets another try for those who wait for it.
            again = self._waiters and self.connected_before and self._in_vain < TRIES
            self._fail(problem, 0.0 if again else backoff(self._failures, random.random()))
            return
        finally:
            self.live = self.connected_at = self.freshness = None
        # The first reconnect is not held back; a server that falls again and again is.
        self._failures = 0 if clock.monotonic() - born > STABLE else self._failures + 1
        log.warning("%s was lost: %s", self.config.name, reason)
        self._emit(ServerLost(server=self.config.name, reason=reason))
        # Whoever has come since it fell waits for the next connection, not for the news of the fall.
        delay = 0.0 if self._waiters else backoff(self._failures - 1, random.random())
        self._fail(ConnectError(reason, server=self.config.name), delay)

    def _fail(self, problem: MooringError, delay: float) -> None:
        """Not connected for `delay` seconds; a loss that is repaired at once tells only those who waited
        for a listing."""
        now = clock.monotonic()
        if isinstance(problem, AuthNeeded | Permanent):
            self.next_try = None
        else:
            if rest := self.restarts.rest(now):
                delay = max(delay, rest)
                again = f"it was started {Restarts.LIMIT} times within {Restarts.WINDOW:g} s without any use"
                problem = ConnectError(
                    f"{problem}\n{again}; next try in {delay:.0f} s", server=self.config.name
                )
            self.next_try = now + delay
        self._tell(self._refreshers, problem)
        if delay or self.next_try is None:
            self._to("needs-auth" if isinstance(problem, AuthNeeded) else "failed", problem)
            self._tell(self._waiters, problem)
        else:
            self._to("pending", problem)

    async def _rest(self) -> bool:
        """Leave the server alone for a while; whoever may end the rest kicks. True if nobody did."""
        with anyio.move_on_after(
            math.inf if self.next_try is None else self.next_try - clock.monotonic()
        ) as rest:
            await self._kick.wait()
        self.next_try = None
        return rest.cancelled_caught

    async def _connect_and_serve(self) -> str:
        """Serve until the wire is gone; why it is gone.

        Raises:
            Exception: it never came up.
        """
        target = await self.introduce()
        self._clock = anyio.CancelScope(deadline=anyio.current_time() + self.config.connect_timeout)
        with self._clock:
            left = list(wires(self.config))
            while True:
                try:
                    return await self._serve_on(left[0], target)
                except Exception as group:
                    if not self._another_way(left, leaf(group)):
                        raise
        raise TimeoutError

    def _another_way(self, left: list[Wire], problem: BaseException) -> bool:
        """Whether this failure is only one of the wire or of the era, so that another try is due."""
        if not isinstance(problem, WireError) or self.live is not None:
            return False
        if self._guessed and problem.kind not in ("auth", "refused"):
            self._era, self._guessed = None, False  # it spoke so the last time, perhaps not now
            return True
        if left[0] == "stdio":
            # Some servers exit at a question they do not know: greet the next one the old way.
            again = problem.kind == "closed" and self._era is None
            self._era = "legacy" if again else None
            return again
        if left[0] == "http" and len(left) > 1 and problem.status in FALLBACK:
            if problem.code in MODERN_CODES:
                return False  # it does speak this, and refuses for a reason of its own
            left.pop(0)
            return True
        return False

    async def _serve_on(self, kind: Wire, target: Target) -> str:
        if kind == "stdio":
            self.restarts.started(clock.monotonic())
        async with open_channel(kind, self.config, target, self._pool, self.redact, self.access) as channel:
            try:
                channel.on_ask = self.answer
                peer = await negotiate(
                    channel,
                    era=self._era,
                    probe_timeout=self.config.probe_timeout,
                    capabilities=self.questions.capabilities,
                )
                refuse_older(peer, self.config.min_protocol)
                self._clock.deadline = math.inf  # from here on each request has its own deadline
                live = Live(channel, peer, self.redact)
                freshness = Freshness(live, self.config.sweep_interval, self.mark_dirty, self.notices.missed)
                self.freshness = freshness
                self.notices.attach(live, freshness)
                channel.spawn(freshness.run)
                snapshot = doubted(await live.list(self.config.list_timeout), self._seen)
                if self.log_level is not None:
                    await set_level(live, self.log_level)
            except WireError as fault:
                if channel.death is not None:
                    fault.args = (await channel.obituary(),)
                self._last_words = channel.last_words()
                raise
            except anyio.get_cancelled_exc_class():
                self._last_words = channel.last_words()
                raise
            self._era, self._guessed = peer.era, False
            self._seen = max(self._seen or "", peer.protocol)
            channel.on_death = self._died
            freshness.listed()
            self.notices.connected(live, self.config.list_timeout)
            self._online(live, snapshot)
            while channel.death is None:
                await self._wake.wait()
                self._wake.clear()
                if channel.death is None and (self._dirty or self._refreshers):
                    await self._relist(live, freshness)
            return self.redact(await channel.obituary())

    def _online(self, live: Live, snapshot: Snapshot) -> None:
        name = self.config.name
        if self._listed is not None:
            snapshot = shared(self._listed, snapshot)
        self.live, self._listed, self._known = live, snapshot, None
        self.connected_at = time.time()
        self.connected_before, self._in_vain = True, 0
        if self.access is not None:
            self.access.accepted()
        self.publish(snapshot)
        self._to("connected", None)
        self._emit(ServerConnected(server=name, protocol=live.peer.protocol, tools=len(snapshot.tools)))
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(live)

    def _died(self, reason: str) -> None:
        """Synchronous, from the wire itself: nobody gets the dead connection any more."""
        self.live = None
        self._wake.set()

    async def _relist(self, live: Live, freshness: Freshness) -> None:
        """One listing for all who asked and all notices so far; given up when the wire dies."""
        with live.channel.lifetime():
            if not self._refreshers:
                await asyncio.sleep(DEBOUNCE)
        asked, self._refreshers = self._refreshers, []
        self._dirty = False
        problem: MooringError | None = None
        with live.channel.lifetime():
            try:
                listed = doubted(await live.list(self.config.list_timeout), self._seen)
                snapshot = shared(self.snapshot, listed)
                self.notices.relisted(self.snapshot, snapshot)
                self._listed = snapshot
                freshness.listed()
                self.publish(self.snapshot)
            except WireError as fault:
                problem = call_error(fault, self.config.name, "tools/list", 0.0, None, self.redact)
                if fault.kind == "auth" and fault.status != 403:
                    live.channel.die(str(fault))  # connecting anew tells what it is now
        if live.channel.death is not None:
            self._refreshers += asked  # they are told with all the others
            return
        if problem is not None:
            log.warning("%s could not be listed: %s", self.config.name, problem)
            freshness.failed()
        for waiter in asked:
            if not waiter.done():
                waiter.set_exception(problem) if problem else waiter.set_result(None)

    # --- states ---------------------------------------------------------------------------------

    @staticmethod
    def _tell(waiters: list[Any], problem: MooringError) -> None:
        told = waiters[:]
        waiters.clear()
        for waiter in told:
            if not waiter.done():
                waiter.set_exception(problem)

    def _tell_auth(self, reason: str) -> None:
        login = self.access is not None and self.access.wanted is not None
        self._emit(events.AuthNeeded(server=self.config.name, reason=reason, login=login))

    def _to(self, state: State, problem: MooringError | None) -> None:
        """The only door through which the state changes."""
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
                self._tell_auth(reason or "")


def _unheard(event: Event) -> None:
    """Nobody is told."""
