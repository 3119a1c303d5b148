"""Callbacks of the application: plain functions run in threads, coroutine functions on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mooring.config.logs import logger

__all__ = ["InOrder", "call_back"]

log = logger("mooring.callbacks")

MOST_WAITING = 64
"""Calls of one callback that wait for their turn; beyond that the oldest is dropped."""
DELIVERY = 5.0
"""Seconds that `InOrder.delivered` waits for a callback that does not return."""


async def call_back(callback: Callable[..., Any], *args: Any) -> Any:
    """Return what a callback returns.

    A plain function runs in a thread of its own, because it may wait for a person: the event loop goes on. If
    what it returns can be awaited, it is awaited on the event loop. The thread is abandoned on cancellation.
    """
    if inspect.iscoroutinefunction(callback):
        return await callback(*args)
    value = await _in_own_thread(callback, args)
    return await value if inspect.isawaitable(value) else value


class InOrder:
    """Calls one callback for a series of reports: one at a time, in order, errors logged.

    While the callback is busy, reports wait; of more than `MOST_WAITING` the oldest are dropped, so that a
    server cannot fill the memory.
    """

    def __init__(self, callback: Callable[..., Any], name: str) -> None:
        self._callback, self._name = callback, name
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=MOST_WAITING)
        self._idle: asyncio.Event | None = None
        """Set when every report was delivered; None before the first one."""

    async def __call__(self, *args: Any) -> None:
        """Deliver a report, or leave it to the task that is delivering."""
        self._waiting.append(args)
        if self._idle is None:
            self._idle = asyncio.Event()
        elif not self._idle.is_set():
            return
        self._idle.clear()
        try:
            while self._waiting:
                try:
                    await call_back(self._callback, *self._waiting.popleft())
                except Exception:
                    log.exception("the callback %s failed", self._name)
        finally:
            self._idle.set()

    async def delivered(self) -> None:
        """Wait until the callback has returned for every report, at most `DELIVERY` seconds."""
        await asyncio.sleep(0)  # a report that was just made is not yet under way
        if self._idle is not None and not self._idle.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(DELIVERY):
                    await self._idle.wait()


async def _in_own_thread(work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what `work` returns. The thread is a daemon and not of a pool: a prompt without an answer keeps
    neither the interpreter from ending nor other work from running."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(how: Callable[[Any], None], what: object) -> None:
        if not done.done():
            how(what)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, context.run(work, *args))
        except Exception as problem:
            outcome = (done.set_exception, _settable(problem))
        except BaseException as problem:  # such as SystemExit: the caller must not wait for ever
            outcome = (done.set_exception, RuntimeError(f"the callback ended with {type(problem).__name__}"))
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="mooring-callback", daemon=True).start()
    return await done


def _settable(problem: Exception) -> Exception:
    """A future cannot hold a StopIteration."""
    return (
        RuntimeError("the callback raised StopIteration") if isinstance(problem, StopIteration) else problem
    )
