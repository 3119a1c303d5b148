"""What every provider offers now, merged into one catalog when somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from mooring.config.logs import logger
from mooring.core.catalog import Catalog, Diff, diff
from mooring.core.config import HostConfig, ServerConfig
from mooring.core.known import Known
from mooring.core.merging import Filter, merge
from mooring.core.names import LOGIN, Style
from mooring.core.pin import Lock
from mooring.core.search import Index
from mooring.core.types import Snapshot, Tool
from mooring.core.values import replace

log = logger("mooring.catalog")

MOST_WARNINGS = 200
"""Warnings of merges that one host logs."""
MERGE_WITHIN = 0.02
"""Seconds within which a change of the catalog is told to those who do not look at it."""


class Shelf:
    """The snapshots of one host, its catalog and the index of that: each made anew only when needed."""

    def __init__(
        self,
        *,
        own: frozenset[str],
        style: Callable[[], Style],
        config: Callable[[], HostConfig],
        servers: Mapping[str, ServerConfig],
        configured: Callable[[], frozenset[str]],
        listed: Callable[[Snapshot], Snapshot],
        logins: Callable[[], Mapping[str, Tool]],
        lock: Callable[[], Lock | None],
        awaited: Callable[[], bool],
        announce: Callable[[Diff], None],
    ) -> None:
        self._own = own
        """Names of the providers whose tools win every clash of names."""
        self._style, self._config, self._servers, self._announce = style, config, servers, announce
        self._configured = configured
        """Names of all servers that may come to run."""
        self._awaited = awaited
        """Whether anybody wants to hear of a change at once."""
        self._listed = listed
        """What of a snapshot may be shown."""
        self._logins, self._lock = logins, lock
        self._snapshots: dict[str, Snapshot] = {}
        self._known: dict[str, Known] = {}
        """Of providers that have not yet spoken, by name; what they have said counts before it."""
        self._catalog = Catalog()
        self._index: tuple[Catalog, Index] | None = None
        self._stale = False
        self._warned: set[str] = set()

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now."""
        self._merge()
        return self._catalog

    @property
    def index(self) -> Index:
        """The search index of the catalog: made when first needed, then kept up with its changes."""
        catalog = self.catalog
        if self._index is None:
            self._index = (catalog, Index.of(catalog, self._lock()))
        elif self._index[0] is not catalog:
            self._index = (catalog, self._index[1].updated(catalog))
        return self._index[1]

    @property
    def has_resources(self) -> bool:
        """Whether any server has something to read."""
        return any(one.resources or one.templates for one in self._snapshots.values()) or any(
            known.templates for known in self._known.values()
        )

    def put(self, snapshot: Snapshot) -> None:
        """A provider offers this now."""
        self._known.pop(snapshot.server, None)
        self._snapshots[snapshot.server] = _genuine(snapshot)
        self.changed()

    def expect(self, name: str, known: Known) -> None:
        """A provider that has not spoken offered this the last time."""
        self._snapshots.pop(name, None)
        self._known[name] = known
        self.changed()

    def offered(self, name: str) -> Snapshot | None:
        """What a provider offers now, as far as it may be shown."""
        if name in self._known:
            self._snapshots[name] = _genuine(self._known.pop(name).snapshot)
        return self._snapshots.get(name)

    def drop(self, name: str) -> None:
        """A provider is gone."""
        self._known.pop(name, None)
        self._snapshots.pop(name, None)
        self.changed()

    def changed(self) -> None:
        """Snapshots that arrive together cost one merge: whoever looks, or the next moment, merges."""
        if self._stale:
            return
        self._stale = True
        if self._awaited():
            with suppress(RuntimeError):  # no loop yet
                asyncio.get_running_loop().call_later(MERGE_WITHIN, self._merge)

    def _merge(self) -> None:
        if not self._stale:
            return
        self._stale = False
        for name in list(self._known):
            self.offered(name)
        old, config = self._catalog, self._config()
        filters = {name: Filter(allow=one.allow, deny=one.deny) for name, one in self._servers.items()}
        offers = {name: snapshot for name, snapshot in self._snapshots.items() if name not in self._own}
        for name, tool in self._logins().items():
            offer, allowed = offers.get(name, Snapshot(server=name)), filters[name]
            offers[name] = replace(offer, tools=(*offer.tools, tool))
            filters[name] = replace(allowed, allow=(*allowed.allow, tool.remote_name))
        self._catalog = merge(
            map(self._listed, offers.values()),
            style=self._style(),
            filters=filters,
            static=[snapshot for name, snapshot in self._snapshots.items() if name in self._own],
            description_prefix=config.description_prefix,
            configured=self._configured(),
            previous=old,
        )
        self._warn(self._catalog.warnings)
        if self._awaited() and (change := diff(old, self._catalog)):
            self._announce(change)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Log each warning of a merge once. A server that keeps making new ones is not logged for ever."""
        for warning in warnings:
            if warning not in self._warned and len(self._warned) < MOST_WARNINGS:
                self._warned.add(warning)
                log.warning("%s", warning)


def _genuine(snapshot: Snapshot) -> Snapshot:
    """The snapshot without a tool that passes for the one that begins a login: that one is ours to add."""
    if all(tool.remote_name != LOGIN for tool in snapshot.tools):
        return snapshot
    return replace(snapshot, tools=tuple(tool for tool in snapshot.tools if tool.remote_name != LOGIN))
