"""How the catalog learns that a server offers something else now, in either era.

Handshake servers push notices; 2026-07-28 servers push them on a held subscription. Where nothing is
pushed, the server's own cache hint and a slow sweep bound how old a listing may be.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio

from mooring.net.live import Live
from mooring.net.message import METHOD_NOT_FOUND, WireError
from mooring.net.rpc import log

DEBOUNCE = 0.2
"""Notices within so many seconds cost one listing."""
LIST_CHANGED = {f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
FIRST_WAIT, LONGEST_WAIT = 0.25, 2.0
PATIENCE = 60.0
"""So long a subscription is tried again and again; then the whole connection is held for lost."""
MIN_SWEEP = 10.0


class Freshness:
    """Keeps one live connection's lists fresh; runs beside it."""

    def __init__(
        self, live: Live, sweep: float, mark_dirty: Callable[[], None], missed: Callable[[], None]
    ) -> None:
        self._live = live
        self._sweep = sweep
        self._mark_dirty = mark_dirty
        self._missed = missed
        self._pushed = live.peer.era == "legacy" and self._announces()
        self._acknowledged = anyio.Event()
        self._stood = False
        self._listings = 0
        self._failures = 0

    @property
    def bound(self) -> float:
        """Seconds after which a change is known at the latest."""
        return DEBOUNCE if self._pushed else self._period()

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_sweeping)
            if self._live.peer.era == "modern" and self._announces():
                tasks.start_soon(self._keep_subscribed)

    def acknowledged(self) -> None:
        """The held subscription stands."""
        self._pushed = True
        if self._listings:
            # Nothing is replayed: what changed before this moment is only in the lists.
            self._missed() if self._stood else self._mark_dirty()
        self._stood = True
        self._acknowledged.set()

    def listed(self) -> None:
        self._listings += 1
        self._failures = 0

    def failed(self) -> None:
        """A listing failed: try again soon, but not at once."""
        self._failures += 1
        self._live.channel.spawn(self._retry)

    async def _retry(self) -> None:
        await anyio.sleep(min(2.0**self._failures, self._sweep))
        self._mark_dirty()

    def _announces(self) -> bool:
        return bool(self._kinds())

    def _kinds(self) -> list[str]:
        offered = self._live.peer.info.capabilities
        legacy = self._live.peer.era == "legacy"
        return [
            kind
            for kind in ("tools", "prompts", "resources")
            # Handshake servers send notices even where they do not promise them.
            if isinstance(found := offered.get(kind), Mapping)
            and (legacy or cast("Mapping[str, Any]", found).get("listChanged"))
        ]

    async def _keep_subscribed(self) -> None:
        """Hold one `subscriptions/listen`; open it again when it drops."""
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
                    return  # it promised notices and cannot send them: the sweep must do
            self._pushed = False
            self._listings += 1
            now = anyio.current_time()
            if self._acknowledged.is_set():
                wait, since = FIRST_WAIT, now
            elif now - since > PATIENCE:
                self._live.channel.die("its subscription could not be opened again")
                return
            await anyio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _keep_sweeping(self) -> None:
        while True:
            await anyio.sleep(self._period() * random.uniform(0.9, 1.1))
            self._mark_dirty()

    def _period(self) -> float:
        hint = self._live.ttl
        return self._sweep if not hint else max(min(hint, self._sweep), MIN_SWEEP)
