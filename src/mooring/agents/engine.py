"""An engine's side of tools: the application's own first, then whatever providers offer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.core.catalog import Catalog, merge
from mooring.core.discovery import DISCOVERY, OWNER, answer
from mooring.core.search import Index
from mooring.core.types import EMPTY, Block, Result, ServerStatus, Snapshot, Tool
from mooring.errors import MooringError
from mooring.host import Host
from mooring.local import LocalTools, Progress, Provider, local_bundles

log = logger("mooring.agents")

DISCOVERY_NAMES = frozenset(tool.name for tool in DISCOVERY)


class RefreshError(MooringError):
    """Some of what was to be refreshed could not be; the rest was."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in failures.items()))
        self.failures = failures
        """By provider or server."""


class McpToolProvider:
    """Servers as one provider of an engine. Starting is tolerant: a server that is not there brings its
    tools with a later refresh; `refresh()` is strict and tells of each that failed."""

    def __init__(
        self, servers: HostConfig | Iterable[ServerConfig] = (), *, name: str = "mcp", **options: Any
    ) -> None:
        self.name = name
        self.host = Host(servers, **options)

    @property
    def snapshot(self) -> Snapshot:
        catalog = self.host.catalog
        # Here a tool's own name is the catalog's: two servers may have the same name for theirs.
        tools = tuple(replace(tool, remote_name=name) for name, tool in catalog.tools.items())
        return Snapshot(server=self.name, tools=tools, groups=catalog.groups)

    async def start(self) -> None:
        await self.host.__aenter__()
        await self.host.ready()

    async def refresh(self) -> None:
        reports = await self.host.refresh()
        if failures := {name: one.error or "failed" for name, one in reports.items() if not one.ok}:
            raise RefreshError(failures)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        return await self.host.call(tool, arguments, timeout=timeout, on_progress=on_progress)

    async def stop(self) -> None:
        await self.host.__aexit__(None, None, None)

    async def add_server(self, server: ServerConfig) -> ServerStatus:
        """Connect one more server while the engine runs: all of it, or nothing is left of it.

        Raises:
            ConfigError, MooringError: as `Host.add`.
        """
        return await self.host.add(server)

    async def remove_server(self, name: str) -> None:
        await self.host.remove(name)


class Engine:
    """Tools of the application and of providers under one roof. The application's own win every clash.

    engine = Engine(read_memory).register_tool_provider(McpToolProvider(servers))
    async with engine:
        await engine.call("mcp_time_now")
    """

    def __init__(self, *tools: Callable[..., Any] | LocalTools) -> None:
        self._static: list[Provider] = [*local_bundles(tools)]
        self._dynamic: list[Provider] = []
        self._seen: tuple[tuple[Snapshot, ...], Catalog, Index] | None = None

    def register_tool_provider(self, provider: Provider) -> Engine:
        """Take in one more provider, before the engine is built."""
        self._dynamic.append(provider)
        return self

    async def __aenter__(self) -> Engine:
        await self.build()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def build(self) -> None:
        """Start the application's own tools, then every provider. One that fails is logged and skipped:
        its tools are there after a good refresh."""
        for provider in self._static:
            await provider.start()
        for provider in self._dynamic:
            try:
                await provider.start()
            except Exception:
                log.exception("provider %r did not start", provider.name)

    async def refresh(self) -> None:
        """Bring every provider up to date.

        Raises:
            RefreshError: some failed: which, and why.
        """
        failures: dict[str, str] = {}
        for provider in self._dynamic:
            try:
                await provider.refresh()
            except RefreshError as problem:
                failures |= problem.failures
            except Exception as problem:
                failures[provider.name] = str(problem)
        if failures:
            raise RefreshError(failures)

    async def close(self) -> None:
        """Stop every provider; never raises."""
        for provider in (*self._dynamic, *self._static):
            try:
                await provider.stop()
            except Exception:
                log.exception("provider %r did not stop cleanly", provider.name)

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now, with its groups: stale and hidden members are not in them."""
        return self._view()[0]

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.catalog.tools

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Result:
        """The outcome of a tool or of one of the discovery tools, as something to read. Never raises for
        a tool."""
        started = time.monotonic()
        given = arguments or {}
        if name in DISCOVERY_NAMES:
            catalog, index = self._view()
            reply = answer(name, given, catalog, index)
            return _said(
                OWNER, name, reply.text, started, structured=reply.structured, is_error=reply.is_error
            )
        try:
            tool = self.catalog.route(name)
            owner = next(
                provider
                for provider in (*self._static, *self._dynamic)
                if any(one.name == name for one in provider.snapshot.tools)
            )
            return await owner.call(tool.remote_name, given, timeout=timeout)
        except MooringError as problem:
            return _said("", name, str(problem), started, is_error=True)

    def _view(self) -> tuple[Catalog, Index]:
        """The catalog and its index, made anew only when a provider offers something else."""
        snapshots = tuple(provider.snapshot for provider in (*self._static, *self._dynamic))
        if self._seen is None or self._seen[0] != snapshots:
            catalog = merge((), static=snapshots)
            self._seen = snapshots, catalog, Index.build(catalog.tools, catalog.groups)
        return self._seen[1], self._seen[2]


def _said(
    server: str, tool: str, text: str, started: float, *, structured: Any = None, is_error: bool = False
) -> Result:
    return Result(
        server=server,
        tool=tool,
        blocks=(Block({"type": "text", "text": text}),),
        structured=structured,
        is_error=is_error,
        duration=time.monotonic() - started,
    )
