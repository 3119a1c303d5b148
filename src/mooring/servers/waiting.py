"""Operations on many servers at once, and waiting for a tool. A failing server does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from shlex import quote
from typing import TYPE_CHECKING, Protocol

from mooring.concurrency import side_by_side
from mooring.config.models import Style
from mooring.core.builtin_tools import RESOURCE_TOOLS
from mooring.core.catalog import Catalog
from mooring.core.names import may_belong, prefix
from mooring.core.text import line
from mooring.core.types import Absence, ServerStatus
from mooring.core.value import Value, replace
from mooring.errors import AuthNeeded, MooringError
from mooring.local import Provider
from mooring.servers.manager import ServerManager

if TYPE_CHECKING:
    from mooring.servers.connection import Connection

__all__ = [
    "HealthVerbs",
    "RefreshReport",
    "ToolView",
    "absence",
    "absence_of_resource",
    "await_tool",
    "gather",
    "healthy",
    "one_wait",
    "refresh",
    "settled",
    "usable",
]

RELISTED_WITHIN = 20.0
"""Seconds that a call of an unknown tool waits at most for servers to connect or list again."""


class ToolView(Protocol):
    """The tools that a caller can see: the catalog of a host, or of a gateway profile."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def style(self) -> Style: ...

    def admits(self, server: str) -> bool:
        """Return whether the caller can see this server."""
        ...


class RefreshReport(Value):
    """Outcome of the refresh of one server."""

    ok: bool
    tools: int = 0
    """Number of tools that it lists now."""
    error: str | None = None


async def settled(manager: ServerManager) -> None:
    """Wait until every server that is not lazy has connected or failed for the first time."""
    manager.check_started()
    for connection in list(manager.connections.values()):
        if connection.config.start != "lazy":
            await connection.settled.wait()


def usable(manager: ServerManager) -> bool:
    """Return whether one of the servers that `settled` waits for is connected, or there are none."""
    awaited = [c for c in manager.connections.values() if c.config.start != "lazy" and c.state != "disabled"]
    return not awaited or any(connection.state == "connected" for connection in awaited)


async def healthy(manager: ServerManager, timeout: float) -> bool:
    """Return False if a server with a connection does not answer a ping within `timeout` seconds."""
    manager.check_started()
    failed: list[str] = []

    async def check(connection: Connection) -> None:
        try:
            await connection.ping(timeout)
        except MooringError:
            failed.append(connection.name)

    await side_by_side([check(one) for one in manager.connections.values() if one.state != "disabled"])
    return not failed


async def refresh(manager: ServerManager, names: Sequence[str]) -> Mapping[str, RefreshReport]:
    """List the named providers (default: all) again, concurrently; return a report for each.

    Raises:
        UnknownServer: There is no server of one of the `names`.
    """
    manager.check_started()
    if not names:
        manager.wake(lambda name: True)
    running = [c for c in manager.connections.values() if c.state != "disabled"]
    chosen = [manager.provider(name) for name in names] or [*running, *manager.providers.values()]
    reports: dict[str, RefreshReport] = {}

    async def refresh_one(provider: Provider) -> None:
        error = None
        try:
            await provider.refresh()
            if provider.name in manager.providers:  # connections publish their own listing
                manager.publish(provider)
        except Exception as problem:
            error = str(problem)
        tools = len(provider.snapshot.tools)
        reports[provider.name] = RefreshReport(ok=error is None, tools=tools, error=error)

    await side_by_side([refresh_one(provider) for provider in chosen])
    return {name: reports[name] for name in sorted(reports)}


async def gather(
    manager: ServerManager, names: Sequence[str] | None, timeout: float | None
) -> dict[str, str]:
    """Connect and list the named servers (None: all), concurrently; return the error of each that failed.

    Raises:
        UnknownServer: There is no server of one of the `names`.
    """
    manager.check_started()
    wanted = [name for name in (manager.configs if names is None else names) if name not in manager.providers]
    connections = [manager.connection(name) for name in wanted]
    errors: dict[str, str] = {}

    async def connect(connection: Connection) -> None:
        try:
            await connection.supervisor.connected(timeout, 1)
        except MooringError as problem:
            errors[connection.name] = str(problem)

    await side_by_side([connect(c) for c in connections if c.state != "disabled" or names is not None])
    return {name: errors[name] for name in sorted(errors)}


_AWAITED: ContextVar[set[Connection] | None] = ContextVar("awaited", default=None)
"""The servers whose start a request has waited for."""


@contextmanager
def one_wait() -> Generator[None]:
    """Let the waits for a tool inside count as one: the next one does not repeat a start that failed."""
    token = _AWAITED.set(set())
    try:
        yield
    finally:
        _AWAITED.reset(token)


