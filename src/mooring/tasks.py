"""The long-lived tasks of a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mooring.config.logs import logger

log = logger("mooring.host")


class Tasks:
    """Runs work beside everything else, until `end()`.

    Plain asyncio: importing a task group of anyio takes a tenth of the time in which a locked project's
    tools are there. Each piece of work contains its own failures; one that does not is logged, and
    takes nobody along.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        task = asyncio.get_running_loop().create_task(_contained(work, args))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Cancel what is left, and wait until it has ended."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


async def _contained(work: Callable[..., Coroutine[Any, Any, None]], args: tuple[object, ...]) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("a task of the host failed")
