"""Notifications of servers, and subscriptions to resources."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, cast

import anyio
import anyio.abc

from mooring.core.events import Event, ResourceUpdated
from mooring.core.types import Snapshot
from mooring.servers.active import ActiveConnection
from mooring.servers.elicitation import NOTICES
from mooring.servers.freshness import ACKNOWLEDGED, LIST_CHANGED, Freshness
from mooring.transport.base import log
from mooring.transport.forwarding import ForwardedRequest
from mooring.transport.message import METHOD_NOT_FOUND, WireError

PREFIX = "watch-"
FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0
_ID = "io.modelcontextprotocol/subscriptionId"
VISITED = "notifications/elicitation/complete"


def subscription_id(params: Mapping[str, Any]) -> str:
    """Return the subscription that a notification belongs to; empty when it names none."""
    meta = params.get("_meta")
    return str(cast("Mapping[str, Any]", meta).get(_ID, "")) if isinstance(meta, Mapping) else ""


class ResourceSubscriptions:
    """Subscriptions to resources of one server."""

    def __init__(
        self, live: ActiveConnection, wanted: Set[str], timeout: float, missed: Callable[[str], None]
    ) -> None:
        self._live, self._wanted, self._timeout, self._missed = live, wanted, timeout, missed
        self._resumed = frozenset(wanted)
        """Subscriptions of an earlier connection, which may have missed updates since."""
        self._changed = asyncio.Event()
        self._held: dict[str, Set[str]] = {}
        self._opened: dict[str, asyncio.Event] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._newest = ""

    @property
    def _modern(self) -> bool:
        return self._live.peer.era == "modern"

    async def run(self) -> None:
        """Renew earlier subscriptions, then keep them."""
        if self._modern:
            await self._keep_held()
        for uri in self._resumed:
            try:
                await self._ask("resources/subscribe", uri)
                self._missed(uri)
            except WireError as fault:
                log.warning("%s: %s is no longer subscribed: %s", self._live.channel.server, uri, fault)

    async def add(self, uri: str) -> None:
        """Subscribe to one more URI, which is already in `wanted`.

        Raises:
            WireError: The server does not support it.
        """
        if not self._modern:
            await self._ask("resources/subscribe", uri)
            return
        waiter = self._waiting.get(uri)
        if waiter is None:
            waiter = self._waiting[uri] = asyncio.get_running_loop().create_future()
            self._changed.set()
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(waiter)
        except TimeoutError:
            raise WireError("no response in time", kind="timeout", outcome="unknown") from None
        finally:
            self._waiting.pop(uri, None)

    async def remove(self, uri: str) -> None:
        """Unsubscribe from one URI.

        Raises:
            WireError: The server refused.
        """
        if self._modern:
            self._changed.set()
        else:
            await self._ask("resources/unsubscribe", uri)

    def acknowledged(self, key: str, params: Mapping[str, Any]) -> None:
        """The server acknowledged one of our subscriptions."""
        asked = self._held.get(key)
        if asked is None:
            return
        self._newest = key
        said = params.get("notifications")
        accepted = cast("Mapping[str, Any]", said).get("resourceSubscriptions", ()) if said else asked
        for uri in asked:
            waiter = self._waiting.get(uri)
            if waiter is not None and not waiter.done():
                if uri in accepted:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(_unwatched())
        self._opened[key].set()

    def is_newest(self, key: str) -> bool:
        """Whether to use a notification: while a subscription is replaced, both send the same ones."""
        return not key.startswith(PREFIX) or key == self._newest

    async def _ask(self, method: str, uri: str) -> None:
        await self._live.ask(method, {"uri": uri}, timeout=self._timeout)

    # --- the 2026 era: one held request for all ---------------------------------------------------

    async def _keep_held(self) -> None:
        async with anyio.create_task_group() as tasks:
            before: anyio.CancelScope | None = None
            while True:
                self._changed.clear()
                uris, scope = frozenset(self._wanted), anyio.CancelScope()
                if uris:
                    # The old one is cancelled when the new one is active, so that nothing is missed.
                    await tasks.start(self._hold, uris, scope)
                if before is not None:
                    before.cancel()
                before = scope
                await self._changed.wait()

    async def _hold(
        self,
        uris: frozenset[str],
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep one `subscriptions/listen` open; reopen it when it ends."""
        wait, gap = FIRST_WAIT, uris & self._resumed
        started = False
        with scope:
            while True:
                key = f"{PREFIX}{self._live.next_number()}"
                self._held[key], self._opened[key] = uris, asyncio.Event()
                held = asyncio.ensure_future(self._listen(key, uris))
                try:
                    opened = asyncio.ensure_future(self._opened[key].wait())
                    await asyncio.wait({held, opened}, return_when=asyncio.FIRST_COMPLETED)
                    opened.cancel()
                    if self._opened[key].is_set():
                        wait = FIRST_WAIT
                        for uri in gap:
                            self._missed(uri)
                    if not started:
                        started = True
                        task_status.started()
                    fault = await held
                finally:
                    held.cancel()
                    del self._held[key], self._opened[key]
                if fault is not None and fault.code == METHOD_NOT_FOUND:
                    self._refused(uris)
                    return
                gap = uris
                await anyio.sleep(wait * random.uniform(0.8, 1.2))
                wait = min(wait * 2, LONGEST_WAIT)

    async def _listen(self, key: str, uris: frozenset[str]) -> WireError | None:
        params = {"notifications": {"resourceSubscriptions": sorted(uris)}}
        try:
            await self._live.ask("subscriptions/listen", params, timeout=None, request_id=key)
        except WireError as fault:
            return fault
        return None

    def _refused(self, uris: Set[str]) -> None:
        for uri in uris:
            waiter = self._waiting.get(uri)
            if waiter is not None and not waiter.done():
                waiter.set_exception(_unwatched())


