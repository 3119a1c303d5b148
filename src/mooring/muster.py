"""What is asked of many servers at once: each is waited for on its own, and one that fails stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mooring.core.config import Style
from mooring.core.names import may_belong
from mooring.core.values import Value
from mooring.errors import MooringError
from mooring.fleet import Fleet
from mooring.local import Provider
from mooring.tasks import side_by_side

if TYPE_CHECKING:
    from mooring.net.connection import Connection

__all__ = ["RefreshReport", "gather", "healthy", "next_arrival", "refresh", "settled", "usable"]


class RefreshReport(Value):
    """How the refresh of one server went."""

    ok: bool
    tools: int = 0
    error: str | None = None


async def settled(fleet: Fleet) -> None:
    """Until every server that is not lazy has ended its first try to connect."""
    fleet.check_started()
    for connection in list(fleet.connections.values()):
        if connection.config.start != "lazy":
            await connection.settled.wait()


def usable(fleet: Fleet) -> bool:
    """Whether one of the servers that `settled` waits for is connected, or there is none of them."""
    awaited = [c for c in fleet.connections.values() if c.config.start != "lazy" and c.state != "disabled"]
    return not awaited or any(connection.state == "connected" for connection in awaited)


async def healthy(fleet: Fleet, timeout: float) -> bool:
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


async def refresh(fleet: Fleet, names: Sequence[str]) -> Mapping[str, RefreshReport]:
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


async def gather(fleet: Fleet, names: Sequence[str] | None, timeout: float | None) -> dict[str, str]:
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
            await connection.owner.connected(timeout, 1)
        except MooringError as problem:
            errors[connection.name] = str(problem)

    await side_by_side([one(c) for c in connections if c.state != "disabled" or names is not None])
    return {name: errors[name] for name in sorted(errors)}


async def next_arrival(fleet: Fleet, tool: str, style: Style) -> bool:
    """Wait until one more server that could bring `tool` has settled; False when there is none.
    Lazy ones among them are started."""
    fleet.wake(lambda name: may_belong(tool, name, style))
    awaited = [
        connection
        for connection in fleet.connections.values()
        if not connection.settled.is_set() and may_belong(tool, connection.name, style)
    ]
    for connection in awaited:
        await connection.start()
    if awaited:
        await _first([connection.settled for connection in awaited])
    return bool(awaited)


async def _first(events: Sequence[asyncio.Event]) -> None:
    """Until one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