async def await_tool(manager: ServerManager, tool: str, view: ToolView, *, withheld: bool) -> None:
    """Wait until `view` has `tool`, or until no server can still provide it.

    Servers that may own the name are started if they are lazy, and waited for if they are starting. Then
    each of them is listed once more, within the allowance of its connection: those with an outdated listing,
    and all of them unless `withheld` says that the name is known and hidden. A server whose start failed
    during this wait is not started again; see `one_wait`.
    """
    common = _AWAITED.get()
    awaited: set[Connection] = set() if common is None else common

    def owners() -> list[Connection]:
        manager.wake(lambda name: _may_provide(manager, name, tool, view))
        return [
            connection
            for name, connection in list(manager.connections.items())
            if _may_provide(manager, name, tool, view) and connection.state != "disabled"
        ]

    while tool not in view.catalog.tools:
        starting = [connection for connection in owners() if not connection.settled.is_set()]
        if not starting:
            break
        awaited.update(starting)
        for connection in starting:
            await connection.start()
        await _first([connection.settled for connection in starting])
    if tool in view.catalog.tools:
        return
    stale = [
        connection
        for connection in owners()
        if (connection.supervisor.lists.outdated or not withheld)
        and (connection not in awaited or connection.supervisor.live is not None)
    ]
    waiting = {asyncio.ensure_future(connection.relist()) for connection in stale}
    try:
        async with asyncio.timeout(RELISTED_WITHIN):
            while waiting and tool not in view.catalog.tools:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        pass
    finally:
        for task in waiting:
            task.cancel()


def _may_provide(manager: ServerManager, server: str, tool: str, view: ToolView) -> bool:
    """Return whether a tool of this name may appear when the server lists: its own, or one that reads
    resources."""
    if not view.admits(server):
        return False
    belongs = may_belong(tool, server, view.style)
    return belongs or (tool in RESOURCE_TOOLS and manager.may_offer(server, "resources"))


def absence(manager: ServerManager, tool: str, view: ToolView) -> Absence | None:
    """Return the server that may own `tool` and is not connected, with a hint; None if there is none."""
    absent = _absentees(manager, lambda name: _may_provide(manager, name, tool, view))
    if view.style == "raw" or tool in RESOURCE_TOOLS:  # any of them may
        absent.sort(key=lambda status: (status.state != "needs-auth", status.name))
        return _described(manager, absent[:3])
    # With nested names (`a`, `a_b`) the longest prefix owns the tool.
    absent.sort(key=lambda status: (-len(prefix(status.name, view.style)), status.name))
    return _described(manager, absent[:1])


def absence_of_resource(manager: ServerManager) -> Absence | None:
    """Return the servers that may have any resource and are not connected, with a hint; those that need a
    login first, and one whose file is not approved if there are no others. None if there is none."""
    absent = _absentees(manager, lambda name: manager.may_offer(name, "resources"))
    held = [status for status in absent if status.state == "disabled" and status.error is not None]
    absent = [status for status in absent if status.state != "disabled"]
    absent.sort(key=lambda status: (status.state != "needs-auth", status.name))
    return _described(manager, absent[:3] or held[:1])


def _absentees(manager: ServerManager, wanted: Callable[[str], bool]) -> list[ServerStatus]:
    return [
        _lasting(status, manager)
        for status in manager.status()
        if status.state != "connected" and wanted(status.name)
    ]


def _described(manager: ServerManager, absent: Sequence[ServerStatus]) -> Absence | None:
    if not absent:
        return None
    return Absence(
        server=absent[0].name,
        state=absent[0].state,
        hint=" ".join(_absent(status, manager) for status in absent),
    )


def _lasting(status: ServerStatus, manager: ServerManager) -> ServerStatus:
    """Return the status; for a server that is being retried because of this call, the status before that."""
    connection = manager.connections.get(status.name)
    problem = None if connection is None else connection.supervisor.problem
    if status.state != "pending" or problem is None:
        return status
    return replace(status, state="needs-auth" if isinstance(problem, AuthNeeded) else "failed")


def _login_helps(status: ServerStatus, manager: ServerManager) -> bool:
    connection = manager.connections.get(status.name)
    return connection is None or not connection.hopeless


def _absent(status: ServerStatus, manager: ServerManager) -> str:
    server = f"Server {status.name!r}"
    match status.state:
        case "needs-auth" if _login_helps(status, manager):
            return f"{server} needs a login: `mooring login {quote(status.name)}`."
        case "needs-auth":
            why = line(status.error or "its configuration must be corrected", 300)
            return f"{server} needs a login, and one in a browser does not help: {why}."
        case "disabled" if status.error is not None:  # its file is not approved
            return f"{line(status.error, 400)}."
        case "disabled" if (why := manager.turned_off(status.name)) is not None:
            return f"{server} is disabled, because {why}."
        case "disabled":
            return f"{server} is disabled: `mooring enable {quote(status.name)}`."
        case "pending":
            return f"{server} is still starting: try again later."
        case _:
            reason = line(status.error or "", 400)
            return f"{server} is not connected{': ' + reason if reason else ''}."


async def _first(events: Sequence[asyncio.Event]) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class HealthVerbs:
    """The verbs of `Host` that check whether servers answer."""

    _servers: ServerManager

    async def ping(self, server: str, timeout: float = 5.0) -> float:
        """Return the seconds of a round trip to `server`; it is connected first if needed.

        Args:
            server: The name of the server.
            timeout: Seconds for connection and round trip. Default: 5.

        Raises:
            UnknownServer: There is no such server.
            MooringError: There was no response in time.
        """
        return await self._servers.connection(server).ping(timeout)

    async def health_check(self, timeout: float = 5.0) -> bool:
        """Return False if a server does not answer a ping within `timeout` seconds (default: 5).

        Disabled servers, and lazy ones that have not been used, are left out.
        """
        return await healthy(self._servers, timeout)
