"""The catalog of a host: snapshots in, locked and filtered catalog out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from mooring.concurrency import within
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.core.catalog import Catalog, Diff, Filter, diff, merge
from mooring.core.discovery import Mode, VisibleTools, always_shown, plan_exposure
from mooring.core.events import Event, ToolSetAside
from mooring.core.names import LOGIN, Style
from mooring.core.search import Index
from mooring.core.tokens import tool_cost
from mooring.core.types import Absence, CachedSnapshot, Hidden, Snapshot, Tool
from mooring.core.value import replace
from mooring.errors import NotTrusted, PolicyDenied
from mooring.lock.enforce import LockEnforcer, PinSource
from mooring.lock.model import Lock
from mooring.policy import Approver, PolicyEnforcer
from mooring.servers.manager import ServerManager
from mooring.servers.waiting import ToolView, absence, await_tool

if TYPE_CHECKING:
    from mooring.servers.active import Guard

log = logger("mooring.catalog")


MOST_WARNINGS = 200
"""Warnings of merges that one host logs."""
MERGE_WITHIN = 0.02
"""Seconds within which a change of the catalog is told to those who do not look at it."""


class OptionalProvider(Protocol):
    """A provider whose tools are shown only while they are of use."""

    shown: bool

    @property
    def name(self) -> str: ...
    @property
    def snapshot(self) -> Snapshot: ...


class SnapshotStore:
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
        self._known: dict[str, CachedSnapshot] = {}
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

    def expect(self, name: str, known: CachedSnapshot) -> None:
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


ARRIVAL = 60.0
"""How long a call waits, unless told otherwise, for a server that has not yet said what it offers."""


class CatalogBuilder:
    """The way of a snapshot into the catalog of one host, and why a tool did not get there."""

    def __init__(
        self,
        fleet: ServerManager,
        builtin: OptionalProvider,
        *,
        local: frozenset[str],
        memory: PinSource,
        declared: str,
        style: Callable[[], Style],
        config: Callable[[], HostConfig],
        ask: Approver | None,
        emit: Callable[[Event], None],
        awaited: Callable[[], bool],
        announce: Callable[[Diff], None],
    ) -> None:
        self.own = local | {builtin.name}
        """The providers of the application's own functions and of mooring's."""
        self._fleet, self._builtin = fleet, builtin
        self._style, self._config, self._emit = style, config, emit
        self._switched = False
        """Whether the log says that discovery was switched on."""
        self._declared = declared
        self.remember(memory)
        self.gatekeeper = PolicyEnforcer(
            own=self.own, config=config, servers=fleet.configs, ask=ask, emit=emit
        )
        self.shelf = SnapshotStore(
            own=self.own,
            style=style,
            config=config,
            servers=fleet.configs,
            configured=lambda: fleet.names - self.own,
            listed=self.gatekeeper.listed,
            logins=fleet.logins,
            lock=lambda: self.pins.lock,
            awaited=awaited,
            announce=announce,
        )

    def remember(self, memory: PinSource) -> None:
        """From now on this is what was approved."""
        self.pins = LockEnforcer(memory, lambda tool: self._emit(ToolSetAside(tool=tool)), self._declared)

    # --- in and out -----------------------------------------------------------------------------

    def known(self, server: ServerConfig) -> CachedSnapshot | None:
        """What a server offered the last time: the catalog has it before the server runs."""
        known = self.pins.known(server)
        if known is not None:
            self.shelf.expect(server.name, known)
            self._offer_reading()
        return known

    def publish(self, snapshot: Snapshot) -> Guard | None:
        """Show what a provider offers now, except for what was not approved.

        Return what compares requests with this listing; None where the lock enforces nothing.
        """
        visible, guard = self.pins.judge(snapshot)
        self.shelf.put(visible)
        self._offer_reading()
        return guard

    def withdraw(self, name: str) -> None:
        """A provider is gone."""
        self.shelf.drop(name)
        self._offer_reading()

    def _offer_reading(self) -> None:
        """Show the tools that read resources while there are any."""
        if self._builtin.shown != self.shelf.has_resources:
            self._builtin.shown = self.shelf.has_resources
            self.shelf.put(self._builtin.snapshot)

    # --- for sessions ---------------------------------------------------------------------------

    def withheld(self, tool: str) -> PolicyDenied | NotTrusted | None:
        """Why a tool is not shown, if it was set aside, is denied, or its server was not approved."""
        whys = (self.pins.explain, self.gatekeeper.explain, self._fleet.withheld)
        return next((why for ask in whys if (why := ask(tool, self._style())) is not None), None)

    def hidden(self) -> tuple[Hidden, ...]:
        """What servers offer, or would offer, and the catalog does not show; sorted."""
        _ = self.shelf.catalog  # the policy is applied when the catalog is merged
        found = [
            Hidden(server=name, tool=None, by="trust", reason="the file that names it was not approved")
            for name in self._fleet.held
        ]
        for name, aside in self.pins.set_aside.items():
            for tool, change in aside.items():
                why = (
                    "not in the lock" if change.kind == "added" else f"changed since approval: {change.kind}"
                )
                found.append(Hidden(server=name, tool=tool, by="lock", reason=why))
        for name, denied in self.gatekeeper.denied.items():
            found += [Hidden(server=name, tool=tool, by="policy", reason=why) for tool, why in denied.items()]
        for name, server in self._fleet.configs.items():
            chosen, offer = Filter(allow=server.allow, deny=server.deny), self.shelf.offered(name)
            for tool in offer.tools if offer is not None and chosen.choosy else ():
                if not chosen.passes(tool.remote_name):
                    why = "`allow` or `deny` of the server"
                    found.append(Hidden(server=name, tool=tool.remote_name, by="filter", reason=why))
        return tuple(sorted(set(found), key=lambda one: (one.server, one.by, one.tool or "")))

    def exposure(self, mode: Mode) -> VisibleTools:
        """What a new session shows its model: everything, or discovery and what is always loaded."""
        catalog, config = self.shelf.catalog, self._config()
        globs = {name: server.always for name, server in self._fleet.configs.items() if server.always}
        always = always_shown(catalog, globs)
        planned = plan_exposure(catalog, mode, config.discovery_budget, always)
        if mode == "auto" and planned.discovery and not self._switched:
            self._switched = True
            log.info(
                "discovery switched on: tools=%d tokens=%d discovery_budget=%d; models see tools_groups, "
                "tools_search and tools_select instead of every tool. To show every tool: "
                'Host(discovery="never"), host.session(discovery="never"), or `discovery: never` in the '
                "configuration file",
                len(catalog.tools),
                sum(map(tool_cost, catalog.tools.values())),
                config.discovery_budget,
            )
        return planned

    @property
    def catalog(self) -> Catalog:
        return self.shelf.catalog

    @property
    def style(self) -> Style:
        return self._style()

    def admits(self, server: str) -> bool:
        """Every server is shown."""
        return True

    async def arrival(self, tool: str, timeout: float | None, shown: ToolView | None = None) -> None:
        """Wait until `tool` is in the catalog, or in what is `shown`, or no server could still bring it."""
        with within(ARRIVAL if timeout is None else timeout):
            await await_tool(
                self._fleet, tool, shown or self, known=shown is None and self.withheld(tool) is not None
            )

    def absence(self, tool: str, shown: ToolView | None = None) -> Absence | None:
        """Why `tool` may be missing: a server that could own the name and is not connected."""
        return absence(self._fleet, tool, shown or self)
