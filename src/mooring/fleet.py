"""All providers of a host: started side by side, added, removed and changed while the rest goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mooring.config import GetSecret, default_lookup
from mooring.config.logs import guard, logger
from mooring.core.config import HostConfig, ServerConfig, Style, Target
from mooring.core.events import Event, ServerRemoved
from mooring.core.known import Known
from mooring.core.lookalike import look_alikes
from mooring.core.names import may_belong
from mooring.core.near import nearest
from mooring.core.plan import Plan, plan, reached
from mooring.core.redact import Redactor
from mooring.core.types import ServerStatus, Snapshot, Tool
from mooring.core.values import Value
from mooring.errors import ConfigError, MooringError, NotTrusted, UnknownServer
from mooring.identity import OwnHeaders, speaking_as
from mooring.local import Provider
from mooring.tasks import Tasks, shielded, side_by_side
from mooring.trust import Trust

if TYPE_CHECKING:
    from mooring.net.connection import Connection
    from mooring.net.login import OnAuth
    from mooring.net.passage import Relay
    from mooring.net.pool import HttpPool
    from mooring.net.questions import OnElicit, Questions

log = logger("mooring.host")


class RefreshReport(Value):
    """How the refresh of one server went."""

    ok: bool
    tools: int = 0
    error: str | None = None


class Fleet:
    """The connections to servers, and the other providers."""

    def __init__(
        self,
        providers: Iterable[Provider],
        *,
        get_secret: GetSecret | None,
        trust: Trust,
        known: Callable[[ServerConfig], Known | None],
        publish: Callable[[Snapshot], None],
        withdraw: Callable[[str], None],
        emit: Callable[[Event], None],
        on_auth: OnAuth | None = None,
        stale: Callable[[str, str | None], None],
        on_elicit: OnElicit | None,
        relay: Relay | None = None,
    ) -> None:
        self._on_auth = on_auth
        self.connections: dict[str, Connection] = {}
        self.configs: dict[str, ServerConfig] = {}
        """Every server, connected or asleep."""
        self._leaving: dict[str, Connection] = {}
        """Connections that are about to end, each with another one in its place."""
        self._private: set[Connection] = set()
        """Connections that belong to one conversation each."""
        self._asleep: dict[str, Known | None] = {}
        """Lazy servers that nobody has wanted yet, and what they offered the last time: no task, no object,
        and the network code not even imported."""
        self.providers: dict[str, Provider] = {}
        for provider in providers:
            self.join(provider)
        self.held: dict[str, NotTrusted] = {}
        """Servers that must not be started, and why."""
        self.redact = Redactor()
        guard(self.redact)
        self._trust = trust
        self._get_secret = get_secret
        self._known = known
        self._publish = publish
        self._withdraw = withdraw
        self._emit = emit
        self._stale = stale
        self._on_elicit, self._relay = on_elicit, relay
        self._questions: Questions | None = None
        self._pool: HttpPool | None = None
        self._tasks: Tasks | None = None
        self._config = HostConfig()
        self._applying = asyncio.Lock()

    def join(self, provider: Provider) -> None:
        """Take in one more provider before the start.

        Raises:
            ConfigError: its name is taken.
        """
        self._reserve(provider.name)
        self.providers[provider.name] = provider

    # --- life -----------------------------------------------------------------------------------

    async def start(self, config: HostConfig, tasks: Tasks) -> None:
        """Start everything; returns when the eager servers have settled."""
        self._tasks, self._config = tasks, config
        for provider in self.providers.values():
            self._publish(provider.snapshot)
            tasks.start_soon(self._start_provider, provider)
        self.held = await self._trust.held(config.active)
        active = {server.name for server in config.active} - self.held.keys()
        for server in config.servers:
            self._reserve(server.name)
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
        if self._pool is not None:
            await self._pool.close()

    # --- change ---------------------------------------------------------------------------------

    async def add(self, server: ServerConfig) -> Connection:
        """One more server, connected and listed; if that fails, nothing of it is left.

        Raises:
            ConfigError: the name is taken.
            NotTrusted: the file that names it was not approved.
            MooringError: it could not be connected.
        """
        self._reserve(server.name)
        for problem in (await self._trust.held([server])).values():
            raise problem
        self._known(server)
        arrived: list[Snapshot] = []
        connection = self._launch(server, enabled=not server.disabled, publish=arrived.append)
        try:
            if not server.disabled:
                await connection.refresh()
        except BaseException:
            self.connections.pop(server.name, None)
            self.configs.pop(server.name, None)
            with shielded():
                await connection.stop()
            raise
        connection.owner.publish = self._publish
        for snapshot in arrived[-1:]:
            self._publish(snapshot)
        return connection

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
        """Go from `old` to `new`: only what differs is touched, and it is touched side by side."""
        async with self._applying:
            steps, self._config = plan(old, new), new
            before, self.held = self.held, await self._trust.held(new.active)
            wanted = {server.name: server for server in new.servers}
            kept = {s.name for s in steps.keep if (s.name in before) == (s.name in self.held)}
            gone = [name for name in self.configs if name not in kept]
            for name in kept:
                self.configs[name] = wanted[name]
                if name in self.connections:
                    self.connections[name].owner.config = wanted[name]
            active = {server.name for server in new.active} - self.held.keys()
            await side_by_side(
                self._replace(wanted[name], name in active) if name in wanted else self.remove(name)
                for name in gone
            )
            for server in new.servers:
                if server.name not in kept and server.name not in gone:
                    self._reserve(server.name)
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
                self.connections[name].owner.notices.watched |= old.owner.notices.watched
            with shielded():
                await old.retire()
            del self._leaving[name]

    # --- connections of one conversation --------------------------------------------------------

    def private(self, server: ServerConfig, known: Known | None, headers: OwnHeaders | None) -> Connection:
        """One more connection to a server, with headers of its own; nobody else is led to it."""
        enabled = server.name not in self.held  # no conversation starts what nobody approved
        connection = self._launch(server, enabled=enabled, known=known, headers=headers, shown=False)
        self._private.add(connection)
        return connection

    def hand_over(self, name: str) -> Connection | None:
        """The connection that everybody would share, for one conversation alone; the server then sleeps
        until somebody wants it. None when there is none that is of use."""
        connection = self.connections.get(name)
        if connection is None or connection.state not in ("connected", "pending"):
            return None
        self._asleep[name] = Known.of(connection.snapshot)
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
        if name in self._asleep:
            return self._launch(self.configs[name], enabled=True, known=self._asleep.pop(name))
        try:
            return self.connections[name]
        except KeyError:
            raise UnknownServer(name, nearest(name, self.configs)) from None

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

    async def settled(self) -> None:
        """Until every server that is not lazy has ended its first try to connect."""
        for connection in list(self.connections.values()):
            if connection.config.start != "lazy":
                await connection.settled.wait()

    async def healthy(self) -> bool:
        """False if any server that is neither disabled nor asleep does not answer a ping."""
        failed: list[str] = []

        async def check(connection: Connection) -> None:
            try:
                await connection.ping()
            except MooringError:
                failed.append(connection.name)

        await side_by_side([check(one) for one in self.connections.values() if one.state != "disabled"])
        return not failed

    async def refresh(self, names: Sequence[str]) -> Mapping[str, RefreshReport]:
        """List the named providers (or all) anew, side by side; how each went."""
        for name in list(self._asleep) if not names else ():
            self.connection(name)
        running = [c for c in self.connections.values() if c.state != "disabled"]
        chosen = [self.provider(name) for name in names] or [*running, *self.providers.values()]
        reports: dict[str, RefreshReport] = {}

        async def one(provider: Provider) -> None:
            error = None
            try:
                await provider.refresh()
                self._publish(provider.snapshot)
            except Exception as problem:
                error = str(problem)
            tools = len(provider.snapshot.tools)
            reports[provider.name] = RefreshReport(ok=error is None, tools=tools, error=error)

        await side_by_side([one(provider) for provider in chosen])
        return {name: reports[name] for name in sorted(reports)}

    async def gather(self, names: Sequence[str] | None, timeout: float | None) -> dict[str, str]:
        """Have the named servers, or all, connected and listed, side by side; why some are not.

        Raises:
            UnknownServer: one of `names` is not there.
        """
        wanted = [name for name in (self.configs if names is None else names) if name not in self.providers]
        connections = [self.connection(name) for name in wanted]
        errors: dict[str, str] = {}

        async def one(connection: Connection) -> None:
            config = connection.config
            patience = config.connect_timeout + config.list_timeout if timeout is None else timeout
            try:
                await connection.owner.connected(patience)
            except MooringError as problem:
                errors[connection.name] = str(problem)

        await side_by_side([one(c) for c in connections if c.state != "disabled" or names is not None])
        return {name: errors[name] for name in sorted(errors)}

    async def next_arrival(self, tool: str, style: Style) -> bool:
        """Wait until one more server that could bring `tool` has settled; False when there is none.
        Lazy ones among them are started."""
        for name in [name for name in self._asleep if may_belong(tool, name, style)]:
            self.connection(name)
        awaited = [
            connection
            for connection in self.connections.values()
            if not connection.settled.is_set() and may_belong(tool, connection.name, style)
        ]
        for connection in awaited:
            await connection.start()
        if awaited:
            await _first([connection.settled for connection in awaited])
        return bool(awaited)

    # --- inside ---------------------------------------------------------------------------------

    def _berth(self, server: ServerConfig, *, enabled: bool) -> None:
        """Give a server its place: a connection, or a bed."""
        known = self._known(server) if enabled else None
        if enabled and server.start == "lazy":
            self.configs[server.name] = server
            self._asleep[server.name] = known
        else:
            self._launch(server, enabled=enabled, known=known)

    def _launch(
        self,
        server: ServerConfig,
        *,
        enabled: bool,
        known: Known | None = None,
        publish: Callable[[Snapshot], None] | None = None,
        headers: OwnHeaders | None = None,
        shown: bool = True,
    ) -> Connection:
        from mooring.net.connection import Connection
        from mooring.net.pool import HttpPool
        from mooring.net.questions import Questions

        assert self._tasks is not None
        if self._pool is None:
            self._pool = HttpPool()
        if self._questions is None:
            self._questions = Questions(self._on_elicit, self._relay)
        connection = Connection(
            server,
            enabled=enabled,
            known=known,
            resolve=self._target if headers is None else partial(self._own_target, headers),
            redact=self.redact,
            pool=self._pool,
            publish=publish or self._publish,
            emit=self._emit,
            on_auth=self._on_auth,
            stale=self._stale,
            questions=self._questions,
        )
        connection.owner.problem = self.held.get(server.name)
        if shown:
            self.configs[server.name] = server
            self.connections[server.name] = connection
        self._tasks.start_soon(_run_after, self._leaving.get(server.name), connection)
        return connection

    async def _target(self, server: ServerConfig) -> Target:
        from mooring.config.resolving import resolve_within

        server = reached(server, self._config)
        lookup = default_lookup(os.environ, self._get_secret, source=server.source)
        slow = self._get_secret is not None
        target = await resolve_within(server.connect_timeout, server, lookup, slow=slow)
        self.redact.learn(target.secrets)
        return target

    async def _own_target(self, headers: OwnHeaders, server: ServerConfig) -> Target:
        target = speaking_as(headers, await self._target(server))
        self.redact.learn(target.secrets)
        return target

    def _reserve(self, name: str) -> None:
        if name in self.configs or name in self.providers:
            raise ConfigError(f"there is already a server or provider named {name!r}")
        for other, _ in look_alikes([*self.configs, *self.providers, name]):
            raise ConfigError(f"{name!r} looks like {other!r}, which is there already; rename one of them")

    async def _start_provider(self, provider: Provider) -> None:
        try:
            await provider.start()
            self._publish(provider.snapshot)
        except Exception:
            log.exception("provider %r did not start; its tools appear after a good refresh", provider.name)

    async def _stop_provider(self, provider: Provider) -> None:
        try:
            await provider.stop()
        except Exception:
            log.exception("provider %r did not stop cleanly", provider.name)


async def _run_after(old: Connection | None, connection: Connection) -> None:
    if old is not None:
        await old.owner.ended.wait()
    await connection.run()


async def _first(events: Sequence[asyncio.Event]) -> None:
    """Until one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
