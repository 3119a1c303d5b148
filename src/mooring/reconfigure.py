"""Changes of a host's configuration while it runs: servers added and removed, files read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from mooring.concurrency import shielded
from mooring.config.logs import logger
from mooring.config.models import ConfigWarning, HostConfig, ServerConfig
from mooring.config.plan import Changes, Plan
from mooring.config.watch import follow
from mooring.core.events import ConfigApplied, Event
from mooring.core.types import ServerStatus
from mooring.core.value import replace
from mooring.policy import Trust
from mooring.servers.catalog import SnapshotStore
from mooring.servers.manager import ServerManager
from mooring.sessions import SessionManager
from mooring.telemetry import AuditManager

__all__ = ["Reconfigurable"]

log = logger("mooring.host")


class Reconfigurable:
    """The part of a host that takes over other configurations."""

    config: HostConfig
    vet: Callable[[HostConfig], Callable[[], Awaitable[None]]] | None
    """Refuses another configuration by a ConfigError, or returns what is awaited when it is in force."""
    _trust: Trust
    _fleet: ServerManager
    _auditing: AuditManager
    _sessions: SessionManager
    _shelf: SnapshotStore
    _closed: bool
    _files: Sequence[Path]
    _load: Callable[..., HostConfig] | None
    """Reads the files of this host again; see `load`."""
    _changes: Changes
    """What `add` and `remove` changed."""

    def emit(self, event: Event) -> None:
        """Tell listeners."""
        raise NotImplementedError

    def check_running(self) -> None:
        """Raise RuntimeError before the host is entered."""
        raise NotImplementedError

    def status(self) -> tuple[ServerStatus, ...]:
        """Every configured server, sorted by name."""
        raise NotImplementedError

    async def add(self, server: ServerConfig) -> ServerStatus:
        """Connect one more server and show its tools: all of it or nothing.

        A server that the configuration turns off (`disabled`, `enabled`, `enabled_servers`) is taken in
        without being started. The server stays over a reload, unless the files then have an entry of
        that name which they did not have before.

        Raises:
            ConfigError: the name is taken.
            MooringError: it could not be connected; nothing of it is left, and nothing was to be seen.
        """
        self._running()
        active = replace(self.config, servers=(server,)).active
        await self._fleet.add(server, enabled=bool(active))
        self._configure(servers=(*self.config.servers, server))
        self._changes.note(server.name, server)
        return next(status for status in self.status() if status.name == server.name)

    async def remove(self, server: str) -> None:
        """Hide a server's tools at once, then end it.

        It stays away over a reload, until its entry in the files is changed.

        Raises:
            UnknownServer: it is not there.
        """
        self.check_running()
        if server in self._fleet.configs:
            self._configure(servers=tuple(s for s in self.config.servers if s.name != server))
            self._changes.note(server, None)
        await self._fleet.remove(server)
        await self._sessions.settle()

    async def apply(self, config: HostConfig) -> Plan:
        """Take over another configuration while running: only servers that differ are restarted.

        It replaces everything, also what `add` and `remove` changed. If it fails, everything is as before.
        """
        steps = await self._apply(config)
        self._changes = Changes(config.servers)
        return steps

    async def _apply(self, config: HostConfig) -> Plan:
        self._running()
        config = self._usable(config)
        settle = None if self.vet is None else self.vet(config)
        old, self.config = self.config, config
        try:
            if settle is not None:
                await settle()
            await self._auditing.apply(old.audit, config.audit)
            steps = await self._fleet.apply(old, config)
        except BaseException:
            with shielded():
                await self._restore(old)
            raise
        await self._sessions.settle()
        self._shelf.changed()
        self.emit(
            ConfigApplied(
                started=tuple(server.name for server in steps.start),
                stopped=steps.stop,
                restarted=tuple(server.name for server in steps.restart),
            )
        )
        return steps

    async def _restore(self, old: HostConfig) -> None:
        """Go back to a configuration after another one failed half-way; the fleet has done so itself."""
        failed, self.config = self.config, old
        try:
            await self._auditing.apply(failed.audit, old.audit)
            if self.vet is not None:
                await self.vet(old)()
        except Exception:
            log.exception("the last configuration could not be restored completely")
        self._shelf.changed()

    async def reload(self) -> None:
        """Read the files again and take over what changed; a ConfigError leaves everything as it was."""
        self.check_running()
        if self._load is not None:
            await self._take_over(await asyncio.to_thread(self._read_again))

    # --- inside ---------------------------------------------------------------------------------

    def _usable(self, config: HostConfig) -> HostConfig:
        """Return the configuration without servers that have the name of a provider, each with a warning."""
        clashing = [server for server in config.servers if server.name in self._fleet.providers]
        if not clashing:
            return config
        message = "is ignored: the application or mooring itself has tools under this name; rename the server"
        warnings = (ConfigWarning(file=one.file, server=one.name, message=message) for one in clashing)
        servers = tuple(server for server in config.servers if server not in clashing)
        return replace(config, servers=servers, warnings=(*config.warnings, *warnings))

    def _running(self) -> None:
        self.check_running()
        if self._closed:
            raise RuntimeError("The Host is closed. Make another one.")

    async def _follow(self) -> None:
        quiet = self.config.watch.debounce
        await follow(self._files, quiet, reload=self._read_again, apply=self._take_over, emit=self.emit)

    def _read_again(self) -> HostConfig:
        """Return what the files say now; a problem that they did not have before is a ConfigError."""
        assert self._load is not None
        return self._load(strict=True, known=self.config.warnings)

    async def _approved(self, config: HostConfig, *, strict: bool) -> HostConfig:
        """Return the configuration with what the application approves of a project file for this run."""
        if self._load is None or not await self._trust.approved_more(config):
            return config
        read = self._read_again if strict else self._load
        return await asyncio.to_thread(read)

    async def _take_over(self, config: HostConfig) -> None:
        read = await self._approved(config, strict=True)
        changes = self._changes.over(read.servers)
        config = self._usable(replace(read, servers=changes.applied))
        if config != self.config:
            await self._apply(config)
            self._changes = changes
        elif self.vet is not None:
            await self.vet(config)()  # what it refers to may be something else now

    def _configure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
