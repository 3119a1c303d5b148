"""What waits to be written to one client: bounded, in order, by one writer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

__all__ = ["Outbox"]

KEPT = 1024
"""Messages that a slow reader may be behind; then it is dropped, and the others never wait for it."""


class Outbox:
    """Messages for one stream. `put` never waits; `pour` writes until the box is closed."""

    __slots__ = ("_closed", "_data", "_wake", "lost", "on_lost")

    def __init__(self, on_lost: Callable[[], None] | None = None) -> None:
        self._data = deque[bytes]()
        self._wake = asyncio.Event()
        self._closed = False
        self.lost = False
        """Whether the reader was too slow, or went away."""
        self.on_lost = on_lost

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, data: bytes) -> None:
        if self._closed:
            return
        if len(self._data) >= KEPT:
            self.lose()
            return
        self._data.append(data)
        self._wake.set()

    def close(self) -> None:
        """Nothing more comes; what is there is still written."""
        self._closed = True
        self._wake.set()

    def lose(self) -> None:
        """The reader is gone."""
        if not self.lost:
            self.lost = True
            self._data.clear()
            self.close()
            if self.on_lost is not None:
                self.on_lost()

    async def pour(
        self,
        write: Callable[[bytes], Awaitable[None]],
        *,
        frame: Callable[[bytes], bytes],
        pulse: float | None = None,
        beat: bytes = b"",
    ) -> None:
        """Write everything in order until closed; after `pulse` seconds of silence, write `beat`."""
        while True:
            while self._data:
                await write(frame(self._data.popleft()))
            if self._closed:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(pulse):
                    await self._wake.wait()
            except TimeoutError:
                await write(beat)
