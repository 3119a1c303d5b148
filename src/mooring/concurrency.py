"""Clock, background tasks, threads, application callbacks and event streams."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mooring.config.logs import logger
from mooring.core.events import Event, EventsDropped

if TYPE_CHECKING:
    from anyio import CancelScope


_turned = False


def turned() -> None:
    """Use the clock of the event loop in `monotonic` from now on: tests replace it by a virtual one."""
    global _turned
    _turned = True


def monotonic() -> float:
    """Return seconds on the monotonic clock of the system, or of the event loop after `turned()`."""
    if not _turned:
        return time.monotonic()
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


log = logger("mooring.host")


T = TypeVar("T")


class Tasks:
    """Background tasks that run until `end()`. An exception in one is logged and does not affect the
    others."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()

    def start_from_anywhere(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Like `start_soon`, callable from any thread."""
        if asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            self.start_soon(work)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.start_soon, work)

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run `work(*args)` in a task."""
        task = asyncio.get_running_loop().create_task(_contained(work, args))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Cancel the tasks that still run, and wait until they have ended."""
        await end_tasks(self._running)


AGAIN = 0.5
"""Seconds after which a task that still runs is cancelled again."""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended. Some libraries ignore a cancellation at times, and
    `asyncio.wait_for` of Python 3.11 does so when the result arrives at the same moment: it is repeated."""
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        running = (await asyncio.wait(running, timeout=AGAIN))[1]


async def _contained(work: Callable[..., Coroutine[Any, Any, None]], args: tuple[object, ...]) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("background task failed")


async def side_by_side(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run the coroutines concurrently; return when all have ended."""
    from anyio import create_task_group

    async with create_task_group() as group:
        for work in works:
            group.start_soon(_done, work)


async def _done(work: Coroutine[Any, Any, object]) -> None:
    await work


def shielded() -> AbstractContextManager[object]:
    """Return a scope that shields its block from outer cancel scopes. The block must bound its own time."""
    if "anyio._backends._asyncio" not in sys.modules:  # there is none; importing it takes 20 ms
        return nullcontext()
    from anyio import CancelScope

    return CancelScope(shield=True)


def within(timeout: float | None) -> CancelScope:
    """Return a scope that ends its block silently after `timeout` seconds; None: no limit."""
    from anyio import move_on_after

    return move_on_after(timeout)


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Run `work(*args)` in a worker thread. A cancelled caller still waits for its end."""
    from anyio.to_thread import run_sync

    return await run_sync(work, *args)


MAX_QUEUED = 64
"""Queued calls of one callback; beyond that the oldest is dropped."""
DELIVERY_TIMEOUT = 5.0
"""Seconds that `OrderedCallback.delivered` waits for a callback that does not return."""


async def call_back(callback: Callable[..., Any], *args: Any) -> Any:
    """Call a callback and return its result.

    A plain function runs in a thread of its own, because it may wait for a person: the event loop is not
    blocked. If it returns an awaitable, that is awaited on the event loop. The thread is abandoned on
    cancellation.
    """
    if inspect.iscoroutinefunction(callback):
        return await callback(*args)
    value = await in_own_thread(callback, *args)
    return await value if inspect.isawaitable(value) else value


class OrderedCallback:
    """Calls one callback for a series of reports: one at a time, in order, errors logged.

    Reports are queued while the callback runs. Beyond `MAX_QUEUED` the oldest are dropped, so that a server
    cannot fill the memory.

    Args:
        callback: The callback.
        name: Its name in the log.
        timeout: Seconds from now after which `delivered` does not wait any more. Default: no such limit.
    """

    def __init__(self, callback: Callable[..., Any], name: str, timeout: float | None = None) -> None:
        self._callback, self._name = callback, name
        self._deadline = None if timeout is None else monotonic() + timeout
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=MAX_QUEUED)
        self._idle: asyncio.Event | None = None
        """Set while no report is queued or being delivered; None before the first one."""

    async def __call__(self, *args: Any) -> None:
        """Deliver a report, or queue it if another one is being delivered."""
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
                    log.exception("callback failed: %s", self._name)
        finally:
            self._idle.set()

    async def delivered(self) -> None:
        """Wait until the callback has returned for every report, at most `DELIVERY_TIMEOUT` seconds, and not
        beyond the timeout of the call."""
        await asyncio.sleep(0)  # a report that was just made has not been queued yet
        if self._idle is not None and not self._idle.is_set():
            left = DELIVERY_TIMEOUT if self._deadline is None else self._deadline - monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, DELIVERY_TIMEOUT)):
                    await self._idle.wait()


