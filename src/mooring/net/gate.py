"""Limits how many requests one server works on at once, and how many more may wait."""

from __future__ import annotations

import asyncio


class Full(Exception):
    """The queue has no room for another request."""


class Gate:
    """Permits for requests under way, granted first come, first served.

    The limits come with each call, because a reload may change them while requests are under way.
    """

    def __init__(self) -> None:
        self.under_way = 0
        """Permits that are held."""
        self._queue: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def take(self, limit: int | None) -> bool:
        """Take a permit if one is free and no request is waiting for it. Give it back with `leave()`."""
        if limit is not None and (self.under_way >= limit or self._queue):
            return False
        self.under_way += 1
        return True

    async def enter(self, limit: int | None, max_queue: int, timeout: float) -> None:
        """Take a permit, waiting for it in the queue for up to `timeout` seconds.

        Raises:
            Full: the queue already holds `max_queue` requests.
            TimeoutError: no permit became free in time.
        """
        if self.take(limit):
            return
        if len(self._queue) >= max_queue:
            raise Full
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        self._grant(limit)
        try:
            async with asyncio.timeout(timeout):
                await turn
        except BaseException:
            # The permit may have been granted in the same turn of the loop in which the wait ended.
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self.leave(limit)
            raise

    def leave(self, limit: int | None) -> None:
        """Give a permit back; the next request in the queue gets it."""
        self.under_way -= 1
        self._grant(limit)

    def _grant(self, limit: int | None) -> None:
        while self._queue and (limit is None or self.under_way < limit):
            turn = next(iter(self._queue))
            del self._queue[turn]
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)
