"""The host: many servers, one catalog, one way to call."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

from mooring.config import default_lookup, load, resolve
from mooring.core.catalog import Catalog, Diff, Filter, diff, merge
from mooring.core.config import HostConfig, ServerConfig, Style, Target
from mooring.core.events import CatalogChanged, Event, ServerRemoved
from mooring.core.names import may_belong
from mooring.core.near import nearest
from mooring.core.types import Result, ServerStatus, Snapshot
from mooring.errors import ConfigError, MooringError, UnknownServer
from mooring.local import LocalTools, Progress, Provider
from mooring.net.connection import Connection
from mooring.net.pool import HttpPool
from mooring.session import SHARED, Session
from mooring.stream import EventStream

log = logging.getLogger("mooring.host")

ARRIVAL = 60.0
"""How long a call waits, unless told otherwise, for a server that has not yet said what it offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshReport:
    """How the refresh of one server went."""

    ok: bool
    tools: int = 0
    error: str | None = None


class Host:
    """Owns the connections, the catalog and the events. Use it as `async with Host(...) as host`.

    Entering returns at once: servers connect in the background, each within its own deadline (those
    with `start: eager` are awaited). A call waits for the one server it needs; `ready()` waits for all.
    """

    def __init__(
        self,
        servers: HostConfig | Iterable[ServerConfig] = (),
        *,
        style: Style | None = None,
        local: LocalTools | Iterable[Callable[..., Any]] = (),
        providers: Iterable[Provider] = (),
        get_secret: Callable[[str], str | None] | None = None,
        on_tools_changed: Callable[[], None] | None = None,
    ) -> None:
        self.config = servers if isinstance(servers, HostConfig) else HostConfig(servers=tuple(servers))
        self._style: Style = style or self.config.style
        self._connections: dict[str, Connection] = {}
        self._local = local if isinstance(local, LocalTools) else LocalTools(*local)
        self._providers: dict[str, Provider] = {}
        for provider in (self._local, *providers):
            self._reserve(provider.name)
            self._providers[provider.name] = provider
        self._get_secret = get_secret
        self._on_tools_changed = on_tools_changed
        self._snapshots: dict[str, Snapshot] = {}
        self._catalog = Catalog()
        self._stale = False
        self._streams: set[EventStream] = set()
        self._pool = HttpPool()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._closed = False
        self._shared = Session(self)

    @classmethod
    def from_config(
        cls, *paths: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None, **options: Any
    ) -> Self:
        """A host for the servers in `paths`, or in the files of the project and the user.

        Raises:
            ConfigError: a file cannot be read. One bad entry is only a warning in `config.warnings`.
        """
        files = [Path(path) for path in paths] or None
        return cls(load(files, cwd=Path(cwd) if cwd is not None else None), **options)

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._closed:
            raise RuntimeError("a Host is used once; make another one")
        for warning in self.config.warnings:
            log.warning("%s", warning)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            for provider in self._providers.values():
                self.publish(provider.snapshot)
                self._tasks.start_soon(self._start_provider, provider)
            active = {server.name for server in self.config.active}
            for server in self.config.servers:
                self._reserve(server.name)
                self._connections[server.name] = self._connection(server, enabled=server.name in active)
            for connection in self._connections.values():
                self._tasks.start_soon(connection.run)
            for connection in self._connections.values():
                if connection.config.start == "eager":
                    await connection.settled.wait()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        # An outer cancellation must not cut the clean-up short: it has bounds of its own.
        self._tasks.cancel_scope.shield = True
        try:
            await self.close()
        finally:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)

    async def close(self) -> None:
        """End every server and everything they started. Idempotent; never raises for a server."""
        self._closed = True
        async with anyio.create_task_group() as stopping:
            for connection in self._connections.values():
                stopping.start_soon(connection.stop)
            for provider in self._providers.values():
                stopping.start_soon(self._stop_provider, provider)
        await self._pool.close()
        for stream in list(self._streams):
            stream.end()

    async def ready(self, timeout: float | None = None) -> bool:
        """Whether, within `timeout`, every server has ended its first try to connect, well or not.
        Lazy servers are not waited for."""
        with anyio.move_on_after(timeout) as scope:
            for connection in list(self._connections.values()):
                if connection.config.start != "lazy":
                    await connection.settled.wait()
        return not scope.cancelled_caught

    # --- what is there --------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now: an immutable value; the next change makes another one."""
        self._merge()
        return self._catalog

    def status(self) -> tuple[ServerStatus, ...]:
        """Every configured server, sorted by name."""
        return tuple(self._connections[name].status() for name in sorted(self._connections))

    def events(self) -> EventStream:
        """What happens from now on. Bounded: a slow reader loses the oldest and is told how many."""
        stream = EventStream(self._streams.discard)
        if not self._closed:
            self._streams.add(stream)
        else:
            stream.end()
        return stream

    # --- verbs ----------------------------------------------------------------------------------

    def session(self, session_id: str = SHARED, *, agent_id: str | None = None) -> Session:
        """A view for one conversation."""
        return Session(self, session_id, agent_id=agent_id)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: Progress | None = None,
    ) -> Result:
        """The outcome of one call; see `Session.call`."""
        return await self._shared.call(name, arguments, timeout=timeout, check=check, on_progress=on_progress)

    async def ping(self, server: str, timeout: float | None = None) -> float:
        """Seconds that a round trip to `server` takes.

        Raises:
            MooringError: there was none.
        """
        return await self._connection_of(server).ping(timeout)

    async def health_check(self) -> bool:
        """False if any server that is not disabled does not answer a ping."""
        servers = [c.name for c in self._connections.values() if c.state != "disabled"]
        healthy = True

        async def check(name: str) -> None:
            nonlocal healthy
            try:
                await self.ping(name)
            except MooringError:
                healthy = False

        async with anyio.create_task_group() as tasks:
            for name in servers:
                tasks.start_soon(check, name)
        return healthy

    async def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        """List `servers` (or all) anew, connecting those that are not connected; how each went.

        Raises:
            UnknownServer: one of `servers` is not there.
        """
        chosen: Sequence[Provider] = (
            [self.provider(name) for name in servers]
            if servers
            else [
                *(c for c in self._connections.values() if c.state != "disabled"),
                *self._providers.values(),
            ]
        )
        reports: dict[str, RefreshReport] = {}

        async def one(provider: Provider) -> None:
            try:
                await provider.refresh()
                self.publish(provider.snapshot)
                reports[provider.name] = RefreshReport(ok=True, tools=len(provider.snapshot.tools))
            except Exception as problem:
                reports[provider.name] = RefreshReport(
                    ok=False, tools=len(provider.snapshot.tools), error=str(problem)
                )

        async with anyio.create_task_group() as tasks:
            for provider in chosen:
                tasks.start_soon(one, provider)
        return {name: reports[name] for name in sorted(reports) if name != self._local.name}

    async def add(self, server: ServerConfig) -> ServerStatus:
        """Connect one more server and show its tools: all of it or nothing.

        Raises:
            ConfigError: the name is taken.
            MooringError: it could not be connected; nothing of it is left.
        """
        if self._tasks is None or self._closed:
            raise RuntimeError("the host is not running")
        self._reserve(server.name)
        arrived: list[Snapshot] = []
        connection = self._connection(server, enabled=not server.disabled, publish=arrived.append)
        self._connections[server.name] = connection
        self._tasks.start_soon(connection.run)
        try:
            if not server.disabled:
                await connection.refresh()
        except BaseException:
            del self._connections[server.name]
            with anyio.CancelScope(shield=True):
                await connection.stop()
            raise
        connection.owner.publish = self.publish
        for snapshot in arrived[-1:]:
            self.publish(snapshot)
        return connection.status()

    async def remove(self, server: str) -> None:
        """Hide a server's tools at once, then end it.

        Raises:
            UnknownServer: it is not there.
        """
        connection = self._connection_of(server)
        del self._connections[server]
        self._snapshots.pop(server, None)
        self._changed()
        with anyio.CancelScope(shield=True):
            await connection.stop()
        self.emit(ServerRemoved(server=server))

    # --- for providers and sessions -------------------------------------------------------------

    def provider(self, name: str) -> Provider:
        """Whoever runs the tools of `name`."""
        return self._providers.get(name) or self._connection_of(name)

    def publish(self, snapshot: Snapshot) -> None:
        """A provider offers something else now."""
        self._snapshots[snapshot.server] = snapshot
        self._changed()

    def emit(self, event: Event) -> None:
        for stream in self._streams:
            stream.put(event)

    async def arrival(self, tool: str, timeout: float | None) -> None:
        """Wait until `tool` is there, or no server that has yet to speak could bring it."""
        with anyio.move_on_after(ARRIVAL if timeout is None else timeout):
            while tool not in self.catalog.tools:
                awaited = [
                    connection
                    for connection in self._connections.values()
                    if not connection.settled.is_set() and may_belong(tool, connection.name, self._style)
                ]
                if not awaited:
                    return
                async with anyio.create_task_group() as race:
                    for connection in awaited:
                        await connection.start()
                        race.start_soon(_first, connection.settled, race.cancel_scope)

    # --- inside ---------------------------------------------------------------------------------

    def _connection(
        self, server: ServerConfig, *, enabled: bool, publish: Callable[[Snapshot], None] | None = None
    ) -> Connection:
        return Connection(
            server,
            enabled=enabled,
            resolve=self._target,
            pool=self._pool,
            publish=publish or self.publish,
            emit=self.emit,
        )

    def _target(self, server: ServerConfig) -> Target:
        return resolve(server, default_lookup(os.environ, self._get_secret, source=server.source))

    def _connection_of(self, name: str) -> Connection:
        try:
            return self._connections[name]
        except KeyError:
            raise UnknownServer(name, nearest(name, self._connections)) from None

    def _reserve(self, name: str) -> None:
        if name in self._connections or name in self._providers:
            raise ConfigError(f"there is already a server or provider named {name!r}")

    def _changed(self) -> None:
        """Many snapshots may arrive in one turn of the loop: they cost one merge."""
        if not self._stale:
            self._stale = True
            with suppress(RuntimeError):  # no loop yet: whoever looks first merges
                asyncio.get_running_loop().call_soon(self._merge)

    def _merge(self) -> None:
        if not self._stale:
            return
        self._stale = False
        old = self._catalog
        static = [s for s in (self._snapshots.get(self._local.name),) if s is not None]
        self._catalog = merge(
            [s for name, s in self._snapshots.items() if name != self._local.name],
            style=self._style,
            filters={
                c.name: Filter(allow=c.config.allow, deny=c.config.deny) for c in self._connections.values()
            },
            static=static,
            description_prefix=self.config.description_prefix,
            previous=old,
        )
        if change := diff(old, self._catalog):
            self._announce(change)

    def _announce(self, change: Diff) -> None:
        if self._streams:  # the revision costs a hash of everything
            self.emit(
                CatalogChanged(
                    revision=self._catalog.revision,
                    added=change.added,
                    removed=change.removed,
                    changed=change.changed,
                )
            )
        if self._on_tools_changed is not None:
            try:
                self._on_tools_changed()
            except Exception:
                log.exception("on_tools_changed failed")

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


async def _first(event: asyncio.Event, race: anyio.CancelScope) -> None:
    await event.wait()
    race.cancel()
