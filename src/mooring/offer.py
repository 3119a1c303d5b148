"""What may be shown of all that providers report: held against the pins and the policies, then merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooring.approval import Approver, Gatekeeper
from mooring.builtin import Builtin
from mooring.config.logs import logger
from mooring.core.catalog import Catalog, Diff
from mooring.core.config import HostConfig, ServerConfig, Style
from mooring.core.events import Event, ToolSetAside
from mooring.core.exposure import Exposure, Mode, always_shown, plan_exposure
from mooring.core.hidden import Hidden
from mooring.core.known import Known
from mooring.core.merging import Filter
from mooring.core.tokens import tool_cost
from mooring.core.types import Absence, Snapshot
from mooring.errors import NotTrusted, PolicyDenied
from mooring.fleet import Fleet
from mooring.muster import Shown, absence, await_tool
from mooring.pins import Memory, Pins
from mooring.shelf import Shelf
from mooring.tasks import within

if TYPE_CHECKING:
    from mooring.net.live import Guard

log = logger("mooring.host")

ARRIVAL = 60.0
"""How long a call waits, unless told otherwise, for a server that has not yet said what it offers."""


class Offer:
    """The way of a snapshot into the catalog of one host, and why a tool did not get there."""

    def __init__(
        self,
        fleet: Fleet,
        builtin: Builtin,
        *,
        local: frozenset[str],
        memory: Memory,
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
        self.gatekeeper = Gatekeeper(own=self.own, config=config, servers=fleet.configs, ask=ask, emit=emit)
        self.shelf = Shelf(
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

    def remember(self, memory: Memory) -> None:
        """From now on this is what was approved."""
        self.pins = Pins(memory, lambda tool: self._emit(ToolSetAside(tool=tool)), self._declared)

    # --- in and out -----------------------------------------------------------------------------

    def known(self, server: ServerConfig) -> Known | None:
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

    def exposure(self, mode: Mode) -> Exposure:
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

    async def arrival(self, tool: str, timeout: float | None, shown: Shown | None = None) -> None:
        """Wait until `tool` is in the catalog, or in what is `shown`, or no server could still bring it."""
        with within(ARRIVAL if timeout is None else timeout):
            await await_tool(
                self._fleet, tool, shown or self, known=shown is None and self.withheld(tool) is not None
            )

    def absence(self, tool: str, shown: Shown | None = None) -> Absence | None:
        """Why `tool` may be missing: a server that could own the name and is not connected."""
        return absence(self._fleet, tool, shown or self)
