"""Deadlines of requests, and limits on what a server may send unasked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic, perf_counter

from mooring.transport.message import FORWARDED

LATE = 0.05
"""A timer that fires so many seconds late tells of a loop that was blocked. As long again is given to
read what came meanwhile: an answer that is already here must not be lost to its own deadline."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Pending:
    """A request of ours without an answer: an absolute end, and a silence that signs of life interrupt."""

    __slots__ = ("_end", "_heard", "_idle", "_loop", "forwarded", "on_progress")

    def __init__(self, timeout: float | None, idle: float | None, on_progress: Progress | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = now = self._loop.time()
        self._end = math.inf if timeout is None else now + timeout
        self._idle = math.inf if idle is None else idle
        self.on_progress = on_progress
        self.forwarded = FORWARDED.get()

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
        """Fail the waiters whose deadline has passed."""
        raise NotImplementedError(type(self).__name__)


class DeadlineTimer:
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


MESSAGES, MESSAGES_PER_SECOND = 50_000, 5_000
"""Messages that answer no request: at once, and per second in the long run."""
BYTES, BYTES_PER_SECOND = 64 * 2**20, 8 * 2**20
LINE = 0.25
"""What a line that carries no message (blank, a comment, a field of an event) counts, in messages."""
PER_SECOND_OF_WORK = 20_000
"""What a second spent on reading one message counts, in messages: a large one can cost as much as many."""
SLICE = 0.001
"""Seconds for which one server's input is handled before the event loop serves others."""


def cost(began: float) -> float:
    """What a message counts of which the reading began then (by `perf_counter`), in messages."""
    return 1.0 + (perf_counter() - began) * PER_SECOND_OF_WORK


class FloodLimit:
    """Messages and bytes that one connection may still send unasked; refilled with time."""

    __slots__ = ("_bytes", "_max_bytes", "_messages", "_since")

    def __init__(self, max_message: int) -> None:
        self._max_bytes = max(BYTES, 4 * max_message)
        self._messages: float = MESSAGES
        self._bytes: float = self._max_bytes
        self._since = monotonic()

    def take(self, messages: float, size: int) -> bool:
        """Use up a part; False when there is not enough left: the server floods."""
        self._messages -= messages
        self._bytes -= size
        return (self._messages >= 0 and self._bytes >= 0) or self._refilled()

    def _refilled(self) -> bool:
        now = monotonic()
        passed, self._since = now - self._since, now
        self._messages = min(self._messages + passed * MESSAGES_PER_SECOND, MESSAGES)
        self._bytes = min(self._bytes + passed * BYTES_PER_SECOND, self._max_bytes)
        return self._messages >= 0 and self._bytes >= 0


class Slice:
    """The time that one stream has used since the loop last served others."""

    __slots__ = ("_began", "_spent")

    def __init__(self) -> None:
        self._began = self._spent = 0.0

    def begin(self) -> None:
        """Work starts, or goes on after waiting."""
        self._began = perf_counter()

    def over(self) -> bool:
        """Whether it is time to let others run; if so, a new slice follows."""
        now = perf_counter()
        self._spent += now - self._began
        self._began = now
        if self._spent < SLICE:
            return False
        self._spent = 0.0
        return True
