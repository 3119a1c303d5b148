"""When to give up on one request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

LATE = 0.05
"""A timer that fires so many seconds late tells of a loop that was blocked. As long again is given to
read what came meanwhile: an answer that is already here must not be lost to its own deadline."""


class Deadline:
    """An absolute end, and a silence that signs of life interrupt: one timer for both."""

    __slots__ = ("_end", "_expire", "_heard", "_idle", "_loop", "_timer")

    def __init__(self, timeout: float | None, idle: float | None, expire: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._end = math.inf if timeout is None else self._heard + timeout
        self._idle = math.inf if idle is None else idle
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def touch(self) -> None:
        """A sign of life: silence starts anew."""
        if self._heard < math.inf:
            self._heard = self._loop.time()

    def pause(self) -> None:
        """Silence is excused until `resume`: the other side waits for us. The end stays."""
        self._heard = math.inf

    def resume(self) -> None:
        self._heard = self._loop.time()
        self.disarm()
        self._arm()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        due = min(self._end, self._heard + self._idle)
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._fire, due)

    def _fire(self, planned: float) -> None:
        if planned < min(self._end, self._heard + self._idle):
            self._arm()
        elif self._loop.time() - planned > LATE:
            self._timer = self._loop.call_later(LATE, self._expire)
        else:
            self._expire()
