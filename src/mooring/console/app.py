"""The console of one running host: its state, its verbs, and the servers that listen."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from mooring import __version__
from mooring.concurrency import end_tasks
from mooring.config import found_files
from mooring.console.access import Access, Visitor
from mooring.console.files import Files
from mooring.console.gateway import GatewayPage
from mooring.console.inbox import Inbox
from mooring.console.journal import Journal
from mooring.console.monitor import Monitor
from mooring.console.state import LIMITS, ConsoleState
from mooring.console.trying import Tries
from mooring.console.verbs import HostVerbs
from mooring.console.views import ConsoleViews, SandboxRoutes
from mooring.console.web import PREFIX, ConsoleRoutes, Verb
from mooring.console.wire import Wire
from mooring.errors import (
    ConfigError,
    MooringError,
    UnknownPrompt,
    UnknownResource,
    UnknownServer,
    UnknownTool,
    next_command,
)
from mooring.gateway.http_server import WebServer
from mooring.host import Host, runtime_of

if TYPE_CHECKING:
    from mooring.gateway.serve import Serving

__all__ = ["ClusterView", "Console", "add_console", "serve_console"]

MAX_CONNECTIONS = 256
CLUSTER_INTERVAL = 2.0
CLUSTER_TIMEOUT = 10.0
LOOPBACK = "127.0.0.1"
_LOCAL = (LOOPBACK, "localhost")
"""Names of a console around which pages of MCP Apps can be shown: policies cannot name IPv6 addresses."""


class ClusterView(Protocol):
    """Knows the nodes of a cluster."""

    async def status(self) -> Mapping[str, Any]:
        """Return `nodes` and `owners`, as `mooring cluster status --json` prints them."""
        ...


class Console:
    """The console of a host.

    Args:
        host: An entered host, made with the callbacks of `inbox`.
        inbox: Its questions to a person.
        wire: Follows the messages since before the host was entered.
        files: The configuration files that were named; None: the usual places.
        serving: The gateway that serves the host; None without one.
        cluster: Its cluster; None without one.
    """

    def __init__(
        self,
        host: Host,
        inbox: Inbox,
        wire: Wire,
        *,
        files: Sequence[Path] | None = None,
        serving: Serving | None = None,
        cluster: ClusterView | None = None,
    ) -> None:
        self.host, self.files = host, files
        self._inbox, self._wire, self._cluster = inbox, wire, cluster
        self.journal = Journal(secrets.token_hex(4), LIMITS)
        for table in _TABLES:
            self.journal.tables[table] = {}
        self.state = ConsoleState(self.journal)
        self._started = time.time()
        checks = None if serving is None else (lambda: serving.service.routes.authenticator)
        self.access = Access("mooring_console", checks)
        inbox.use(self.journal, host.redact)
        wire.use(self.state, host.redact)
        self._gateway = None if serving is None else GatewayPage(serving, self.journal)
        self.monitor = Monitor(host, self.state, often=wire.update, seldom=self._extra)
        self._verbs = HostVerbs(host, self.journal, self.monitor, inbox)
        self._tries = Tries(host, self.journal)
        self.views = ConsoleViews(host, self._tries)
        edits = Files(host, files, restricted=lambda: self.access.needs_token)
        verbs: dict[str, Verb] = {"logout-console": self._log_out}
        for group in (self._verbs, self._tries, self.views, wire, edits):
            verbs |= group.verbs()
        if self._gateway is not None:
            self._verbs.profiles = self._gateway.profiles
            verbs |= self._gateway.verbs()
        self.routes = ConsoleRoutes(
            self.access,
            self.journal,
            verbs,
            before_state=self._catch_up,
            explain=self._explain,
            views=self.views.stream,
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow the host during the block."""
        await self.monitor.update()
        tasks = [asyncio.create_task(self.monitor.run())]
        if self._cluster is not None:
            tasks.append(asyncio.create_task(self._follow_cluster(self._cluster)))
        try:
            with self.monitor.log_lines():
                yield
        finally:
            self._inbox.close()
            await self._tries.close()
            await end_tasks(tasks)

    async def _follow_cluster(self, cluster: ClusterView) -> None:
        """Ask for the nodes every `CLUSTER_INTERVAL` seconds."""
        while True:
            try:
                async with asyncio.timeout(CLUSTER_TIMEOUT):
                    found: dict[str, Any] = dict(await cluster.status())
            except Exception as problem:  # the nodes that were known stay on the page, with the reason
                said = "no answer" if isinstance(problem, TimeoutError) else str(problem)
                known: dict[str, Any] = self.journal.values.get("cluster") or {"nodes": [], "owners": []}
                found = {**known, "problem": f"The state of the cluster is not known: {said}"}
            self.journal.set("cluster", self.host.redact.within(found))
            await asyncio.sleep(CLUSTER_INTERVAL)

    async def _log_out(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        self.access.log_out(visitor)
        return {}

    def _catch_up(self) -> None:
        """Bring the numbers up to date before a snapshot is taken."""
        now = time.time()
        self._wire.update()
        self.monitor.refresh(now)
        self.state.flush(now)

    def _explain(self, problem: MooringError) -> tuple[int, dict[str, Any]]:
        message = self.host.redact(str(problem))
        missing = isinstance(problem, UnknownServer | UnknownTool | UnknownResource | UnknownPrompt)
        said = {"kind": type(problem).__name__, "message": message, "next": next_command(message, problem)}
        return 404 if missing else 409, said

    # --- values ---------------------------------------------------------------------------------

    def _extra(self) -> None:
        """Set what no event announces."""
        host, pins = self.host, runtime_of(self.host).builder.pins
        about = {
            "version": __version__,
            "started": round(self._started, 3),
            "kind": "console" if self._gateway is None else "gateway",
            "style": host.style,
            "discovery": host.discovery,
            "scripts": bool(host.config.scripts.enabled),
            "lock": None if pins.path is None or pins.lock is None else str(pins.path),
            "files": [
                {"file": str(one.path), "scope": one.scope, "writable": os.access(one.path, os.W_OK)}
                for one in found_files(None if self.files is None else list(self.files))
            ],
        }
        self.journal.set("about", about)
        if self._gateway is None:
            self.journal.set("gateway", None)
        else:
            self._gateway.update()
        if self._cluster is None:
            self.journal.set("cluster", None)


_TABLES = (
    "servers", "tools", "calls", "scripts", "wire", "log", "changes", "inbox", "tries", "clients", "profiles",
    "tokens",
)  # fmt: skip


@asynccontextmanager
async def serve_console(
    host: Host,
    inbox: Inbox,
    wire: Wire,
    port: int = 0,
    *,
    files: Sequence[Path] | None = None,
    cluster: ClusterView | None = None,
) -> AsyncGenerator[tuple[Console, str]]:
    """Serve the console of a host on loopback during the block.

    Yields:
        The console, and its address without a token; see `Access.ticket`.

    Raises:
        ConfigError: The port cannot be used.
    """
    console = Console(host, inbox, wire, files=files, cluster=cluster)
    web = WebServer(console.routes, MAX_CONNECTIONS)
    try:
        try:
            chosen = await web.start(LOOPBACK, port)
        except OSError as problem:
            raise ConfigError(
                f"Cannot listen on {LOOPBACK}:{port}: {problem.strerror or problem}; choose another --port"
            ) from None
        console.access.name = f"mooring_console_{chosen}"
        async with _sandbox(console, chosen), console.running():
            yield console, f"http://{LOOPBACK}:{chosen}{PREFIX}/"
    finally:
        await web.stop()


@asynccontextmanager
async def add_console(
    serving: Serving,
    inbox: Inbox,
    wire: Wire,
    *,
    files: Sequence[Path] | None = None,
    cluster: ClusterView | None = None,
) -> AsyncGenerator[tuple[Console, str]]:
    """Add the console to a gateway that listens, at `/console/`, during the block.

    Yields:
        The console, and its address without a token.
    """
    console = Console(serving.gateway.host, inbox, wire, files=files, serving=serving, cluster=cluster)
    base = serving.url.removesuffix("/mcp")
    parts = urlsplit(base)
    console.access.name = f"mooring_console_{serving.port}"
    console.routes.secure = parts.scheme == "https"
    routes = serving.service.routes
    async with AsyncExitStack() as stack:
        if parts.scheme == "http" and parts.hostname in _LOCAL:
            await stack.enter_async_context(_sandbox(console, serving.port))
        await stack.enter_async_context(console.running())
        routes.console = console.routes.handle
        try:
            yield console, f"{base}{PREFIX}/"
        finally:
            routes.console = None


@asynccontextmanager
async def _sandbox(console: Console, port: int) -> AsyncGenerator[None]:
    """Serve the pages of MCP Apps on a port of their own during the block, for a console on `port`."""
    console.views.origins = tuple(f"http://{name}:{port}" for name in _LOCAL)
    web = WebServer(SandboxRoutes(console.views), MAX_CONNECTIONS)
    try:
        own = await web.start(LOOPBACK, 0)
        console.views.sandbox = console.routes.sandbox = f"http://{LOOPBACK}:{own}"
        yield
    finally:
        await web.stop()
