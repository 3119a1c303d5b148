"""Shared state of a host: its options, the current configuration, and the table of its servers."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from mooring.config.models import HostConfig, ServerConfig, Style, Target
from mooring.core.discovery import Mode, checked_mode
from mooring.core.names import checked_style, may_belong
from mooring.core.search import Ranker
from mooring.core.types import Tool
from mooring.core.value import Value
from mooring.errors import ConfigError, ConnectError, NotTrusted
from mooring.local import LocalTools, Provider
from mooring.results.pipeline import directory

if TYPE_CHECKING:
    from mooring.auth.login import OnAuth
    from mooring.config import GetSecret
    from mooring.policy import Approver, Ask, Decide
    from mooring.policy.guards import Guard
    from mooring.servers.connection import Connection
    from mooring.servers.elicitation import OnElicit
    from mooring.transport.base import Transport
    from mooring.transport.forwarding import ClientBridge


class ServerLoad(Value):
    """Activity of the connections to one server."""

    running: int = 0
    """Running requests."""
    waiting: int = 0
    """Requests in the queue."""
    connects: int = 0
    """How often it was connected."""
    processes: int = 0
    """Child processes."""

    def __add__(self, other: ServerLoad) -> ServerLoad:
        return ServerLoad(
            running=self.running + other.running,
            waiting=self.waiting + other.waiting,
            connects=self.connects + other.connects,
            processes=self.processes + other.processes,
        )


class CurrentConfig:
    """The configuration in force, and the options of the application that take precedence over it."""

    def __init__(
        self,
        config: HostConfig,
        *,
        style: Style | None = None,
        discovery: Mode | None = None,
        ranker: Ranker | None = None,
        artifacts: str | os.PathLike[str] | None = None,
    ) -> None:
        self.config = config
        """Replaced as a whole by `add`, `remove`, `apply` and `reload`."""
        self.ranker = ranker
        self._style: Style | None = checked_style(style)
        self._discovery: Mode | None = checked_mode(discovery)
        self._artifacts = artifacts

    @property
    def style(self) -> Style:
        return self._style or self.config.style

    @property
    def discovery(self) -> Mode:
        return self._discovery or self.config.discovery

    def artifacts(self) -> Path | None:
        """Return the directory for records of calls; None: calls are not recorded."""
        return directory(self._artifacts or self.config.artifacts)


class ServerLease(Protocol):
    """Permission to run and use a server that only one node of a cluster may run."""

    def problem(self) -> str | None:
        """Return why the server must not be used now; None if it may."""
        ...

    def started(self, pid: int) -> None: ...
    def ended(self, pid: int | None) -> None:
        """Called when its transport is closed; `pid` is None for a server that is no child process."""
        ...


class Elsewhere(Value):
    """Where another node of a cluster runs a server: its endpoint for this node."""

    config: ServerConfig
    target: Target


Place = Callable[[], Awaitable[ServerLease | Elsewhere]]
"""Returns the permission to run a server here, or where it runs. Called before each connection."""


@asynccontextmanager
async def under_lease(
    lease: ServerLease, server: str, opening: AbstractAsyncContextManager[Transport]
) -> AsyncGenerator[Transport]:
    """Open a transport under a lease, which knows its process until that has ended.

    Raises:
        ConnectError: The lease does not permit it.
    """
    if (problem := lease.problem()) is not None:
        raise ConnectError(problem, server=server)
    pid: int | None = None
    try:
        async with opening as channel:
            if (pid := channel.pid) is not None:
                lease.started(pid)
            yield channel
    finally:
        lease.ended(pid)


class ServerTable:
    """The servers and providers of a host: `ServerManager` changes it, `CatalogBuilder` reads it."""

    def __init__(self) -> None:
        self.configs: dict[str, ServerConfig] = {}
        """Every configured server, whether it has a connection or not."""
        self.connections: dict[str, Connection] = {}
        self.providers: dict[str, Provider] = {}
        self.held: Mapping[str, NotTrusted] = {}
        """Servers that must not be started because their file is not approved, with the error for each."""
        self.adding: set[str] = set()
        """Names of servers that are being added."""

    def add_provider(self, provider: Provider) -> None:
        """Add a provider before the start.

        Raises:
            ConfigError: The name is taken.
        """
        self.check_free(provider.name)
        self.providers[provider.name] = provider

    def check_free(self, name: str, *, adding: bool = False) -> None:
        """Raise ConfigError if the name is taken. `adding`: ignore that it is reserved by `adding`."""
        taken = name in self.configs or name in self.providers
        if taken or (name in self.adding and not adding):
            raise ConfigError(f"there is already a server or provider named {name!r}")

    @property
    def names(self) -> frozenset[str]:
        """Names of the providers and of the servers that may be started."""
        return frozenset(self.configs.keys() - self.held.keys()).union(self.providers)

    def withheld(self, tool: str, style: Style) -> NotTrusted | None:
        """Return the error for a tool name that may belong to a server that must not be started."""
        named = (name for name in self.held if style != "raw" and may_belong(tool, name, style))
        return next((self.held[name] for name in named), None)

    def logins(self) -> Mapping[str, Tool]:
        """Return the tool `authenticate` of each server that needs a login."""
        found = {name: connection.login_tool for name, connection in self.connections.items()}
        return {name: tool for name, tool in found.items() if tool is not None}


class CommonOptions(TypedDict, total=False):
    """Keyword arguments that `Host` and `SyncHost` share; see `Host`."""

    style: Style | None
    discovery: Mode | None
    local: LocalTools | Iterable[LocalTools | Callable[..., Any]]
    providers: Iterable[Provider]
    get_secret: GetSecret | None
    on_tools_changed: Callable[[], Awaitable[None] | None] | None
    on_elicit: OnElicit | None
    relay: ClientBridge | None
    ranker: Ranker | None
    lock: str | os.PathLike[str] | bool
    home: str | os.PathLike[str] | bool | None
    artifacts: str | os.PathLike[str] | None
    trust: bool | Ask | None
    on_approval: Approver | None
    decide: Decide | None
    guards: Iterable[Guard]
    max_starting: int | None
    extensions: Mapping[str, Mapping[str, Any]] | None


class HostOptions(CommonOptions, total=False):
    """Keyword arguments of `Host` and `Host.from_config`; see `Host`."""

    on_auth: OnAuth | None
