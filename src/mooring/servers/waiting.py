"""What is asked of many servers at once: each is waited for on its own, and one that fails stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Protocol

from mooring.concurrency import side_by_side
from mooring.config.models import Style
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
    "RefreshReport",
    "ToolView",
    "absence",
    "await_tool",
    "gather",
    "healthy",
    "refresh",
    "settled",
    "usable",
]

RELISTED_WITHIN = 20.0
"""Seconds that a call of an unknown name waits at most for servers to connect or list again."""


class ToolView(Protocol):
    """What one kind of caller is shown: a host's catalog, or that of a gateway profile."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def style(self) -> Style: ...

    def admits(self, server: str) -> bool:
        """Whether anything of this server is shown."""
        ...


class RefreshReport(Value):
    """How the refresh of one server went."""

    ok: bool
    tools: int = 0
    error: str | None = None


async def settled(fleet: ServerManager) -> None:
    """Until every server that is not lazy has ended its first try to connect."""
    fleet.check_started()
    for connection in list(fleet.connections.values()):
        if connection.config.start != "lazy":
            await connection.settled.wait()


def usable(fleet: ServerManager) -> bool:
    """Whether one of the servers that `settled` waits for is connected, or there is none of them."""
    awaited = [c for c in fleet.connections.values() if c.config.start != "lazy" and c.state != "disabled"]
    return not awaited or any(connection.state == "connected" for connection in awaited)


async def healthy(fleet: ServerManager, timeout: float) -> bool:
    """False if any server that is neither disabled nor asleep does not answer a ping within `timeout`."""
    fleet.check_started()
    failed: list[str] = []

    async def check(connection: Connection) -> None:
        try:
            await connection.ping(timeout)
        except MooringError:
            failed.append(connection.name)

    await side_by_side([check(one) for one in fleet.connections.values() if one.state != "disabled"])
    return not failed


async def refresh(fleet: ServerManager, names: Sequence[str]) -> Mapping[str, RefreshReport]:
    """List the named providers (or all) anew, side by side; how each went.

    Raises:
        UnknownServer: one of `names` is not there.
    """
    fleet.check_started()
    if not names:
        fleet.wake(lambda name: True)
    running = [c for c in fleet.connections.values() if c.state != "disabled"]
    chosen = [fleet.provider(name) for name in names] or [*running, *fleet.providers.values()]
    reports: dict[str, RefreshReport] = {}

    async def one(provider: Provider) -> None:
        error = None
        try:
            await provider.refresh()
            if provider.name in fleet.providers:  # connections publish what they list themselves
                fleet.publish(provider.snapshot)
        except Exception as problem:
            error = str(problem)
        tools = len(provider.snapshot.tools)
        reports[provider.name] = RefreshReport(ok=error is None, tools=tools, error=error)

    await side_by_side([one(provider) for provider in chosen])
    return {name: reports[name] for name in sorted(reports)}


async def gather(fleet: ServerManager, names: Sequence[str] | None, timeout: float | None) -> dict[str, str]:
    """Have the named servers, or all, connected and listed, side by side; why some are not.

    Raises:
        UnknownServer: one of `names` is not there.
    """
    fleet.check_started()
    wanted = [name for name in (fleet.configs if names is None else names) if name not in fleet.providers]
    connections = [fleet.connection(name) for name in wanted]
    errors: dict[str, str] = {}

    async def one(connection: Connection) -> None:
        try:
            await connection.supervisor.connected(timeout, 1)
        except MooringError as problem:
            errors[connection.name] = str(problem)

    await side_by_side([one(c) for c in connections if c.state != "disabled" or names is not None])
    return {name: errors[name] for name in sorted(errors)}


async def await_tool(fleet: ServerManager, tool: str, shown: ToolView, *, known: bool) -> None:
    """Wait until `tool` is there, or no server could still bring it.

    Servers that could own the name and are still starting are waited for; lazy ones are started. Then
    those are listed once more that announced a change, are not connected, or, unless the name is
    `known` to be withheld, could have it by now: all at once, and within each connection's allowance.
    """

    def owners() -> list[Connection]:
        fleet.wake(lambda name: shown.admits(name) and may_belong(tool, name, shown.style))
        return [
            connection
            for name, connection in list(fleet.connections.items())
            if shown.admits(name) and may_belong(tool, name, shown.style) and connection.state != "disabled"
        ]

    while tool not in shown.catalog.tools:
        starting = [connection for connection in owners() if not connection.settled.is_set()]
        if not starting:
            break
        for connection in starting:
            await connection.start()
        await _first([connection.settled for connection in starting])
    if tool in shown.catalog.tools:
        return
    stale = [connection for connection in owners() if connection.supervisor.lists.outdated or not known]
    waiting = {asyncio.ensure_future(connection.relist()) for connection in stale}
    try:
        async with asyncio.timeout(RELISTED_WITHIN):
            while waiting and tool not in shown.catalog.tools:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        pass
    finally:
        for one in waiting:
            one.cancel()


def absence(fleet: ServerManager, tool: str, shown: ToolView) -> Absence | None:
    """Why `tool` may be missing: a server that could own the name and is not connected."""
    absent = [
        _lasting(status, fleet)
        for status in fleet.status()
        if status.state != "connected"
        and shown.admits(status.name)
        and may_belong(tool, status.name, shown.style)
    ]
    if not absent:
        return None
    # With nested names (`a`, `a_b`) the longest one is meant; with raw names any of them may be.
    absent.sort(key=lambda status: (-len(prefix(status.name, shown.style)), status.name))
    nearest_one = absent[0]
    told = absent[:1] if shown.style != "raw" else absent[:3]
    return Absence(
        server=nearest_one.name,
        state=nearest_one.state,
        hint=" ".join(_absent(status) for status in told),
    )


def _lasting(status: ServerStatus, fleet: ServerManager) -> ServerStatus:
    """The status, and of a server that is tried again because of this very call, the one before that."""
    connection = fleet.connections.get(status.name)
    problem = None if connection is None else connection.supervisor.problem
    if status.state != "pending" or problem is None:
        return status
    return replace(status, state="needs-auth" if isinstance(problem, AuthNeeded) else "failed")


def _absent(status: ServerStatus) -> str:
    server = f"Server {status.name!r}"
    match status.state:
        case "needs-auth":
            return f"{server} needs a login: `mooring login {quote(status.name)}`."
        case "disabled":
            return f"{server} is disabled: `mooring enable {quote(status.name)}`."
        case "pending":
            return f"{server} is still starting: try again later."
        case _:
            reason = line(status.error or "", 400)
            return f"{server} is not connected{': ' + reason if reason else ''}."


async def _first(events: Sequence[asyncio.Event]) -> None:
    """Until one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
