"""Freshness of the lists of one server: notifications, polling, listing again, and their guaranteed age."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import anyio

from mooring import concurrency
from mooring.core.types import Snapshot
from mooring.errors import MooringError
from mooring.servers.active import ActiveConnection
from mooring.transport.base import log
from mooring.transport.message import METHOD_NOT_FOUND, WireError

DEBOUNCE = 0.2
"""Seconds in which several notifications cause one listing."""
LIST_CHANGED = {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
FIRST_WAIT, LONGEST_WAIT = 0.25, 2.0
PATIENCE = 60.0
"""Seconds for which a subscription is retried; then the connection counts as lost."""
MIN_SWEEP = 10.0
"""Seconds between two listings that a server's own cache hint can ask for."""
IN_USE = 10
"""Lists of a server in use are read this many times as often, but not before `LEAST_IN_USE`."""
LEAST_IN_USE = 30.0
MOST_DOUBLED = 20
"""Failed listings after which the delay before a retry is not doubled any more."""
SHORTEST = 1.0
"""Seconds: the shortest age that is reported, because a listing takes time."""


def retry_delay(failures: int, longest: float) -> float:
    """Return the seconds before a listing is tried again after this many failures in a row."""
    return min(2.0 ** min(failures, MOST_DOUBLED), longest)


def differs(old: Snapshot, new: Snapshot) -> bool:
    """Whether the lists of two snapshots differ. Entries with equal definitions are the same objects."""
    return any(getattr(old, kind) != getattr(new, kind) for kind in ("tools", "prompts", "resources"))


class Freshness:
    """Keeps one live connection's lists fresh; runs beside it."""

    def __init__(
        self, live: ActiveConnection, sweep: float, mark_dirty: Callable[[], None], missed: Callable[[], None]
    ) -> None:
        self._live = live
        self._sweep = sweep
        self._mark_dirty = mark_dirty
        self._missed = missed
        self.in_use = False
        """Whether a call succeeded since the last listing; set it with `use()`."""
        self._active = False
        self._subscribed = live.peer.era == "legacy"
        self._announced: set[str] = set()
        """Kinds of lists of which a change was announced on this connection."""
        self._noticed_at = 0.0
        self._unannounced = False
        """Whether a listing showed a change that no notification had announced."""
        self._listed_at: float | None = None
        self._took = 0.0
        self._news = anyio.Event()
        self._acknowledged = anyio.Event()
        self._was_subscribed = False
        self._listings = 0
        self._failures = 0
        self._retrying = False

    @property
    def bound(self) -> float | None:
        """Seconds within which any change on the server is known; None while a listing is overdue.

        It is the time between two listings: a server that has announced every change so far may not announce
        the next one.
        """
        period = self._period()
        overdue = self._listed_at is None or concurrency.monotonic() - self._listed_at > period
        return None if overdue else period

    @property
    def announced_bound(self) -> float | None:
        """Seconds within which a change is known that the server announces; None unless that is proven.

        Proven: it has announced changes of all its lists on this connection, over stdio, and no listing
        showed a change that it had not announced. An HTTP or SSE server that is being replaced keeps the old
        stream open, and the new process announces its changes elsewhere.
        """
        kinds, bound = self._kinds(), self.bound
        if bound is None or not self._subscribed or self._unannounced:
            return None
        if not kinds or not self._announced.issuperset(kinds) or self._live.channel.kind != "stdio":
            return None
        return min(max(SHORTEST, DEBOUNCE + 2 * self._took), bound)

    @property
    def uncertain(self) -> bool:
        """Whether the subscription was active and is interrupted: changes meanwhile are not announced."""
        return self._was_subscribed and not self._subscribed

    async def unbroken(self) -> bool:
        """Whether the process that was listed is certainly still the one that answers."""
        return self._listed_at is not None and await self._live.channel.unbroken(self._listed_at + self._took)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_sweeping)
            if self._live.peer.era == "modern" and self._announces():
                tasks.start_soon(self._keep_subscribed)

    def acknowledged(self) -> None:
        """Record that the subscription is active."""
        self._subscribed = True
        if self._listings:
            # Nothing is replayed: earlier changes are only visible in the lists.
            self._missed() if self._was_subscribed else self._mark_dirty()
        self._was_subscribed = True
        self._acknowledged.set()

    def announced(self, method: str) -> None:
        """Record that the server announced a change of a list."""
        self._noticed_at = concurrency.monotonic()
        self._announced.add(method.split("/")[1])

    def use(self) -> None:
        """Record a successful call: the lists are read again soon if they are old."""
        self.in_use = True
        if not self._active:
            self._active = True
            self._news.set()

    def listed(self, *, changed: bool = False) -> None:
        """Record a successful listing; `changed`: it differs from the one before."""
        self._listings += 1
        self._failures = 0
        if changed and self._listed_at is not None and self._noticed_at < self._listed_at:
            self._unannounced = True
        self._active, self.in_use = self.in_use, False
        self._listed_at = self._live.list_started
        self._took = concurrency.monotonic() - self._listed_at
        self._news.set()

    def failed(self) -> None:
        """Record a failed listing: it is retried after a short delay."""
        self._failures += 1
        if not self._retrying:
            self._retrying = True
            self._live.channel.spawn(self._retry)

    async def _retry(self) -> None:
        await anyio.sleep(retry_delay(self._failures, self._sweep))
        self._retrying = False
        self._mark_dirty()

    def _announces(self) -> bool:
        return bool(self._kinds())

    def _kinds(self) -> list[str]:
        offered = self._live.peer.info.capabilities
        legacy = self._live.peer.era == "legacy"
        return [
            kind
            for kind in ("tools", "prompts", "resources")
            # Handshake servers send notifications even if they do not declare them.
            if isinstance(found := offered.get(kind), Mapping)
            and (legacy or cast("Mapping[str, Any]", found).get("listChanged"))
        ]

    async def _keep_subscribed(self) -> None:
        """Keep one `subscriptions/listen` open; reopen it when it ends."""
        params = {"notifications": {f"{kind}ListChanged": True for kind in self._kinds()}}
        wait, since = FIRST_WAIT, anyio.current_time()
        for number in itertools.count(1):
            self._acknowledged = anyio.Event()
            try:
                await self._live.ask(
                    "subscriptions/listen", params, timeout=None, request_id=f"listen-{number}"
                )
            except WireError as fault:
                log.debug("%s: its subscription ended: %s", self._live.channel.server, fault)
                if fault.code == METHOD_NOT_FOUND:
                    return  # it declares notifications and cannot send them: poll instead
            self._subscribed = False
            self._listings += 1
            now = anyio.current_time()
            if self._acknowledged.is_set():
                wait, since = FIRST_WAIT, now
            elif now - since > PATIENCE:
                self._live.channel.mark_closed("its subscription could not be opened again")
                return
            await anyio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _keep_sweeping(self) -> None:
        """Have the lists read again before the reported age is exceeded, with time left to read them."""
        while True:
            news = self._news = anyio.Event()
            if self._listed_at is None:
                await news.wait()
                continue
            wait = self._period() * random.uniform(0.7, 0.8) - DEBOUNCE
            with anyio.move_on_after(self._listed_at + wait - concurrency.monotonic()):
                await news.wait()
                continue
            self._mark_dirty()
            with anyio.move_on_after(self._period()):  # a failed listing is retried automatically
                await news.wait()

    def _period(self) -> float:
        """Most seconds between two listings."""
        hint = self._live.ttl
        idle = self._sweep if not hint else max(min(hint, self._sweep), MIN_SWEEP)
        period = min(idle, max(idle / IN_USE, LEAST_IN_USE)) if self._active else idle
        return max(period, SHORTEST)