def _unwatched() -> WireError:
    return WireError(
        "the server does not announce changes of this resource",
        kind="answer",
        outcome="failed",
        code=METHOD_NOT_FOUND,
    )


RESOURCES_CHANGED = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
OURS = frozenset(
    (*LIST_CHANGED, *NOTICES, ACKNOWLEDGED, UPDATED, "notifications/progress", "notifications/cancelled")
)
"""Notifications that the connection handles. All others are forwarded to the caller."""


class NotificationRouter:
    """Routes the notifications of one server, over all of its connections."""

    def __init__(
        self,
        server: str,
        *,
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        mark_dirty: Callable[[], None],
        heard: Callable[[str, Mapping[str, Any], Sequence[ForwardedRequest]], None],
    ) -> None:
        self._server, self._emit, self._mark_dirty = server, emit, mark_dirty
        self._other = heard
        self._stale = partial(stale, server)
        self.watched: set[str] = set()
        """URIs of subscribed resources, on this connection and the next."""
        self.session: str | None = None
        """The session that owns the connection; None for the shared one."""
        self.watching: ResourceSubscriptions | None = None
        """The subscriptions on the active connection."""
        self.announce: Callable[[str], None] | None = None
        """Called with the server when it announces that one of its lists changed; set by a cluster."""

    def attach(self, live: ActiveConnection, freshness: Freshness) -> None:
        """Receive the notifications of a new connection."""
        live.channel.on_notice = partial(self._heard, live, freshness)
        live.channel.on_gap = self.missed

    def connected(self, live: ActiveConnection, timeout: float) -> None:
        """Mark cached resources as stale, and subscribe again on the new connection."""
        self._stale(None)
        self.watching = ResourceSubscriptions(
            live, self.watched, timeout, partial(self._updated, missed=True)
        )
        live.channel.spawn(self.watching.run)

    def relisted(self, old: Snapshot, new: Snapshot) -> None:
        """Mark cached resources as stale if the list of resources changed."""
        if old.resources != new.resources:
            self._stale(None)

    def missed(self) -> None:
        """Notifications may have been lost: mark resources and lists as stale."""
        self._stale(None)
        self._mark_dirty()

    def _heard(
        self, live: ActiveConnection, freshness: Freshness, method: str, params: Mapping[str, Any]
    ) -> None:
        if method in LIST_CHANGED:
            if method == RESOURCES_CHANGED:
                self._stale(None)
            freshness.announced(method)
            self._mark_dirty()
            if self.announce is not None and self.session is None:
                self.announce(self._server)
        elif method == ACKNOWLEDGED:
            key = subscription_id(params)
            if key.startswith(PREFIX) and self.watching is not None:
                self.watching.acknowledged(key, params)
            elif key not in live.task_keys:
                freshness.acknowledged()
        elif method == UPDATED and isinstance(uri := params.get("uri"), str):
            if self.watching is None or self.watching.is_newest(subscription_id(params)):
                self._updated(uri)
        elif method in NOTICES and (notify := live.task_news.get(str(params.get("taskId")))) is not None:
            notify()
        elif method == VISITED and (done := live.visited.get(str(params.get("elicitationId")))) is not None:
            done.set()
        elif method not in OURS:
            self._other(method, params, live.channel.forwarded_requests)

    def _updated(self, uri: str, missed: bool = False) -> None:
        self._stale(uri)
        if uri in self.watched:  # ignore updates of resources without a subscription
            self._emit(ResourceUpdated(server=self._server, uri=uri, missed=missed, session=self.session))
