"""The console of one running host: its state, its verbs, and the servers that listen."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mooring import __version__
from mooring.config import found_files
from mooring.config.logs import logger
from mooring.console.access import Access
from mooring.console.inbox import Inbox
from mooring.console.journal import Journal
from mooring.console.monitor import Monitor
from mooring.console.state import LIMITS, ConsoleState
from mooring.console.web import ConsoleRoutes, Verb
from mooring.errors import ConfigError
from mooring.gateway.http_server import WebServer
from mooring.host import Host, runtime_of

if TYPE_CHECKING:
    from mooring.gateway.serve import Serving

__all__ = ["Cluster", "Console", "serve_console"]

log = logger("mooring.console")

MAX_CONNECTIONS = 256
LOOPBACK = "127.0.0.1"


class Cluster(Protocol):
    """Knows the nodes of a cluster."""

    def status(self) -> Mapping[str, Any]:
        """Return `nodes` and `owners`, as `mooring cluster status --json` prints them."""
        ...


class Console:
    """The console of a host.

    Args:
        host: An entered host, made with the callbacks of `inbox`.
        inbox: Its questions to a person.
        files: The configuration files that were named; None: the usual places.
        serving: The gateway that serves the host; None without one.
        cluster: Its cluster; None without one.
    """

    def __init__(
        self,
        host: Host,
        inbox: Inbox,
        *,
        files: Sequence[Path] | None = None,
        serving: Serving | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.host, self.inbox, self.files = host, inbox, files
        self._serving, self._cluster = serving, cluster
        self.journal = Journal(secrets.token_hex(4), LIMITS)
        self.state = ConsoleState(self.journal)
        self.monitor = Monitor(host, self.state, self._extra)
        self._started = time.time()
        service = None if serving is None else serving.service
        self.access = Access(
            "mooring_console", None if service is None else lambda: service.routes.authenticator
        )
        inbox.use(self.journal, host.redact)
        for table in _TABLES:
            self.journal.tables.setdefault(table, {})
        self.routes = ConsoleRoutes(
            self.access,
            self.journal,
            self._verbs(),
            before_state=self.catch_up,
            explain=self.explain,
            views=lambda _: None,
        )
        self._about()

    def catch_up(self) -> None:
        """Bring the numbers up to date before a snapshot is taken."""
        self.monitor.refresh(time.time())
        self.state.flush(time.time())

    def explain(self, problem: Exception) -> tuple[int, dict[str, Any]]:
        return 409, {"kind": type(problem).__name__, "message": self.host.redact(str(problem)), "next": None}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow the host during the block."""
        await self.monitor.update()
        following = asyncio.create_task(self.monitor.run())
        try:
            with self.monitor.log_lines():
                yield
        finally:
            self.inbox.close()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    # --- values ---------------------------------------------------------------------------------

    def _about(self) -> None:
        host = self.host
        pins = runtime_of(host).builder.pins
        about = {
            "version": __version__,
            "started": round(self._started, 3),
            "kind": "console" if self._serving is None else "gateway",
            "style": host.style,
            "discovery": host.discovery,
            "scripts": bool(host.config.scripts.enabled),
            "lock": None if pins.path is None or pins.lock is None else str(pins.path),
            "files": [
                {"file": str(one.path), "scope": one.scope, "writable": _writable(one.path)}
                for one in found_files(None if self.files is None else list(self.files))
            ],
        }
        self.journal.set("about", about)

    def _extra(self) -> None:
        """Set what no event announces: the gateway and the cluster."""
        self._about()
        self.journal.set("gateway", None)
        self.journal.set("cluster", None if self._cluster is None else dict(self._cluster.status()))
        self.journal.set("wire", {"on": True, "messages": 0, "dropped": 0})

    def _verbs(self) -> dict[str, Verb]:
        return {}


_TABLES = (
    "servers", "tools", "calls", "scripts", "wire", "log", "changes", "inbox", "tries", "clients", "profiles",
    "tokens",
)  # fmt: skip


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


@asynccontextmanager
async def serve_console(
    host: Host,
    inbox: Inbox,
    port: int = 0,
    *,
    files: Sequence[Path] | None = None,
    cluster: Cluster | None = None,
) -> AsyncGenerator[tuple[Console, str]]:
    """Serve the console of a host on loopback during the block.

    Yields:
        The console, and its address without a token; see `Access.ticket`.

    Raises:
        ConfigError: The port cannot be used.
    """
    console = Console(host, inbox, files=files, cluster=cluster)
    web = WebServer(console.routes, MAX_CONNECTIONS)
    try:
        try:
            chosen = await web.start(LOOPBACK, port)
        except OSError as problem:
            raise ConfigError(
                f"Cannot listen on {LOOPBACK}:{port}: {problem.strerror or problem}; choose another --port"
            ) from None
        console.access.name = f"mooring_console_{chosen}"
        async with console.running():
            yield console, f"http://{LOOPBACK}:{chosen}/console/"
    finally:
        await web.stop()
