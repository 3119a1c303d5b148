"""The catalog of a host: snapshots in, locked and filtered catalog out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from logging import INFO
from typing import TYPE_CHECKING

from mooring.concurrency import EventHub, OrderedCallback, Tasks
from mooring.config.logs import logger
from mooring.config.models import ServerConfig
from mooring.core.apps import RESERVED
from mooring.core.builtin_tools import READ_SKILL
from mooring.core.catalog import Catalog, Diff, Filter, diff, merge
from mooring.core.discovery import OWNER, Mode, VisibleTools, always_shown, plan_exposure
from mooring.core.events import CatalogChanged, Event, LoginNeeded, StateChanged, ToolSetAside
from mooring.core.names import LOGIN, Style
from mooring.core.search import Index
from mooring.core.text import tool_cost
from mooring.core.types import CachedSnapshot, Hidden, HiddenKind, Snapshot, Tool
from mooring.core.value import replace
from mooring.errors import NotTrusted, PolicyDenied
from mooring.lock.enforce import LockEnforcer, PinSource
from mooring.policy import PolicyEnforcer
from mooring.servers.state import CurrentConfig, ServerTable

if TYPE_CHECKING:
    from mooring.config.shaping import Transform
    from mooring.core.transforms import Shaped
    from mooring.servers.active import Guard

log = logger("mooring.catalog")

MAX_WARNINGS = 200
"""Warnings of merges that one host logs at most."""
MERGE_DELAY = 0.02
"""Seconds after which a change is merged and announced when there are listeners."""


class CatalogBuilder:
    """Builds the catalog of one host from the snapshots of its providers.

    A snapshot passes the lock when it is published, and the policy and the filters when the catalog is
    merged. Merging is lazy: snapshots that arrive together cost one merge, on the next access or, if there
    are listeners, after `MERGE_DELAY`. The class is also the unrestricted `ToolView` of a host.
    """

    def __init__(
        self,
        table: ServerTable,
        current: CurrentConfig,
        policy: PolicyEnforcer,
        events: EventHub,
        *,
        own: frozenset[str],
        pins: PinSource,
        declared: str,
        on_change: OrderedCallback | None,
    ) -> None:
        """
        Args:
            own: Names of the providers of the application's own functions and of mooring's built-in tools.
                Their tools keep their names, win every name clash and are not subject to lock and policy.
            pins: The lock or cache that snapshots are compared with.
            declared: Suffix that distinguishes the client capabilities of this host in the cache of
                snapshots.
            on_change: Called after each change of the catalog.
        """
        self._table, self._current, self._policy, self._events = table, current, policy, events
        self.own = own
        self._declared = declared
        self._on_change = on_change
        self._tasks: Tasks | None = None
        self._discovery_logged = False
        self._snapshots: dict[str, Snapshot] = {}
        self._cached: dict[str, CachedSnapshot] = {}
        """Snapshots of an earlier run, of servers that have not been listed in this one."""
        self._catalog = Catalog()
        self._index: tuple[Catalog, Index] | None = None
        self._stale = False
        self._warned: set[str] = set()
        self._shaped: dict[str, tuple[tuple[Tool, ...], Mapping[str, Transform], Shaped]] = {}
        """By server: its tools, its transforms, and the transformed tools."""
        self.use_pins(pins)
        events.observers.append(self._on_event)

    def use_pins(self, pins: PinSource) -> None:
        """Compare snapshots with this lock or cache from now on."""
        self.pins = LockEnforcer(pins, self._emit_set_aside, self._declared)

    def start(self, tasks: Tasks) -> None:
        """Run the `on_change` callback in these tasks from now on."""
        self._tasks = tasks

    # --- snapshots ------------------------------------------------------------------------------

    def load_cached(self, server: ServerConfig) -> CachedSnapshot | None:
        """Show the definitions in the lock or the cache until the server itself is listed."""
        cached = self.pins.known(server)
        if cached is not None:
            self._snapshots.pop(server.name, None)
            self._cached[server.name] = cached
            self.changed()
        return cached

    def publish(self, snapshot: Snapshot) -> Guard | None:
        """Replace the snapshot of a provider; tools that the lock does not approve are left out.

        Returns:
            The guard that compares requests with this listing; None if the lock does not block.
        """
        visible, guard = self.pins.evaluate(snapshot)
        self.put(visible)
        return guard

    def put(self, snapshot: Snapshot) -> None:
        """Replace the snapshot of a provider without consulting the lock."""
        self._cached.pop(snapshot.server, None)
        self._snapshots[snapshot.server] = _without_login(snapshot)
        self.changed()

    def withdraw(self, name: str) -> None:
        """Remove the snapshot of a provider."""
        self._cached.pop(name, None)
        self._snapshots.pop(name, None)
        self.changed()

    def snapshot(self, name: str) -> Snapshot | None:
        """Return the approved snapshot of a provider, live or cached."""
        if name in self._cached:
            self._snapshots[name] = _without_login(self._cached.pop(name).snapshot)
        return self._snapshots.get(name)

    def guard(self, snapshot: Snapshot) -> Guard | None:
        """Return the guard of a connection that does not publish to the catalog, for its listing."""
        return self.pins.guard_for(self.snapshot(snapshot.server), snapshot)

    # --- catalog --------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The merged catalog."""
        self._merge()
        return self._catalog

    @property
    def index(self) -> Index:
        """The search index of the catalog, built on first use and updated when the catalog changed."""
        catalog = self.catalog
        if self._index is None:
            self._index = (catalog, Index.of(catalog, self.pins.lock))
        elif self._index[0] is not catalog:
            self._index = (catalog, self._index[1].updated(catalog))
        return self._index[1]

    async def build_index(self) -> None:
        """Build the search index in a thread if there is none: thousands of tools would block the loop."""
        catalog = self.catalog
        if self._index is None:
            built = await asyncio.to_thread(Index.of, catalog, self.pins.lock)
            self._index = self._index or (catalog, built)

    @property
    def style(self) -> Style:
        return self._current.style

    def admits(self, server: str) -> bool:
        """Return True: every server is visible."""
        return True

    def changed(self) -> None:
        """Have the catalog merged again on the next access, or soon if there are listeners."""
        if self._stale:
            return
        self._stale = True
        if self._announced:
            with suppress(RuntimeError):  # no event loop yet
                asyncio.get_running_loop().call_later(MERGE_DELAY, self._merge)

    @property
    def _announced(self) -> bool:
        """Whether a stream or a callback receives changes."""
        return bool(self._events.streams) or self._on_change is not None

    def _merge(self) -> None:
        if not self._stale:
            return
        self._stale = False
        for name in list(self._cached):
            self.snapshot(name)
        old = self._catalog
        configs = self._table.configs
        filters = {name: Filter(allow=one.allow, deny=one.deny) for name, one in configs.items()}
        snapshots = {
            name: self._transformed(snapshot)
            for name, snapshot in self._snapshots.items()
            if name not in self.own
        }
        for name, tool in self._table.logins().items():
            snapshot, passing = snapshots.get(name, Snapshot(server=name)), filters[name]
            snapshots[name] = replace(snapshot, tools=(*snapshot.tools, tool))
            filters[name] = replace(passing, allow=(*passing.allow, tool.remote_name))
        self._catalog = merge(
            map(self._policy.listed, snapshots.values()),
            style=self._current.style,
            filters=filters,
            static=[self._usable(one) for name, one in self._snapshots.items() if name in self.own],
            description_prefix=self._current.config.description_prefix,
            configured=self._table.names - self.own,
            previous=old,
        )
        self._warn(self._catalog.warnings)
        for shaped in self._shaped.values():
            self._warn(shaped[2].warnings)
        if self._announced and (change := diff(old, self._catalog)):
            self._announce(change)

    def _usable(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot of own tools; of the built-in ones those that have something to read."""
        if snapshot.server != OWNER:
            return snapshot
        servers = self._snapshots.values()
        readable = any(one.resources or one.templates for one in servers)
        skilled = any(one.skills for one in servers) or self.pins.hides_skills  # it explains why
        tools = tuple(tool for tool in snapshot.tools if (skilled if tool.name == READ_SKILL else readable))
        return replace(snapshot, tools=tools)

    def _announce(self, change: Diff) -> None:
        if self._events.streams:  # the revision is a hash of the whole catalog
            self._events.emit(CatalogChanged(revision=self._catalog.revision, **vars(change)))
        if self._on_change is not None and self._tasks is not None:
            self._tasks.start_from_anywhere(self._on_change)

    def _transformed(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the transforms of its server. The lock was applied to the original."""
        name, server = snapshot.server, self._table.configs.get(snapshot.server)
        if server is None or not server.transforms:
            self._shaped.pop(name, None)
            return snapshot
        known = self._shaped.get(name)
        if known is None or known[0] is not snapshot.tools or known[1] is not server.transforms:
            from mooring.core.transforms import shape_tools  # lazy: most servers have none

            shaped = shape_tools(snapshot.tools, server.transforms)
            known = self._shaped[name] = (snapshot.tools, server.transforms, shaped)
        return replace(snapshot, tools=known[2].tools)

    def shape_warnings(self, server: str) -> tuple[str, ...]:
        """Return the problems of the transforms of a server."""
        _ = self.catalog
        known = self._shaped.get(server)
        return () if known is None else known[2].warnings

    def _warn(self, warnings: Sequence[str]) -> None:
        """Log each warning once, and at most `MAX_WARNINGS` of them."""
        for warning in warnings:
            if warning not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(warning)
                log.warning("%s", warning)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, LoginNeeded) or (isinstance(event, StateChanged) and event.new == "failed"):
            self.changed()  # the tool that starts a login appears or disappears

    def _emit_set_aside(self, tool: str) -> None:
        self._events.emit(ToolSetAside(tool=tool))

    # --- visibility -----------------------------------------------------------------------------

    def withheld(self, tool: str) -> PolicyDenied | NotTrusted | None:
        """Return the error for a tool name that the lock, the policy or a missing approval hides."""
        style = self._current.style
        if (reserved := self.catalog.app_tools.get(tool)) is not None:
            return PolicyDenied(
                f"{tool!r} is not called: {RESERVED}",
                server=reserved.server,
                tool=reserved.remote_name,
                reason=RESERVED,
            )
        return (
            self.pins.explain(tool, style)
            or self._policy.explain(tool, style)
            or self._table.withheld(tool, style)
        )

    def hidden(self) -> tuple[Hidden, ...]:
        """Return the servers, tools, resources and prompts that the catalog leaves out, sorted by server."""
        _ = self.catalog  # the policy is applied when the catalog is merged
        found = [
            Hidden(
                server=name,
                kind="server",
                name=None,
                by="trust",
                reason="the file that names it was not approved",
            )
            for name in self._table.held
        ]
        found += [one for one in self.pins.hidden() if one.server in self._table.configs]
        for name, denied in self._policy.denied.items():
            found += [
                Hidden(server=name, kind="tool", name=tool, by="policy", reason=why)
                for tool, why in denied.items()
            ]
        for name, (_, _, shaped) in self._shaped.items():
            found += [
                Hidden(server=name, kind="tool", name=one, by="transform", reason=why)
                for one, why in shaped.hidden.items()
            ]
        for tool in self.catalog.app_tools.values():
            own = tool.remote_name
            found.append(Hidden(server=tool.server, kind="tool", name=own, by="visibility", reason=RESERVED))
        for name, server in self._table.configs.items():
            chosen, snapshot = Filter(allow=server.allow, deny=server.deny), self.snapshot(name)
            for tool in snapshot.tools if snapshot is not None and chosen.restricts else ():
                if not chosen.passes(tool.remote_name):
                    why = "`allow` or `deny` of the server"
                    one = Hidden(server=name, kind="tool", name=tool.remote_name, by="filter", reason=why)
                    found.append(one)
        return tuple(
            sorted(set(found), key=lambda one: (one.server, one.by, _ORDER[one.kind], one.name or ""))
        )

    def exposure(self, mode: Mode) -> VisibleTools:
        """Return the tools that a new session shows: the whole catalog, or discovery tools and those with
        `always`."""
        catalog, budget = self.catalog, self._current.config.discovery_budget
        globs = {name: server.always for name, server in self._table.configs.items() if server.always}
        planned = plan_exposure(catalog, mode, budget, always_shown(catalog, globs))
        logs = mode == "auto" and planned.discovery and not self._discovery_logged
        if logs and log.isEnabledFor(INFO):  # the sum takes long for thousands of tools
            self._discovery_logged = True
            log.info(
                "discovery switched on: tools=%d tokens=%d discovery_budget=%d; models see tools_groups, "
                "tools_search and tools_select instead of every tool. To show every tool: "
                'Host(discovery="never"), host.session(discovery="never"), or `discovery: never` in the '
                "configuration file",
                len(catalog.tools),
                sum(map(tool_cost, catalog.tools.values())),
                budget,
            )
        return planned


_ORDER: Mapping[HiddenKind, int] = {
    "server": 0,
    "tool": 1,
    "resource": 2,
    "template": 3,
    "prompt": 4,
    "skill": 5,
}


def _without_login(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without a tool that has the reserved name of mooring's login tool."""
    if all(tool.remote_name != LOGIN for tool in snapshot.tools):
        return snapshot
    return replace(snapshot, tools=tuple(tool for tool in snapshot.tools if tool.remote_name != LOGIN))
