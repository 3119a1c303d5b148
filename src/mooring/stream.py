"""One listener's view of what happens: bounded, in order, honest about what it missed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mooring.core.events import Event, EventsDropped

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
