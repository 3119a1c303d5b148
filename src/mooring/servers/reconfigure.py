"""Changes of the configuration of a running host: add and remove servers, apply and reload configurations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mooring.concurrency import EventHub, shielded
from mooring.config.logs import logger
from mooring.config.models import ConfigWarning, HostConfig, ServerConfig
from mooring.config.plan import Changes, Plan
from mooring.core.events import ConfigApplied, ConfigRejected, Event
from mooring.core.value import replace
from mooring.errors import ConfigError
from mooring.policy import Trust
from mooring.policy.enforce import check_rules, check_rules_of
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.manager import ServerManager
from mooring.servers.sessions import HostSessions
from mooring.servers.state import CurrentConfig
from mooring.telemetry import AuditManager

log = logger("mooring.host")


class Reconfigurer:
    """Changes the configuration in `CurrentConfig` and everything that depends on it. Failed changes are
    undone."""

    def __init__(
        self,
        current: CurrentConfig,
        manager: ServerManager,
        sessions: HostSessions[Any],
        catalog: CatalogBuilder,
        audits: AuditManager,
        trust: Trust,
        events: EventHub,
    ) -> None:
        self._current, self._manager, self._sessions, self._catalog = current, manager, sessions, catalog
        self._audits, self._trust, self._events = audits, trust, events
        self.vet: Callable[[HostConfig], Callable[[], Awaitable[None]]] | None = None
        """Checks a new configuration: raises a ConfigError to reject it, or returns a function that is
        awaited when it is in force. Set by the gateway."""
        self._files: Sequence[Path] = ()
        self._load: Callable[..., HostConfig] | None = None
        current.config = self._usable(current.config)
        self._changes = Changes(current.config.servers)
        """The servers that `add` and `remove` changed."""

    def use_files(self, files: Sequence[Path], load: Callable[..., HostConfig]) -> None:
        """Read the configuration again with `load`, and watch these files."""
        self._files, self._load = files, load

    async def start(self) -> None:
        """Ask for the approvals that the files need, and log the warnings of the configuration."""
        self._current.config = await self._approved(self._current.config, strict=False)
        check_rules(replace(self._current.config, servers=()))  # a wrong rule of a server denies its tools
        self._changes = Changes(self._current.config.servers)
        for warning in self._current.config.warnings:
            log.warning("%s", warning)

    async def watch(self) -> None:
        """Reload whenever a file changes, if `watch` is enabled."""
        settings = self._current.config.watch
        if settings.enabled and self._load is not None:
            await follow(
                self._files,
                settings.debounce,
                reload=self._read_again,
                apply=self._take_over,
                emit=self._events.emit,
            )

    async def add(self, server: ServerConfig) -> None:
        """Add a server; see `Host.add`."""
        check_rules_of(server)
        active = replace(self._current.config, servers=(server,)).active
        await self._manager.add(server, enabled=bool(active))
        self._set_servers((*self._current.config.servers, server))
        self._changes.note(server.name, server)

    async def remove(self, server: str) -> None:
        """Remove a server; see `Host.remove`."""
        async with self._manager.changing:
            if server in self._manager.configs:
                self._set_servers(tuple(s for s in self._current.config.servers if s.name != server))
                self._changes.note(server, None)
            await self._manager.remove(server)
        await self._sessions.close_removed()

    async def apply(self, config: HostConfig) -> Plan:
        """Replace the configuration; see `Host.apply`."""
        await self._trust.held(config.active)  # asks before `changing` is held: a person may take long
        async with self._manager.changing:
            steps = await self._apply(config)
            self._changes = Changes(config.servers)
        return steps

    async def reload(self) -> None:
        """Read the files again; see `Host.reload`."""
        if self._load is not None:
            await self._take_over(await asyncio.to_thread(self._read_again))
            await self.read_lock()

    async def read_lock(self) -> None:
        """Read the lock again, and list the connected servers again whose approved definitions it changes."""
        pins = self._catalog.pins
        names = await asyncio.to_thread(pins.read_again, self._current.config.servers)
        if names:
            log.info("the lock was read again: servers=%s", ", ".join(names))
        running = [self._manager.connections[name] for name in names if name in self._manager.connections]
        live = [connection.supervisor for connection in running if connection.state == "connected"]
        await asyncio.gather(*(one.refresh() for one in live), return_exceptions=True)

    # --- inside ---------------------------------------------------------------------------------

    async def _apply(self, config: HostConfig) -> Plan:
        config = self._usable(config)
        check_rules(config)
        vetted = None if self.vet is None else self.vet(config)
        old, self._current.config = self._current.config, config
        try:
            if vetted is not None:
                await vetted()
            await self._audits.apply(old.audit, config.audit)
            steps = await self._manager.apply(old, config)
        except BaseException:
            with shielded():
                await self._restore(old)
            raise
        await self._sessions.close_removed()
        self._catalog.changed()
        self._events.emit(
            ConfigApplied(
                started=tuple(server.name for server in steps.start),
                stopped=steps.stop,
                restarted=tuple(server.name for server in steps.restart),
            )
        )
        return steps

    async def _restore(self, old: HostConfig) -> None:
        """Return to the old configuration; `ServerManager.apply` has restored the servers itself."""
        failed, self._current.config = self._current.config, old
        try:
            await self._audits.apply(failed.audit, old.audit)
            if self.vet is not None:
                await self.vet(old)()
        except Exception:
            log.exception("the previous configuration could not be restored completely")
        self._catalog.changed()

    def _usable(self, config: HostConfig) -> HostConfig:
        """Return the configuration without servers that have the name of a provider, each with a warning."""
        clashing = [server for server in config.servers if server.name in self._manager.providers]
        if not clashing:
            return config
        message = "is ignored: the application or mooring itself has tools under this name; rename the server"
        warnings = (ConfigWarning(file=one.file, server=one.name, message=message) for one in clashing)
        servers = tuple(server for server in config.servers if server not in clashing)
        return replace(config, servers=servers, warnings=(*config.warnings, *warnings))

    def _read_again(self) -> HostConfig:
        """Return the configuration of the files; a problem that they did not have before is a ConfigError."""
        assert self._load is not None
        return self._load(strict=True, known=self._current.config.warnings)

    async def _approved(self, config: HostConfig, *, strict: bool) -> HostConfig:
        """Ask the application to approve parts of project files; return the configuration with them."""
        if self._load is None or not await self._trust.approved_more(config):
            return config
        return await asyncio.to_thread(self._read_again if strict else self._load)

    async def _take_over(self, config: HostConfig) -> None:
        read = await self._approved(config, strict=True)
        await self._trust.held(read.active)  # as in `apply`
        async with self._manager.changing:
            changes = self._changes.over(read.servers)
            config = self._usable(replace(read, servers=changes.applied))
            if config != self._current.config:
                await self._apply(config)
                self._changes = changes
            elif self.vet is not None:
                await self.vet(config)()  # files that it refers to may have changed

    def _set_servers(self, servers: tuple[ServerConfig, ...]) -> None:
        self._current.config = replace(self._current.config, servers=servers)


LONGEST = 20
"""Continuous changes are reported after this many quiet periods at the latest."""


async def changes(files: Sequence[Path], quiet: float) -> AsyncGenerator[None]:
    """Yield when one of `files` changed and then nothing for `quiet` seconds.

    Raises:
        ConfigError: the `watch` extra is not installed.
    """
    try:
        watch: Any = import_module("watchfiles")  # an extra
    except ImportError:
        raise ConfigError("watching files needs the watch extra: pip install 'mooring[watch]'") from None
    wanted = {str(file.resolve()) for file in files}

    def concerns(_change: object, path: str) -> bool:
        return path in wanted

    # Folders, because editors replace a file by another one of the same name.
    folders = {file.resolve().parent for file in files}
    pause = max(int(quiet * 1000), 1)
    async for _ in watch.awatch(
        *(folder for folder in folders if folder.is_dir()),
        watch_filter=concerns,
        debounce=pause * LONGEST,
        step=pause,
        rust_timeout=500,
        recursive=False,
    ):
        yield


async def follow(
    files: Sequence[Path],
    quiet: float,
    *,
    reload: Callable[[], HostConfig],
    apply: Callable[[HostConfig], Awaitable[object]],
    emit: Callable[[Event], None],
) -> None:
    """Call `apply` with the result of `reload` whenever one of `files` changed. Never raises for a file."""
    try:
        async for _ in changes(files, quiet):
            try:
                await apply(_read(files, reload))
            except (ConfigError, OSError) as problem:
                log.warning("the last valid configuration stays: %s", problem)
                emit(ConfigRejected(problem=str(problem)))
    except Exception as problem:  # the host continues without watching
        log.warning("configuration files are not watched: %s", problem)
        emit(ConfigRejected(problem=f"files are not watched: {problem}"))


def _read(files: Sequence[Path], reload: Callable[[], HostConfig]) -> HostConfig:
    if gone := [str(file) for file in files if not file.is_file()]:
        raise ConfigError("the file is gone", file=gone[0])
    return reload()
