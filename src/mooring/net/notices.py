"""What a server says unasked, taken to whom it concerns: lists, resources, tasks, subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mooring.core.events import Event, ResourceUpdated
from mooring.core.types import Snapshot
from mooring.net.freshness import ACKNOWLEDGED, LIST_CHANGED, Freshness
from mooring.net.live import Live
from mooring.net.passage import Passage
from mooring.net.tasks import NOTICES
from mooring.net.watching import PREFIX, Watching, subscription_id

RESOURCES_CHANGED = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
OURS = frozenset(
    (*LIST_CHANGED, *NOTICES, ACKNOWLEDGED, UPDATED, "notifications/progress", "notifications/cancelled")
)
"""What concerns the connection. All else is said to whoever called, known to us or not."""


class Notices:
    """The notices of one server, over all of its connections."""

    def __init__(
        self,
        server: str,
        *,
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        mark_dirty: Callable[[], None],
        heard: Callable[[str, Mapping[str, Any], Sequence[Passage]], None],
    ) -> None:
        self._server, self._emit, self._mark_dirty = server, emit, mark_dirty
        self._other = heard
        self._stale = partial(stale, server)
        self.watched: set[str] = set()
        """URIs of resources whose changes are told, on this connection and on the next."""
        self.session: str | None = None
        """Whose connection alone it is; None: everybody's."""
        self.watching: Watching | None = None
        """What keeps up the subscriptions on the connection that is up."""

    def attach(self, live: Live, freshness: Freshness) -> None:
        """Hear a new connection."""
        live.channel.on_notice = partial(self._heard, live, freshness)
        live.channel.on_gap = self.missed

    def connected(self, live: Live, timeout: float) -> None:
        """The connection is up: what was read over an older one may be old, and is watched again."""
        self._stale(None)
        self.watching = Watching(live, self.watched, timeout, partial(self._updated, missed=True))
        live.channel.spawn(self.watching.run)

    def relisted(self, old: Snapshot, new: Snapshot) -> None:
        """Another list of resources tells, even where no notice does, that something changed."""
        if old.resources != new.resources:
            self._stale(None)

    def missed(self) -> None:
        """Notices may have been lost: nothing that was read or listed is certain."""
        self._stale(None)
        self._mark_dirty()

    def _heard(self, live: Live, freshness: Freshness, method: str, params: Mapping[str, Any]) -> None:
        if method in LIST_CHANGED:
            if method == RESOURCES_CHANGED:
                self._stale(None)
            freshness.announced(method)
            self._mark_dirty()
        elif method == ACKNOWLEDGED:
            key = subscription_id(params)
            if key.startswith(PREFIX) and self.watching is not None:
                self.watching.acknowledged(key, params)
            elif key not in live.task_keys:
                freshness.acknowledged()
        elif method == UPDATED and isinstance(uri := params.get("uri"), str):
            if self.watching is None or self.watching.heeds(subscription_id(params)):
                self._updated(uri)
        elif method in NOTICES and (tell := live.task_news.get(str(params.get("taskId")))) is not None:
            tell()
        elif method not in OURS:
            self._other(method, params, live.channel.passages)

    def _updated(self, uri: str, missed: bool = False) -> None:
        self._stale(uri)
        if uri in self.watched:  # no server fills the events with what nobody asked for
            self._emit(ResourceUpdated(server=self._server, uri=uri, missed=missed, session=self.session))
