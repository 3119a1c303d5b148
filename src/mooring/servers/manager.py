"""The servers and providers of a host: start, stop, add, remove and replace them while the host runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from mooring.concurrency import EventHub, Tasks, shielded, side_by_side
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.plan import Plan, plan
from mooring.config.validate import kind
from mooring.core.events import Event, ServerRemoved
from mooring.core.text import nearest
from mooring.core.types import CachedSnapshot, ServerStatus, Snapshot
from mooring.core.value import replace
from mooring.errors import NotTrusted, UnknownServer
from mooring.local import Provider
from mooring.policy import Trust
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.launcher import Launcher, OwnHeaders
from mooring.servers.state import Place, ServerLoad, ServerTable

if TYPE_CHECKING:
    from mooring.servers.connection import Connection

log = logger("mooring.host")


class ServerManager:
    """The connections to servers, and the other providers."""

    def __init__(
        self,
        table: ServerTable,
        catalog: CatalogBuilder,
        launcher: Launcher,
        trust: Trust,
        events: EventHub,
        *,
        forget: Callable[[str, str | None], None],
    ) -> None:
        """
        Args:
            forget: Called with a server and a URI (None: all) when cached resources are out of date.
        """
        self.table = table
        self.connections, self.configs, self.providers = table.connections, table.configs, table.providers
        self._replaced: dict[str, Connection] = {}
        """Connections that are being closed and already have a replacement."""
        self._private: set[Connection] = set()
        """Connections of one session each, and of servers that are being added."""
        self._lazy: dict[str, CachedSnapshot | None] = {}
        """Servers without a connection: lazy ones before their first use, with their cached snapshot. They
        cost no task, and the network code is not imported for them."""
        self._catalog, self._launcher, self._trust = catalog, launcher, trust
        self._emit, self.forget = events.emit, forget
        self._tasks: Tasks | None = None
        self.changing = asyncio.Lock()
        """Held while the set of servers changes; a change is planned when the one before has ended."""
        self.providers_started = asyncio.Event()
        """Set when `start` of every provider has returned or failed."""
        self.place_of: Callable[[ServerConfig], Place] | None = None
        """Decides which node runs a server that has `placement: cluster`; set by a cluster."""
        self.announce: Callable[[str], None] | None = None
        """Called with a server that announces that its lists changed; set by a cluster."""
        launcher.guard = catalog.guard

    # --- start and stop ---------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the host was entered."""
        return self._tasks is not None

    def check_started(self) -> None:
        """Raise RuntimeError before the start."""
        if self._tasks is None:
            raise RuntimeError("The Host is not running. Use it inside `async with Host(...) as host:`.")

    async def start(self, config: HostConfig, tasks: Tasks) -> None:
        """Start all servers and providers; return when the eager servers have connected or failed."""
        self._tasks, self._launcher.config = tasks, config
        for provider in self.providers.values():
            self._catalog.publish(provider.snapshot)
        tasks.start_soon(self._start_providers)
        self.table.held = await self._trust.held(config.active)
        self._warn_held({})
        active = {server.name for server in config.active} - self.table.held.keys()
        for server in config.servers:
            self._place(server, enabled=server.name in active)
        for connection in list(self.connections.values()):
            if connection.config.start == "eager":
                await connection.settled.wait()

    async def stop(self) -> None:
        """Stop all servers and providers concurrently. Idempotent; never raises."""
        connections = (*self.connections.values(), *self._replaced.values(), *self._private)
        stopping = [
            *(connection.stop() for connection in connections),
            *(self._stop_provider(provider) for provider in self.providers.values()),
        ]
        if len(stopping) == 1:  # mooring's own tools: no server was started, and anyio is not needed
            await stopping[0]
        else:
            await side_by_side(stopping)
        await self._launcher.close()

    # --- change ---------------------------------------------------------------------------------

    async def add(self, server: ServerConfig, *, enabled: bool) -> None:
        """Add a server; connect and list it if it is `enabled`.

        Its state, tools and events become visible only after that has succeeded.

        Raises:
            ConfigError: The name is taken.
            NotTrusted: The file that names it is not approved.
            MooringError: It cannot be connected.
        """
        name = server.name
        self.table.check_free(name)
        self.table.adding.add(name)
        try:
            for problem in (await self._trust.held([server])).values():
                raise problem
            if enabled:
                await self._add_connected(server)
                return
            async with self.changing:
                self.table.check_free(name, adding=True)
                self._place(server, enabled=False)
                self._catalog.withdraw(name)
        finally:
            self.table.adding.discard(name)

    async def _add_connected(self, server: ServerConfig) -> None:
        gate = _StartGate(self._emit)
        connection = self._launcher.connection(server, enabled=True, publish=gate.publish, emit=gate.emit)
        self._private.add(connection)
        self._launch(connection, shown=False)
        try:
            await connection.refresh()
            async with self.changing:
                self.table.check_free(server.name, adding=True)  # a reload may have added one of that name
                self._show(server, connection, gate)
        except BaseException:
            with shielded():
                await self.end(connection)
            raise

    def _show(self, server: ServerConfig, connection: Connection, gate: _StartGate) -> None:
        """Show an added server that is connected."""
        self._private.discard(connection)
        self.configs[server.name], self.connections[server.name] = server, connection
        self._catalog.load_cached(server)
        connection.supervisor.publish = self._catalog.publish
        gate.open()
        for snapshot in gate.snapshots[-1:]:
            connection.supervisor.guard = self._catalog.publish(snapshot)

    async def remove(self, name: str) -> None:
        """Remove the tools of a server from the catalog, then stop it.

        Raises:
            UnknownServer: There is no such server.
        """
        if name not in self.configs:
            raise UnknownServer(name, nearest(name, self.configs))
        del self.configs[name]
        self._lazy.pop(name, None)
        self._catalog.withdraw(name)
        self.forget(name, None)
        if (connection := self.connections.pop(name, None)) is not None:
            with shielded():
                await connection.stop()
        self._emit(ServerRemoved(server=name))

    async def apply(self, old: HostConfig, new: HostConfig) -> Plan:
        """Change the running servers from `old` to `new`; on failure, change them back.

        Only servers that differ are restarted. The caller holds `changing`.
        """
        held, before = await self._trust.held(new.active), self.table.held
        try:
            return await self._change(old, new, held)
        except BaseException:
            with shielded():
                await self._change(new, old, before)
            raise

    async def _change(self, old: HostConfig, new: HostConfig, held: Mapping[str, NotTrusted]) -> Plan:
        steps, self._launcher.config = plan(old, new), new
        before, self.table.held = self.table.held, held
        self._warn_held(before)
        wanted = {server.name: server for server in new.servers}
        kept = {
            s.name for s in steps.keep if (s.name in before) == (s.name in held) and s.name in self.configs
        }
        gone = [name for name in self.configs if name not in kept]
        for name in kept:
            self.configs[name] = wanted[name]
            if name in self.connections:
                self.connections[name].supervisor.config = wanted[name]
        active = {server.name for server in new.active} - held.keys()
        await side_by_side(
            self._replace(wanted[name], name in active) if name in wanted else self.remove(name)
            for name in gone
        )
        for server in new.servers:
            if server.name not in kept and server.name not in gone:
                if server.name not in active:
                    self._catalog.withdraw(server.name)
                self._place(server, enabled=server.name in active)
        return replace(
            steps,
            start=tuple(server for server in steps.start if server.name in active),
            restart=tuple(server for server in steps.restart if server.name in active),
            stop=(*steps.stop, *(server.name for server in steps.restart if server.name not in active)),
        )

    async def _replace(self, server: ServerConfig, active: bool) -> None:
        """Replace the connection of a server. Calls wait for the new one, which connects when the old one has
        closed, because few programs can run twice at the same time."""
        name = server.name
        self._lazy.pop(name, None)
        if (old := self.connections.pop(name, None)) is not None:
            self._replaced[name] = old
        if not active:
            self._catalog.withdraw(name)
        self._place(server, enabled=active)
        if old is not None:
            if name in self.connections:
                self.connections[name].supervisor.notices.watched |= old.supervisor.notices.watched
            with shielded():
                await old.retire()
            del self._replaced[name]

    # --- connections of one session -------------------------------------------------------------

    def private(
        self, server: ServerConfig, known: CachedSnapshot | None, headers: OwnHeaders | None
    ) -> Connection:
        """Start another connection to a server, for one session, optionally with its own headers."""
        enabled = server.name not in self.table.held
        made = self._launcher.connection(server, enabled=enabled, known=known, headers=headers)
        self._private.add(made)
        return self._launch(made, shown=False)

    def hand_over(self, name: str) -> Connection | None:
        """Turn the shared connection of a server into the private one of a session, if it can be used.

        The server then has no shared connection until one is needed again.
        """
        connection = self.connections.get(name)
        if connection is None or connection.state not in ("connected", "pending"):
            return None
        self._lazy[name] = CachedSnapshot.of(connection.snapshot)
        self._private.add(self.connections.pop(name))
        return connection

    async def end(self, connection: Connection) -> None:
        """Close a private connection."""
        await connection.stop()
        self._private.discard(connection)

    # --- lookup ---------------------------------------------------------------------------------

    def connection(self, name: str) -> Connection:
        """Return the shared connection to a server; start it if the server is lazy and has none.

        Raises:
            UnknownServer: There is no such server.
            RuntimeError: The host has not been entered.
        """
        self.check_started()
        if name in self._lazy:
            known = self._lazy.pop(name)
            return self._launch(self._launcher.connection(self.configs[name], enabled=True, known=known))
        try:
            return self.connections[name]
        except KeyError:
            raise UnknownServer(name, nearest(name, self.configs)) from None

    def may_offer(self, name: str, capability: str) -> bool:
        """Return whether a server declares this capability, live or cached; True if it is not known."""
        known = self._lazy.get(name)
        connection = self.connections.get(name)
        snapshot = connection.snapshot if connection is not None else known.snapshot if known else None
        capabilities = snapshot.info.capabilities if snapshot is not None else None
        return not capabilities or capability in capabilities

    def turned_off(self, name: str) -> str | None:
        """Return which setting of the host turns a server off; None if its own entry does."""
        host = self._launcher.config
        if self.configs[name].disabled:
            return None
        return "`enabled_servers` does not list it" if host.enabled else "`enabled` is false in the settings"

    def unlisted(self) -> list[str]:
        """Return the enabled servers that are not connected and of which no listing is known."""
        found: list[str] = []
        for name, config in self.configs.items():
            connection, known = self.connections.get(name), self._lazy.get(name)
            snapshot = connection.snapshot if connection is not None else known.snapshot if known else None
            if snapshot is None and not config.disabled and name not in self.providers:
                found.append(name)
        return found

    def wake(self, wanted: Callable[[str], bool]) -> None:
        """Start the lazy servers whose name is `wanted`."""
        self.check_started()
        for name in [name for name in self._lazy if wanted(name)]:
            self.connection(name)

    def provider(self, name: str) -> Provider:
        """Return a provider, or the shared connection to a server.

        Raises:
            UnknownServer: There is neither.
        """
        return self.providers.get(name) or self.connection(name)

    def publish(self, provider: Provider) -> None:
        """Take over the current snapshot of a provider."""
        self._catalog.publish(provider.snapshot)

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of every configured server, sorted by name."""
        return tuple(map(self._status, sorted(self.configs)))

    def _status(self, name: str) -> ServerStatus:
        known = self.connections[name].status() if name in self.connections else self._lazy_status(name)
        if not self.configs[name].transforms:
            return known
        return replace(known, warnings=(*known.warnings, *self._catalog.shape_warnings(name)))

    def load(self) -> dict[str, ServerLoad]:
        """Return the activity of the connections by server, including those of sessions."""
        found = {name: ServerLoad() for name in self.configs}
        for connection in (*self.connections.values(), *self._private):
            if connection.name in found:
                found[connection.name] += connection.load()
        return found

    def _lazy_status(self, name: str) -> ServerStatus:
        known = self._lazy[name]
        return ServerStatus(
            name=name,
            state="pending",
            transport=self.configs[name].transport,
            tools=known.tools if known else 0,
            prompts=known.prompts if known else 0,
        )

    # --- inside ---------------------------------------------------------------------------------

    def _place(self, server: ServerConfig, *, enabled: bool) -> None:
        """Start the connection to a server, or register it as lazy."""
        known = self._catalog.load_cached(server) if enabled else None
        if enabled and server.start == "lazy":
            self.configs[server.name] = server
            self._lazy[server.name] = known
        else:
            self._launch(self._launcher.connection(server, enabled=enabled, known=known))

    def _launch(self, connection: Connection, *, shown: bool = True) -> Connection:
        """Run a connection, after the one that it replaces has ended."""
        assert self._tasks is not None
        if self.place_of is not None and connection.config.placement == "cluster":
            connection.supervisor.place = self.place_of(connection.config)
        name = connection.name
        connection.supervisor.notices.announce = self._announced
        connection.supervisor.problem = self.table.held.get(name)
        if shown:
            self.configs[name] = connection.config
            self.connections[name] = connection
        self._tasks.start_soon(_run_after, self._replaced.get(name), connection)
        return connection

    def _announced(self, server: str) -> None:
        if self.announce is not None:
            self.announce(server)

    def _warn_held(self, before: Mapping[str, NotTrusted]) -> None:
        """Log which servers are skipped because their file is not approved, unless that was logged before."""
        for name, problem in self.table.held.items():
            if str(problem) != str(before.get(name)):
                log.warning("server skipped: %s", problem)

    async def _start_providers(self) -> None:
        await side_by_side([self._start_provider(provider) for provider in self.providers.values()])
        self.providers_started.set()

    async def _start_provider(self, provider: Provider) -> None:
        try:
            await provider.start()
            self._catalog.publish(provider.snapshot)
        except Exception:
            log.exception(
                "provider %r did not start; its tools appear after a successful refresh", provider.name
            )

    async def _stop_provider(self, provider: Provider) -> None:
        try:
            await provider.stop()
        except Exception:
            log.exception("provider %r did not stop cleanly", provider.name)


class _StartGate:
    """Buffers the snapshots and events of a connection until its server has been added."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.snapshots: list[Snapshot] = []
        self._emit, self._buffered, self._open = emit, list[Event](), False

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def emit(self, event: Event) -> None:
        if self._open:
            self._emit(event)
        else:
            self._buffered.append(event)

    def open(self) -> None:
        """Emit the buffered events, and pass later ones on directly."""
        self._open = True
        for event in self._buffered:
            self._emit(event)
        self._buffered.clear()


