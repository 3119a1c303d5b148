"""Clock, background tasks, threads, application callbacks and event streams."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mooring.config.logs import logger
from mooring.core.events import Event, EventsDropped

if TYPE_CHECKING:
    from anyio import CancelScope


_turned = False


def turned() -> None:
    """A loop's clock is no longer the system's. Until then the system's is asked, which is much quicker."""
    global _turned
    _turned = True


def monotonic() -> float:
    """Seconds on the loop's clock; outside a loop, on the system's monotonic one, which it follows."""
    if not _turned:
        return time.monotonic()
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


log = logger("mooring.host")


T = TypeVar("T")


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


class OrderedCallback:
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


KEPT = 1024


class EventStream:
    """An async iterator of events, from the moment it was made until `end()`."""

    def __init__(self, on_end: Callable[[EventStream], None], kinds: tuple[type[Event], ...] = ()) -> None:
        self._kinds = kinds
        self._events = deque[Event]()
        self._dropped = 0
        self._arrived = asyncio.Event()
        self._ended = False
        self._on_end = on_end

    def hears(self, kind: type[Event]) -> bool:
        """Whether events of this kind are for this listener."""
        return not self._kinds or issubclass(kind, self._kinds)

    def put(self, event: Event) -> None:
        if self._kinds and not isinstance(event, self._kinds):
            return
        if len(self._events) >= KEPT:
            self._events.popleft()
            self._dropped += 1
        self._events.append(event)
        self._arrived.set()

    def end(self) -> None:
        """No more events; what is there can still be read."""
        self._ended = True
        self._arrived.set()
        self._on_end(self)

    async def aclose(self) -> None:
        self.end()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._dropped:
                count, self._dropped = self._dropped, 0
                return EventsDropped(count=count)
            if self._events:
                return self._events.popleft()
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
