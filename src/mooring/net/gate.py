"""How many calls one server gets at once, and how many may wait for their turn."""

from __future__ import annotations

import asyncio
from collections import deque

WAITING = 64


class Full(Exception):
    """As many are waiting as may wait."""


class Gate:
    """First come, first served. Without a limit it is always open."""

    def __init__(self, limit: int | None) -> None:
        self._free = limit
        self._queue = deque[asyncio.Future[None]]()

    @property
    def limited(self) -> bool:
        """Whether anybody ever has to wait."""
        return self._free is not None

    async def enter(self, patience: float) -> None:
        """Wait for a place, no longer than `patience` seconds; leave it with `leave()`.

        Raises:
            Full: too many are waiting already.
            TimeoutError: it was not given one in time.
        """
        if self._free is None:
            return
        if self._free > 0:
            self._free -= 1
            return
        if len(self._queue) >= WAITING:
            raise Full
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except (asyncio.CancelledError, TimeoutError):
            if turn.done() and not turn.cancelled():
                self.leave()  # the place was given in the very moment its taker went away
            else:
                self._queue.remove(turn)
            raise

    def leave(self) -> None:
        if self._free is None:
            return
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