async def _run_after(old: Connection | None, connection: Connection) -> None:
    if old is not None:
        await old.supervisor.ended.wait()
    await connection.run()


def check_servers(servers: object) -> None:
    """Raise a TypeError that names the right call for values often passed instead of a list of servers."""
    if isinstance(servers, str | bytes | os.PathLike):
        raise TypeError(f"Host takes servers, not the path of a file. Use Host.from_config({servers!r}).")
    if isinstance(servers, Mapping):
        raise TypeError(
            "Host takes servers, not a mapping. Use Host([ServerConfig(name=..., command=...)]), or write "
            "the mapping to a file and use Host.from_config(path)."
        )
    if isinstance(servers, ServerConfig):
        raise TypeError("Host takes a list of servers. Use Host([server]).")
    if isinstance(servers, HostConfig | Iterator):
        return
    if not isinstance(servers, Iterable):
        raise TypeError(f"Host takes a list of servers, not {kind(servers)}. Use Host([ServerConfig(...)]).")
    for server in cast("Iterable[object]", servers):
        if not isinstance(server, ServerConfig):
            raise TypeError(
                f"Host takes a list of ServerConfig, and one of these is {kind(server)}. "
                "Use ServerConfig(name=..., command=...), or Host.from_config(path) for a file."
            )
