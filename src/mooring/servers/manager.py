"""All providers of a host: started side by side, added, removed and changed while the rest goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from mooring.concurrency import Tasks, shielded, side_by_side
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.config.plan import Plan, plan
from mooring.config.units import kind
from mooring.core.events import Event, ServerRemoved
from mooring.core.names import may_belong
from mooring.core.text import nearest
from mooring.core.types import CachedSnapshot, ServerStatus, Snapshot, Tool
from mooring.core.value import replace
from mooring.errors import ConfigError, NotTrusted, UnknownServer
from mooring.local import Provider
from mooring.policy import Trust
from mooring.servers.launcher import Launcher, OwnHeaders

if TYPE_CHECKING:
    from mooring.servers.active import Guard
    from mooring.servers.connection import Connection

log = logger("mooring.host")


class ServerManager:
    """The connections to servers, and the other providers."""

    def __init__(
        self,
        providers: Iterable[Provider],
        *,
        launcher: Launcher,
        trust: Trust,
        known: Callable[[ServerConfig], CachedSnapshot | None],
        publish: Callable[[Snapshot], Guard | None],
        withdraw: Callable[[str], None],
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
    ) -> None:
        self.connections: dict[str, Connection] = {}
        self.configs: dict[str, ServerConfig] = {}
        """Every server, connected or asleep."""
        self._leaving: dict[str, Connection] = {}
        """Connections that are about to end, each with another one in its place."""
        self._private: set[Connection] = set()
        """Connections that belong to one conversation each, or to a server that is being added."""
        self._adding: set[str] = set()
        """Names of servers that are being added."""
        self._asleep: dict[str, CachedSnapshot | None] = {}
        """Lazy servers that nobody has wanted yet, and what they offered the last time: no task, no object,
        and the network code not even imported."""
        self.providers: dict[str, Provider] = {}
        for provider in providers:
            self.join(provider)
        self.held: dict[str, NotTrusted] = {}
        """Servers that must not be started, and why."""
        self._launcher = launcher
        self._trust = trust
        self._known = known
        self.publish = publish
        self._withdraw = withdraw
        self._emit = emit
        self._stale = stale
        self._tasks: Tasks | None = None
        self._applying = asyncio.Lock()

    def guard_with(self, guard: Callable[[Snapshot], Guard | None]) -> None:
        """Have connections that are not the catalog's guarded; see `Launcher.guard`."""
        self._launcher.guard = guard

    def join(self, provider: Provider) -> None:
        """Take in one more provider before the start.

        Raises:
            ConfigError: its name is taken.
        """
        self._reserve(provider.name)
        self.providers[provider.name] = provider

    # --- life -----------------------------------------------------------------------------------

    def check_started(self) -> None:
        """Raise RuntimeError before the start."""
        if self._tasks is None:
            raise RuntimeError("The Host is not running. Use it inside `async with Host(...) as host:`.")

    async def start(self, config: HostConfig, tasks: Tasks) -> None:
        """Start everything; returns when the eager servers have settled."""
        self._tasks, self._launcher.config = tasks, config
        for provider in self.providers.values():
            self.publish(provider.snapshot)
            tasks.start_soon(self._start_provider, provider)
        self.held = await self._trust.held(config.active)
        self._warn_held({})
        active = {server.name for server in config.active} - self.held.keys()
        for server in config.servers:
            self._berth(server, enabled=server.name in active)
        for connection in list(self.connections.values()):
            if connection.config.start == "eager":
                await connection.settled.wait()

    async def stop(self) -> None:
        """End everything, side by side. Idempotent; never raises."""
        connections = (*self.connections.values(), *self._leaving.values(), *self._private)
        await side_by_side(
            [
                *(connection.stop() for connection in connections),
                *(self._stop_provider(provider) for provider in self.providers.values()),
            ]
        )
        await self._launcher.close()

    # --- change ---------------------------------------------------------------------------------

    async def add(self, server: ServerConfig, *, enabled: bool) -> None:
        """Take in one more server, connected and listed unless it is not `enabled`.

        Nothing of it can be seen before that has succeeded: no state, no tool, no event.

        Raises:
            ConfigError: the name is taken.
            NotTrusted: the file that names it was not approved.
            MooringError: it could not be connected.
        """
        name = server.name
        self._reserve(name)
        self._adding.add(name)
        try:
            for problem in (await self._trust.held([server])).values():
                raise problem
            if not enabled:
                self._reserve(name, adding=True)
                self._berth(server, enabled=False)
                self._withdraw(name)
                return
            await self._add_connected(server)
        finally:
            self._adding.discard(name)

    async def _add_connected(self, server: ServerConfig) -> None:
        gate = _StartGate(self._emit)
        connection = self._launcher.connection(server, enabled=True, publish=gate.publish, emit=gate.emit)
        self._private.add(connection)
        self._launch(connection, shown=False)
        try:
            await connection.refresh()
            self._reserve(server.name, adding=True)  # a reload may have brought one of that name
        except BaseException:
            with shielded():
                await self.end(connection)
            raise
        self._private.discard(connection)
        self.configs[server.name], self.connections[server.name] = server, connection
        self._known(server)
        connection.supervisor.publish = self.publish
        gate.open()
        for snapshot in gate.snapshots[-1:]:
            connection.supervisor.guard = self.publish(snapshot)

    async def remove(self, name: str) -> None:
        """Hide a server at once, then end it.

        Raises:
            UnknownServer: it is not there.
        """
        if name not in self.configs:
            raise UnknownServer(name, nearest(name, self.configs))
        del self.configs[name]
        self._asleep.pop(name, None)
        self._withdraw(name)
        self._stale(name, None)
        if (connection := self.connections.pop(name, None)) is not None:
            with shielded():
                await connection.stop()
        self._emit(ServerRemoved(server=name))

    async def apply(self, old: HostConfig, new: HostConfig) -> Plan:
        """Go from `old` to `new`: only what differs is touched. If that fails, go back."""
        async with self._applying:
            held, before = await self._trust.held(new.active), self.held
            try:
                return await self._change(old, new, held)
            except BaseException:
                with shielded():
                    await self._change(new, old, before)
                raise

    async def _change(self, old: HostConfig, new: HostConfig, held: dict[str, NotTrusted]) -> Plan:
        steps, self._launcher.config = plan(old, new), new
        before, self.held = self.held, held
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
                    self._withdraw(server.name)
                self._berth(server, enabled=server.name in active)
        return replace(
            steps,
            start=tuple(server for server in steps.start if server.name in active),
            restart=tuple(server for server in steps.restart if server.name in active),
            stop=(*steps.stop, *(server.name for server in steps.restart if server.name not in active)),
        )

    async def _replace(self, server: ServerConfig, active: bool) -> None:
        """Give a server another connection. It is there at once, so that calls wait for it, and connects when
        the old one has ended: few programs can run twice."""
        name = server.name
        self._asleep.pop(name, None)
        if (old := self.connections.pop(name, None)) is not None:
            self._leaving[name] = old
        if not active:
            self._withdraw(name)
        self._berth(server, enabled=active)
        if old is not None:
            if name in self.connections:
                self.connections[name].supervisor.notices.watched |= old.supervisor.notices.watched
            with shielded():
                await old.retire()
            del self._leaving[name]

    # --- connections of one conversation --------------------------------------------------------

    def private(
        self, server: ServerConfig, known: CachedSnapshot | None, headers: OwnHeaders | None
    ) -> Connection:
        """One more connection to a server, with headers of its own; nobody else is led to it."""
        enabled = server.name not in self.held  # no conversation starts what nobody approved
        made = self._launcher.connection(server, enabled=enabled, known=known, headers=headers)
        self._private.add(made)
        return self._launch(made, shown=False)

    def hand_over(self, name: str) -> Connection | None:
        """The connection that everybody would share, for one conversation alone; the server then sleeps
        until somebody wants it. None when there is none that is of use."""
        connection = self.connections.get(name)
        if connection is None or connection.state not in ("connected", "pending"):
            return None
        self._asleep[name] = CachedSnapshot.of(connection.snapshot)
        self._private.add(self.connections.pop(name))
        return connection

    async def end(self, connection: Connection) -> None:
        """End a connection of one conversation."""
        await connection.stop()
        self._private.discard(connection)

    # --- questions ------------------------------------------------------------------------------

    def connection(self, name: str) -> Connection:
        """The connection to a server, which is woken if it was asleep.

        Raises:
            UnknownServer: it is not there.
        """
        self.check_started()
        if name in self._asleep:
            known = self._asleep.pop(name)
            return self._launch(self._launcher.connection(self.configs[name], enabled=True, known=known))
        try:
            return self.connections[name]
        except KeyError:
            raise UnknownServer(name, nearest(name, self.configs)) from None

    def may_offer(self, name: str, capability: str) -> bool:
        """Whether a server has this capability, by itself, the lock or the cache; True: nothing is known."""
        known = self._asleep.get(name)
        connection = self.connections.get(name)
        snapshot = connection.snapshot if connection is not None else known.snapshot if known else None
        capabilities = snapshot.info.capabilities if snapshot is not None else None
        return not capabilities or capability in capabilities

    @property
    def names(self) -> frozenset[str]:
        """Every provider, and every server that may come to run; one that is not approved may not."""
        return frozenset(self.configs.keys() - self.held.keys()).union(self.providers)

    def wake(self, wanted: Callable[[str], bool]) -> None:
        """Wake the servers that are asleep and wanted, by name."""
        self.check_started()
        for name in [name for name in self._asleep if wanted(name)]:
            self.connection(name)

    def provider(self, name: str) -> Provider:
        return self.providers.get(name) or self.connection(name)

    def status(self) -> tuple[ServerStatus, ...]:
        return tuple(
            self.connections[name].status() if name in self.connections else self._sleeping(name)
            for name in sorted(self.configs)
        )

    def _sleeping(self, name: str) -> ServerStatus:
        known = self._asleep[name]
        return ServerStatus(
            name=name,
            state="pending",
            transport=self.configs[name].transport,
            tools=known.tools if known else 0,
            prompts=known.prompts if known else 0,
        )

    def withheld(self, tool: str, style: Style) -> NotTrusted | None:
        """Why a tool is not there, if it could be one of a server that must not be started."""
        named = (name for name in self.held if style != "raw" and may_belong(tool, name, style))
        return next((self.held[name] for name in named), None)

    def logins(self) -> Mapping[str, Tool]:
        """The tool `authenticate` of each server that a login would help."""
        found = {name: connection.login_tool for name, connection in self.connections.items()}
        return {name: tool for name, tool in found.items() if tool is not None}

    # --- inside ---------------------------------------------------------------------------------

    def _berth(self, server: ServerConfig, *, enabled: bool) -> None:
        """Give a server its place: a connection, or a bed."""
        known = self._known(server) if enabled else None
        if enabled and server.start == "lazy":
            self.configs[server.name] = server
            self._asleep[server.name] = known
        else:
            self._launch(self._launcher.connection(server, enabled=enabled, known=known))

    def _launch(self, connection: Connection, *, shown: bool = True) -> Connection:
        """Have a connection run, after the one that it takes the place of."""
        assert self._tasks is not None
        name = connection.name
        connection.supervisor.problem = self.held.get(name)
        if shown:
            self.configs[name] = connection.config
            self.connections[name] = connection
        self._tasks.start_soon(_run_after, self._leaving.get(name), connection)
        return connection

    def _warn_held(self, before: Mapping[str, NotTrusted]) -> None:
        """Log which servers are skipped because their file is not approved, unless that was logged before."""
        for name, problem in self.held.items():
            if str(problem) != str(before.get(name)):
                log.warning("server skipped: %s", problem)

    def _reserve(self, name: str, *, adding: bool = False) -> None:
        taken = name in self.configs or name in self.providers
        if taken or (name in self._adding and not adding):
            raise ConfigError(f"there is already a server or provider named {name!r}")

    async def _start_provider(self, provider: Provider) -> None:
        try:
            await provider.start()
            self.publish(provider.snapshot)
        except Exception:
            log.exception("provider %r did not start; its tools appear after a good refresh", provider.name)

    async def _stop_provider(self, provider: Provider) -> None:
        try:
            await provider.stop()
        except Exception:
            log.exception("provider %r did not stop cleanly", provider.name)


class _StartGate:
    """Holds back what a connection says until its server is part of the host."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.snapshots: list[Snapshot] = []
        self._emit, self._held, self._open = emit, list[Event](), False

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def emit(self, event: Event) -> None:
        if self._open:
            self._emit(event)
        else:
            self._held.append(event)

    def open(self) -> None:
        """Emit what was held back, and from now on everything at once."""
        self._open = True
        for event in self._held:
            self._emit(event)
        self._held.clear()


async def _run_after(old: Connection | None, connection: Connection) -> None:
    if old is not None:
        await old.supervisor.ended.wait()
    await connection.run()


def check_servers(servers: object) -> None:
    """Raise TypeError for what is often passed in place of a list of servers, saying what to do."""
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
