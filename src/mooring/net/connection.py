"""One server: the owner task that keeps it connected, and the verbs that others use meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio

from mooring.core.backoff import backoff
from mooring.core.config import ServerConfig, Target
from mooring.core.events import Event, ServerConnected, ServerLost, StateChanged
from mooring.core.types import EMPTY, Result, ServerStatus, Snapshot, State
from mooring.errors import AuthNeeded, ConnectError, MooringError
from mooring.net import wire
from mooring.net.faults import Permanent, call_error, explain, leaf
from mooring.net.live import Live
from mooring.net.negotiate import Era, negotiate
from mooring.net.open import Wire, open_channel, wires
from mooring.net.pool import HttpPool
from mooring.net.rpc import Progress, WireError

log = logging.getLogger("mooring.connection")

DEBOUNCE = 0.2
STABLE = 10.0
"""A connection that lived so long did not fail at connecting: the next try is not held back."""
FALLBACK = (400, 404, 405, 415)
"""Statuses that mean "no Streamable HTTP here", so that old SSE is worth a try."""
LIST_CHANGED = {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}
_ALLOWED: Mapping[State, tuple[State, ...]] = {
    "disabled": (),
    "pending": ("connected", "failed", "needs-auth", "pending"),
    "connected": ("pending", "failed"),
    "failed": ("pending", "failed"),
    "needs-auth": ("pending",),
}


class Connection:
    """The provider for one MCP server. Only `run()` opens and closes anything."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        enabled: bool = True,
        resolve: Callable[[ServerConfig], Target],
        pool: HttpPool,
        publish: Callable[[Snapshot], None],
        emit: Callable[[Event], None],
    ) -> None:
        self.config = config
        self.snapshot = Snapshot(server=config.name)
        self._resolve = resolve
        self._pool = pool
        self.publish = publish
        self._emit = emit
        self._state: State = "pending" if enabled else "disabled"
        self._problem: MooringError | None = None
        self._live: Live | None = None
        self._era: Era | None = None
        self._connected_at: float | None = None
        self._failures = 0
        self._delay = 0.0
        self._last_words: list[str] = []
        self._dirty = False
        self._waiters: list[asyncio.Future[Live]] = []
        self._refreshers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._kick = asyncio.Event()
        self._life = anyio.CancelScope()
        self._clock = anyio.CancelScope()
        self._ended = asyncio.Event()
        self._settled = asyncio.Event()
        if not enabled:
            self._settled.set()
            self._ended.set()

    # --- what others see ------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def state(self) -> State:
        return self._state

    @property
    def settled(self) -> asyncio.Event:
        """Set once the first try to connect has ended, well or not."""
        return self._settled

    @property
    def pid(self) -> int | None:
        """Process id of the child, while one is running."""
        return getattr(getattr(self._live and self._live.channel, "child", None), "pid", None)

    def status(self) -> ServerStatus:
        return ServerStatus(
            name=self.name,
            state=self._state,
            transport=self._live.channel.kind if self._live else self.config.transport or "",
            protocol=self.snapshot.info.protocol if self._state == "connected" else None,
            tools=len(self.snapshot.tools),
            resources=len(self.snapshot.resources),
            prompts=len(self.snapshot.prompts),
            error=str(self._problem) if self._problem else None,
            connected_at=self._connected_at,
            warnings=self.snapshot.warnings,
        )

    # --- verbs ----------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        """The server's answer to a call of its tool `tool`.

        Raises:
            CallError, AuthNeeded: there is no answer of the tool; `outcome` tells whether it may have run.
        """
        started = time.monotonic()
        end = started + (self.config.call_timeout if timeout is None else timeout)
        params = {"name": tool, "arguments": dict(arguments)}
        raw = await self._ask("tools/call", params, tool, end, on_progress=on_progress, meta=meta)
        return wire.result(self.name, tool, raw, time.monotonic() - started)

    async def ping(self, timeout: float | None = None) -> float:
        """Seconds that one round trip takes.

        Raises:
            CallError, AuthNeeded: there was none.
        """
        end = time.monotonic() + (self.config.call_timeout if timeout is None else timeout)
        live = await self._connected("ping", end)
        started = time.monotonic()
        # The 2026 era has no ping; discovery is its cheapest question.
        method = "ping" if live.peer.era == "legacy" else "server/discover"
        await self._ask(method, {}, method, end)
        return time.monotonic() - started

    async def ask(
        self, method: str, params: dict[str, Any], *, about: str, timeout: float | None = None
    ) -> dict[str, Any]:
        """The raw result of any other request; `about` is what an error names.

        Raises:
            CallError, AuthNeeded: no result came.
        """
        end = time.monotonic() + (self.config.call_timeout if timeout is None else timeout)
        return await self._ask(method, params, about, end)

    async def refresh(self) -> None:
        """List everything anew, connecting first if need be. However many ask, one listing serves all.

        Raises:
            MooringError: it could not be done; what was known before stays.
        """
        if self._live is None:
            await self._reconnected()
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refreshers.append(done)
        self._wake.set()
        await done

    def mark_dirty(self) -> None:
        """The server's lists are out of date."""
        self._dirty = True
        self._wake.set()

    async def start(self) -> None:
        """Connect now, even if the configuration says `start: lazy`."""
        self._kick.set()

    async def stop(self) -> None:
        """End the owner: in-flight calls are cancelled, the child and its descendants ended."""
        self._life.cancel()
        await self._ended.wait()

    # --- requests -------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        params: dict[str, Any],
        about: str,
        end: float,
        *,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> dict[str, Any]:
        """One request. It is sent again once, and only when it surely was not read the first time."""
        started = time.monotonic()
        for last in (False, True):
            live = self._live or await self._connected(about, end)
            try:
                return await live.ask(
                    method,
                    params,
                    timeout=max(end - time.monotonic(), 0.0),
                    idle=self.config.idle_timeout,
                    on_progress=on_progress,
                    meta=meta,
                )
            except WireError as fault:
                self._judge(live, fault)
                if last or fault.outcome != "not sent" or fault.kind not in ("closed", "session", "refused"):
                    words = await live.channel.obituary() if live.channel.death else None
                    raise call_error(fault, self.name, about, time.monotonic() - started, words) from None
        raise AssertionError("unreachable")

    def _judge(self, live: Live, fault: WireError) -> None:
        """What one failed request says about the whole wire."""
        if fault.kind in ("session", "refused"):
            live.channel.die(str(fault))

    async def _connected(self, about: str, end: float) -> Live:
        """The live connection, waiting for it until `end`."""
        if self._live is not None:
            return self._live
        if self._state == "disabled":
            problem: MooringError = Permanent("it is disabled in the configuration", server=self.name)
        elif isinstance(self._problem, AuthNeeded | Permanent) and self._state != "pending":
            problem = self._problem
        else:
            try:
                return await self._wait_for_live(end - time.monotonic())
            except TimeoutError:
                problem = Permanent("it was not connected in time", server=self.name)
            except MooringError as known:
                problem = known
        if isinstance(problem, AuthNeeded):
            raise problem
        fault = WireError(str(problem), kind="refused", outcome="not sent")
        raise call_error(fault, self.name, about, 0.0, None)

    async def _wait_for_live(self, timeout: float) -> Live:
        self._kick.set()
        waiter: asyncio.Future[Live] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    async def _reconnected(self) -> None:
        if self._state == "disabled":
            raise Permanent("it is disabled in the configuration", server=self.name)
        patience = self.config.connect_timeout + self.config.list_timeout + self.config.shutdown_grace + 5
        try:
            await self._wait_for_live(patience)
        except TimeoutError:
            raise Permanent("it was not connected in time", server=self.name) from None

    # --- the owner ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until `stop()`. A failing server becomes a state, never an exception."""
        if self._state == "disabled":
            return
        try:
            with self._life:
                if self.config.start == "lazy":
                    await self._kick.wait()
                while True:
                    self._kick.clear()
                    await self._once()
                    await self._rest()
        finally:
            self._live = None
            gone = Permanent("the host was closed", server=self.name)
            self._tell(self._waiters, gone)
            self._tell(self._refreshers, gone)
            self._settled.set()
            self._ended.set()

    async def _once(self) -> None:
        """Connect and serve until it ends; this is the one broad catch of the library."""
        self._to("pending", self._problem)
        self._last_words = []
        born = time.monotonic()
        try:
            reason = await self._connect_and_serve()
        except Exception as group:
            self._failures += 1
            self._delay = backoff(self._failures, random.random())
            self._fail(explain(leaf(group), self.config, self._last_words))
            return
        finally:
            self._live = self._connected_at = None
        # The first reconnect is not held back; a server that falls again and again is.
        self._failures = 0 if time.monotonic() - born > STABLE else self._failures + 1
        self._delay = backoff(self._failures - 1, random.random())
        log.warning("%s was lost: %s", self.name, reason)
        self._emit(ServerLost(server=self.name, reason=reason))
        problem = ConnectError(reason, server=self.name)
        if self._delay:
            self._fail(problem)
        else:
            self._to("pending", problem)
            self._tell(self._refreshers, problem)

    async def _rest(self) -> None:
        """Leave the server alone for a while; a call or a refresh ends the rest."""
        if isinstance(self._problem, AuthNeeded | Permanent):
            await self._kick.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._delay):
                await self._kick.wait()

    async def _connect_and_serve(self) -> str:
        """Serve until the wire is gone; why it is gone.

        Raises:
            Exception: it never came up.
        """
        target = self._resolve(self.config)
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
        if not isinstance(problem, WireError):
            return False
        if left[0] == "stdio":
            # Some servers exit at a question they do not know: greet the next one the old way.
            again = problem.kind == "closed" and self._era is None
            self._era = "legacy" if again else None
            return again
        if left[0] == "http" and len(left) > 1 and problem.status in FALLBACK:
            left.pop(0)
            return True
        return False

    async def _serve_on(self, kind: Wire, target: Target) -> str:
        async with open_channel(kind, self.config, target, self._pool) as channel:
            try:
                peer = await negotiate(
                    channel, era=self._era, probe_timeout=self.config.probe_timeout, capabilities={}
                )
                live = Live(channel, peer)
                self._clock.deadline = math.inf  # from here on each request has its own deadline
                channel.on_notice = self._heard
                snapshot = await live.list(self.config.list_timeout)
            except WireError as fault:
                if channel.death is not None:
                    fault.args = (await channel.obituary(),)
                raise
            except anyio.get_cancelled_exc_class():
                self._last_words = channel.last_words()
                raise
            self._era = peer.era
            channel.on_death = self._died
            self._online(live, snapshot)
            while channel.death is None:
                await self._wake.wait()
                self._wake.clear()
                if channel.death is None and (self._dirty or self._refreshers):
                    await self._relist(live)
            return await channel.obituary()

    def _online(self, live: Live, snapshot: Snapshot) -> None:
        self._live, self.snapshot = live, snapshot
        self._connected_at = time.time()
        self.publish(snapshot)
        self._to("connected", None)
        self._emit(ServerConnected(server=self.name, protocol=live.peer.protocol, tools=len(snapshot.tools)))
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(live)

    def _died(self, reason: str) -> None:
        """Synchronous, from the wire itself: nobody gets the dead connection any more."""
        self._live = None
        self._wake.set()

    def _heard(self, method: str, params: Mapping[str, Any]) -> None:
        if method in LIST_CHANGED:
            self.mark_dirty()

    async def _relist(self, live: Live) -> None:
        """One listing for all who asked and all notices so far."""
        if self._dirty and not self._refreshers:
            await asyncio.sleep(DEBOUNCE)
        self._dirty = False
        asked, self._refreshers = self._refreshers, []
        problem: MooringError | None = None
        try:
            self.snapshot = await live.list(self.config.list_timeout)
            self.publish(self.snapshot)
        except WireError as fault:
            self._dirty = True
            problem = call_error(fault, self.name, "tools/list", 0.0, None)
            log.warning("%s could not be listed: %s", self.name, fault)
        for waiter in asked:
            if not waiter.done():
                waiter.set_exception(problem) if problem else waiter.set_result(None)

    # --- states ---------------------------------------------------------------------------------

    def _fail(self, problem: MooringError) -> None:
        self._to("needs-auth" if isinstance(problem, AuthNeeded) else "failed", problem)
        self._tell(self._waiters, problem)
        self._tell(self._refreshers, problem)

    @staticmethod
    def _tell(waiters: list[Any], problem: MooringError) -> None:
        told = waiters[:]
        waiters.clear()
        for waiter in told:
            if not waiter.done():
                waiter.set_exception(problem)

    def _to(self, state: State, problem: MooringError | None) -> None:
        """The only door through which the state changes."""
        old = self._state
        if state not in _ALLOWED[old]:
            raise AssertionError(f"{self.name}: {old} -> {state}")
        self._state, self._problem = state, problem
        if state != "pending":
            self._settled.set()
        if state != old:
            reason = str(problem) if problem else None
            log.info("%s: %s -> %s%s", self.name, old, state, f" ({reason})" if reason else "")
            self._emit(StateChanged(server=self.name, old=old, new=state, reason=reason))