List = Callable[[ActiveConnection, Freshness], Awaitable[MooringError | None]]
"""Lists once and publishes; returns why that failed."""


class Relister:
    """Runs one listing at a time, shared by all callers and notifications."""

    def __init__(self, server: str, take: List) -> None:
        self._server, self._take = server, take
        self._dirty = False
        self._freshness: Freshness | None = None
        self._under_way: asyncio.Future[None] | None = None
        """Done when the current listing has ended."""
        self._callers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()

    def begin(self, freshness: Freshness) -> None:
        """Record that the first listing of a new connection begins."""
        self._dirty, self._freshness = False, freshness

    def mark_dirty(self) -> None:
        """Mark the lists as out of date: they are listed after the debounce."""
        self._dirty = True
        self._wake.set()

    def wake(self) -> None:
        """Wake `run`, which checks whether the connection is still active."""
        self._wake.set()

    @property
    def outdated(self) -> bool:
        """Whether the lists may have changed since they were last listed."""
        uncertain = self._freshness is not None and self._freshness.uncertain
        return self._dirty or uncertain or self._under_way is not None

    async def settle(self) -> None:
        """Wait for a listing because the lists are `outdated`. Raises as `ask`."""
        if self._under_way is not None and not self._dirty:
            await asyncio.wait([self._under_way])
            if not self._dirty:
                return
        await self.ask()

    async def ask(self) -> None:
        """Wait for a listing that begins now, without the debounce.

        Raises:
            MooringError: it failed; the earlier listing stays.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers.append(done)
        self._wake.set()
        await done

    def fail(self, problem: MooringError) -> None:
        """Fail the waiting callers: this connection has no further listing."""
        callers, self._callers = self._callers, []
        for caller in callers:
            if not caller.done():
                caller.set_exception(problem)

    async def run(self, live: ActiveConnection, freshness: Freshness) -> None:
        """List when it is due, until the connection ends."""
        while live.channel.closed_reason is None:
            await self._wake.wait()
            self._wake.clear()
            if live.channel.closed_reason is None and (self._dirty or self._callers):
                await self._list(live, freshness)

    async def _list(self, live: ActiveConnection, freshness: Freshness) -> None:
        with live.channel.lifetime(), anyio.move_on_after(DEBOUNCE):
            while not self._callers:  # a caller that waits ends the debounce
                await self._wake.wait()
                self._wake.clear()
        asked, self._callers = self._callers, []
        self._dirty, self._under_way = False, asyncio.get_running_loop().create_future()
        try:
            problem = await self._take(live, freshness)
        finally:
            self._under_way.set_result(None)
            self._under_way = None
        if live.channel.closed_reason is not None:
            self._callers += asked  # the callers get the reason why the connection was closed
            return
        if problem is not None:
            self._dirty = True  # the announced change was not listed
            freshness.failed()
        for caller in asked:
            if not caller.done():
                caller.set_exception(problem) if problem else caller.set_result(None)