async def in_own_thread(work: Callable[..., T], *args: Any) -> T:
    """Run `work(*args)` in a daemon thread outside of the pool: a callback that waits for a person or for a
    keyring blocks neither the exit of the interpreter nor other work."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(how: Callable[[Any], None], what: object) -> None:
        if not done.done():
            how(what)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, context.run(work, *args))
        except Exception as problem:
            outcome = (done.set_exception, _settable(problem))
        except BaseException as problem:  # such as SystemExit: otherwise the caller waits forever
            outcome = (done.set_exception, RuntimeError(f"the callback ended with {type(problem).__name__}"))
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="mooring-callback", daemon=True).start()
    return await done


def _settable(problem: Exception) -> Exception:
    """Return the exception, or a RuntimeError for a StopIteration, which a future cannot hold."""
    return (
        RuntimeError("the callback raised StopIteration") if isinstance(problem, StopIteration) else problem
    )


MAX_EVENTS = 1024
"""Events that one stream buffers; beyond that the oldest are dropped."""


class EventStream:
    """Async iterator of the events of a host, from its creation until the host closes or `end()` is called.

    It buffers `MAX_EVENTS` events. When a slow reader lets the buffer overflow, the oldest events are
    dropped and an `EventsDropped` with their number takes their place.
    """

    def __init__(self, on_end: Callable[[EventStream], None], kinds: tuple[type[Event], ...] = ()) -> None:
        self._kinds = kinds
        self._events = deque[Event]()
        self._dropped = 0
        self._arrived = asyncio.Event()
        self._ended = False
        self._on_end = on_end

    def delivers(self, kind: type[Event]) -> bool:
        """Return whether the stream delivers events of this kind."""
        return not self._kinds or issubclass(kind, self._kinds)

    def put(self, event: Event) -> None:
        """Add an event, unless it is of a kind that the stream does not deliver."""
        if self._kinds and not isinstance(event, self._kinds):
            return
        if len(self._events) >= MAX_EVENTS:
            self._events.popleft()
            self._dropped += 1
        self._events.append(event)
        self._arrived.set()

    def end(self) -> None:
        """Accept no more events. Buffered events can still be read."""
        self._ended = True
        self._arrived.set()
        self._on_end(self)

    async def aclose(self) -> None:
        """Same as `end()`."""
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


class EventHub:
    """Delivers each event of a host to its observers and to the open streams."""

    def __init__(self, *observers: Callable[[Event], None]) -> None:
        self.observers = list(observers)
        """Called first, in order, on the event loop. They must not raise."""
        self.streams: set[EventStream] = set()

    def emit(self, event: Event) -> None:
        """Deliver an event."""
        for observe in self.observers:
            observe(event)
        for stream in self.streams:
            stream.put(event)

    def open(self, kinds: tuple[type[Event], ...]) -> EventStream:
        """Return a stream of the events from now on, of all kinds or of `kinds`."""
        stream = EventStream(self.streams.discard, kinds)
        self.streams.add(stream)
        return stream

    def delivers(self, *kinds: type[Event]) -> bool:
        """Return whether any stream delivers events of one of these kinds."""
        if not self.streams:
            return False
        return any(stream.delivers(kind) for stream in self.streams for kind in kinds)

    def close(self) -> None:
        """End all streams."""
        for stream in list(self.streams):
            stream.end()


EXIT_WAIT = 6.0
NOT_RUNNING = "the host is not running; use it inside `with`, or call `open()` first"


class BackgroundLoop:
    """An event loop in a daemon thread. The portal of anyio is not used because its thread blocks the exit
    of an interpreter when the program did not close it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._open = True
        self._submitting = threading.Lock()
        """Held while work is submitted and while the loop is stopped: no work is submitted after that."""
        self.thread = threading.Thread(target=self._run, name="mooring", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(end_tasks(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that the loop runs in."""
        return os.getpid() != self._pid

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result. An interrupt cancels it."""
        if self.foreign or threading.current_thread() is self.thread:
            work.close()
            if self.foreign:
                raise RuntimeError(
                    "this SyncHost belongs to the process that made it; make another after a fork"
                )
            raise RuntimeError("a SyncHost cannot be used from its own event loop; use Host there")
        with self._submitting:
            if not self._open:
                work.close()
                raise RuntimeError(NOT_RUNNING)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the host was closed while this call was running") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        with self._submitting:
            self._open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join(EXIT_WAIT)
