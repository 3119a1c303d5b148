"""What every contestant gives: connected servers, and one way to call them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Server = dict[str, Any]
"""One server as JSON: `name`, and `command` with `args`, or `url`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Connected servers. `call(server, tool, arguments)` gives the text of the result."""

    tools: int
    call: Callable[[str, str, dict[str, Any]], Awaitable[str]]


@asynccontextmanager
async def together(
    one: Callable[[Server], AbstractAsyncContextManager[T]], servers: Sequence[Server]
) -> AsyncGenerator[dict[str, T]]:
    """All contexts entered at once, by name. Each lives in a task of its own: the SDK's contexts must be
    left by the task that entered them."""
    done = asyncio.Event()
    opened: dict[str, T] = {}
    remaining = len(servers)
    ready = asyncio.Event()

    async def hold(server: Server) -> None:
        nonlocal remaining
        async with one(server) as value:
            opened[server["name"]] = value
            remaining -= 1
            if not remaining:
                ready.set()
            await done.wait()

    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(hold(server))
        await ready.wait()
        try:
            yield opened
        finally:
            done.set()
