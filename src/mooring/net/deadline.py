"""When to give up on requests: one timer for all that are under way on a wire, so that a request costs
a comparison and not a timer of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

LATE = 0.05
"""A timer that fires so many seconds late tells of a loop that was blocked. As long again is given to
read what came meanwhile: an answer that is already here must not be lost to its own deadline."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Pending:
    """A request of ours without an answer: an absolute end, and a silence that signs of life interrupt."""

    __slots__ = ("_end", "_heard", "_idle", "_loop", "on_progress")

    def __init__(self, timeout: float | None, idle: float | None, on_progress: Progress | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = now = self._loop.time()
        self._end = math.inf if timeout is None else now + timeout
        self._idle = math.inf if idle is None else idle
        self.on_progress = on_progress

    @property
    def due(self) -> float:
        """When it is given up, as things stand."""
        silent = self._heard + self._idle
        return silent if silent < self._end else self._end

    def touch(self) -> None:
        """A sign of life: silence starts anew."""
        if self._heard < math.inf:
            self._heard = self._loop.time()

    def pause(self) -> None:
        """Silence is excused until `resume`: the other side waits for us. The end stays."""
        self._heard = math.inf

    def resume(self) -> None:
        self._heard = self._loop.time()

    def give_up(self) -> None:
        """It is due: end it, once."""
        self._end = self._idle = math.inf
        self.expire()

    def expire(self) -> None:
        """Tell whoever waits that no answer came in time."""
        raise NotImplementedError(type(self).__name__)


class Watch:
    """Gives up, in time, those of the requests under way that are due."""

    __slots__ = ("_planned", "_timer", "_under_way")

    def __init__(self, under_way: Mapping[int | str, Pending]) -> None:
        self._under_way = under_way
        self._planned = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def heed(self, due: float) -> None:
        """Something is due then: look at that time, or earlier."""
        if due < self._planned:
            self.end()
            self._planned = due
            self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._planned = None, math.inf

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._planned > LATE:
            self._timer = loop.call_later(LATE, self._sweep, loop.time())
        else:
            self._sweep(self._planned)

    def _sweep(self, now: float) -> None:
        self._timer, self._planned = None, math.inf
        for request in [one for one in self._under_way.values() if one.due <= now]:
            request.give_up()
        self.heed(min((one.due for one in self._under_way.values()), default=math.inf))
