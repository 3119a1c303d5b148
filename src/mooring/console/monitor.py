"""Follows a host, so that the state of the console is up to date: events, servers, catalog, changes, log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from typing import Any

from mooring.config.logs import logger
from mooring.console.rows import CatalogRows
from mooring.console.state import ConsoleState, Level, can_log_in
from mooring.core.events import (
    CallFinished,
    CallStarted,
    CatalogChanged,
    ConfigApplied,
    Event,
    ScriptCalled,
    ServerConnected,
    ToolSetAside,
)
from mooring.core.text import line
from mooring.core.value import replace
from mooring.gateway.host_admin import lock_changes
from mooring.host import Host, runtime_of
from mooring.servers.connection import Connection

__all__ = ["Monitor"]

log = logger("mooring.console")

TICK = 0.1
"""Seconds between two updates of rows after events."""
SHARE = 5
"""The rows of a large catalog are made again after so many times the time that they take."""
STDERR = 200
"""Lines of the standard error of a server that are kept."""
SLOW = 1.0
"""Seconds between two updates of everything that no event announces."""
_CATALOG = (CatalogChanged, ConfigApplied, ToolSetAside, ServerConnected)
_CALLS = (CallStarted, CallFinished, ScriptCalled)


class Monitor:
    """Keeps the state of a console up to date while `run` runs.

    Args:
        host: An entered host.
        state: Gets what happens.
        often: Called at every update.
        seldom: Called every second, and when a server or the configuration changed.
    """

    def __init__(
        self, host: Host, state: ConsoleState, *, often: Callable[[], None], seldom: Callable[[], None]
    ) -> None:
        self._host, self._state, self._often, self._seldom = host, state, often, seldom
        self._journal = state.journal
        self._catalog = CatalogRows(host)
        self._tools_stale = self._servers_stale = True
        self._next = self._tools_next = 0.0
        self._lock_stamp: tuple[object, ...] = ()
        self.stderr: dict[str, deque[str]] = {}
        """Last lines of each server's standard error."""

    async def run(self) -> None:
        """Follow the host until cancelled."""
        events = self._host.events()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(events))
                tasks.create_task(self._repeat())
        finally:
            events.end()

    async def _listen(self, events: Any) -> None:
        async for event in events:
            self.heard(event)

    def heard(self, event: Event) -> None:
        """Take an event of the host."""
        self._state.add_event(event, time.time())
        if isinstance(event, _CATALOG):
            self._tools_stale = True
        if not isinstance(event, _CALLS):
            self._servers_stale = True

    async def _repeat(self) -> None:
        while True:
            try:
                await self.update()
            except Exception:  # a page that is out of date is better than one that stopped
                log.exception("console update failed")
            await asyncio.sleep(TICK)

    async def update(self) -> None:
        """Bring the rows up to date that changed since the last update."""
        now = time.time()
        if self._tools_stale and now >= self._tools_next:
            self._tools_stale = False
            self._journal.put_all("tools", await self._catalog.make())
            self.set_changes()
            self._servers_stale = True
            self._tools_next = time.time() + SHARE * (time.time() - now)
        if now >= self._next:
            await self._follow_lock()
        if self._servers_stale or now >= self._next:
            self._servers_stale, self._next = False, now + SLOW
            self.refresh(now)
        self._often()
        self._state.flush(now)

    async def _follow_lock(self) -> None:
        """Use a lock that was written since the last look."""
        runtime = runtime_of(self._host)
        stamp = runtime.builder.pins.stamp()
        if stamp != self._lock_stamp:
            self._lock_stamp = stamp
            await runtime.config.read_lock()
            self._tools_stale = True

    def refresh(self, now: float) -> None:
        """Read the state of every server."""
        redact = self._host.redact
        statuses = [
            status if status.error is None else replace(status, error=redact(status.error))
            for status in self._host.status()
        ]
        self._state.set_servers(statuses, self._facts({one.name for one in statuses if can_log_in(one)}), now)
        states = [status.state for status in statuses]
        totals = {
            "servers": len(statuses),
            **{state.replace("-", "_"): states.count(state) for state in _STATES},
            **self._catalog.totals,
            "inbox": len(self._journal.rows("inbox")),
            "changes": sum(len(row["changes"]) for row in self._journal.rows("changes")),
            "clients": len(self._journal.rows("clients")),
        }
        self._journal.set("totals", totals)
        self._journal.set("first_run", not self._host.config.servers)
        self._journal.set("warnings", redact.within(self._warnings()))
        self._seldom()

    def _facts(self, logins: Collection[str]) -> dict[str, dict[str, Any]]:
        load = runtime_of(self._host).servers.load()
        changes = {row["id"]: len(row["changes"]) for row in self._journal.rows("changes")}
        connections = runtime_of(self._host).servers.connections
        found: dict[str, dict[str, Any]] = {}
        for server in self._host.config.servers:
            name, at = server.name, load.get(server.name)
            found[name] = {
                "hidden": self._catalog.hidden[name],
                "tokens": self._catalog.tokens[name],
                "restarts": 0 if at is None else max(at.connects - 1, 0),
                "running": 0 if at is None else at.running,
                "waiting": 0 if at is None else at.waiting,
                "processes": 0 if at is None else at.processes,
                "file": server.source.file,
                "scope": server.source.scope,
                "login": name in logins or _logged_in(connections.get(name)),
                "held": name in self._host.held,
                "changes": changes.get(name, 0),
            }
        return found

    def _warnings(self) -> list[dict[str, Any]]:
        host = self._host
        found: list[dict[str, Any]] = [
            {"file": one.file, "server": one.server, "field": one.field, "message": line(one.message, 1_000)}
            for one in host.config.warnings
        ]
        place = {"file": None, "field": None}
        for status in host.status():
            found += [
                {**place, "server": status.name, "message": line(one, 1_000)} for one in status.warnings
            ]
        found += [{**place, "server": None, "message": line(one, 1_000)} for one in host.catalog.warnings]
        return found[:200]

    # --- lock -----------------------------------------------------------------------------------

    def set_changes(self) -> None:
        """Compare connected servers with the lock."""
        found = lock_changes(self._host, complete=True)
        self._journal.put_all("changes", [{**row, "id": row["server"]} for row in found])

    @contextmanager
    def log_lines(self) -> Generator[None]:
        """During the block, add warnings of mooring and the stderr of servers to the log."""
        state, stderr = self._state, self.stderr

        class ConsoleLog(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                with suppress(Exception):
                    level: Level = "info" if record.levelno < logging.WARNING else "warning"
                    server = getattr(record, "server", None)
                    text = record.getMessage()
                    if isinstance(server, str):
                        text = text.removeprefix(f"{server}: ")
                    elif record.levelno < logging.WARNING:
                        return
                    loop.call_soon_threadsafe(_add, text, level, server)

        def _add(text: str, level: Level, server: str | None) -> None:
            if server is None:
                state.add_log(text, level, time.time())
                return
            stderr.setdefault(server, deque(maxlen=STDERR)).append(line(text, 1_000))
            state.add_log(text, level, time.time(), server=server, source="stderr")

        loop = asyncio.get_running_loop()
        handler, source, servers = ConsoleLog(logging.INFO), logger("mooring"), logger("mooring.server")
        before = servers.level
        source.addHandler(handler)
        servers.setLevel(min(servers.getEffectiveLevel(), logging.INFO))
        try:
            yield
        finally:
            source.removeHandler(handler)
            servers.setLevel(before)


def _logged_in(connection: Connection | None) -> bool:
    """Whether the user who runs the host has logged in to a server in a browser."""
    access = None if connection is None else connection.supervisor.access
    return access is not None and access.auth.type == "oauth" and access.grant is not None


_STATES = ("connected", "pending", "failed", "needs-auth", "disabled")
