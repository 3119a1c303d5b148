"""How work runs beside other work: the long-lived tasks of a host, work done together, work in threads.

anyio is imported when it is first needed: that takes a tenth of the time in which a locked project's tools
are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mooring.config.logs import logger

if TYPE_CHECKING:
    from anyio import CancelScope

T = TypeVar("T")

log = logger("mooring.host")


class Tasks:
    """Runs work beside everything else, until `end()`. Each piece of work contains its own failures; one
    that does not is logged, and takes nobody along."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()

    def start_from_anywhere(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Like `start_soon`, also from a thread without this event loop."""
        if asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            self.start_soon(work)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.start_soon, work)

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


async def side_by_side(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Do all of it at once; return when all of it is done."""
    from anyio import create_task_group

    async with create_task_group() as group:
        for work in works:
            group.start_soon(_done, work)


async def _done(work: Coroutine[Any, Any, object]) -> None:
    await work


def shielded() -> CancelScope:
    """What is done within is not cut short by a cancellation from outside: it has bounds of its own."""
    from anyio import CancelScope

    return CancelScope(shield=True)


def within(timeout: float | None) -> CancelScope:
    """What is done within ends early, quietly, when the time is over."""
    from anyio import move_on_after

    return move_on_after(timeout)


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """What `work` returns, run where it blocks nobody. Whoever is cancelled waits for its end."""
    from anyio.to_thread import run_sync

    return await run_sync(work, *args)
