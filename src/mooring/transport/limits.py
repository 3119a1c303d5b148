"""Deadlines of requests, and limits on unsolicited messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic, perf_counter

import anyio

from mooring.transport.forwarding import FORWARDED
from mooring.transport.message import RequestId

LATE = 0.05
"""A timer that fires this many seconds late means that the event loop was blocked. Deadlines are then checked
this much later, so that responses that have already arrived are read first."""

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Pending:
    """A request without a response: an absolute deadline, and an idle timeout that progress resets."""

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
        """The next deadline."""
        silent = self._heard + self._idle
        return silent if silent < self._end else self._end

    def touch(self) -> None:
        """Reset the idle timeout."""
        if self._heard < math.inf:
            self._heard = self._loop.time()

    def pause(self) -> None:
        """Stop the idle timeout until `resume`: the server waits for this side. The deadline stays."""
        self._heard = math.inf

    def resume(self) -> None:
        self._heard = self._loop.time()

    def give_up(self) -> None:
        """Expire it, once."""
        self._end = self._idle = math.inf
        self.expire()

    def expire(self) -> None:
        """Fail the waiters whose deadline has passed."""
        raise NotImplementedError(type(self).__name__)


UNRELATED_TIMEOUT = 300.0
"""Time limit in seconds for answering a server's request while the server has no request from us."""


class ServerRequest:
    """A request of the server that is being answered."""

    __slots__ = ("abandoned", "causes", "scope", "withdrawn")

    def __init__(self, causes: set[RequestId]) -> None:
        self.scope = anyio.CancelScope()
        self.causes = causes
        """Our pending requests that it may belong to."""
        if not causes:
            self.limit()
        self.abandoned = False
        """Whether one of them was cancelled or timed out."""
        self.withdrawn = False
        """Whether the server cancelled the request."""

    def limit(self) -> None:
        """Limit the time for an answer: no timeout of a request of ours ends this one."""
        self.scope.deadline = anyio.current_time() + UNRELATED_TIMEOUT


class DeadlineTimer:
    """Expires running requests at their deadlines."""

    __slots__ = ("_planned", "_timer", "_under_way")

    def __init__(self, under_way: Mapping[int | str, Pending]) -> None:
        self._under_way = under_way
        self._planned = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def check_by(self, due: float) -> None:
        """Check at this time or earlier."""
        if due < self._planned:
            self.end()
            self._planned = due
            self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def end(self) -> None:
        """Stop the timer."""
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
        self.check_by(min((one.due for one in self._under_way.values()), default=math.inf))


MESSAGES, MESSAGES_PER_SECOND = 50_000, 5_000
"""Unsolicited messages: burst, and average per second."""
BYTES, BYTES_PER_SECOND = 64 * 2**20, 8 * 2**20
LINE = 0.25
"""Cost of a line without a message (blank, comment, event field), in messages."""
REQUEST, REQUEST_BY_POST = 5.0, 20.0
"""Cost of a request of the server, in messages: it takes a task and a response, over HTTP a POST."""
STARTS = 8
"""Requests of one server that are started in one turn of the event loop."""
PER_SECOND_OF_WORK = 20_000
"""Cost of a second of parsing, in messages: a large message can cost as much as many."""
SLICE = 0.001
"""Seconds for which input of one server is handled before the event loop serves other tasks."""


def cost(began: float) -> float:
    """Return the cost of a message whose parsing began at this time (`perf_counter`), in messages."""
    return 1.0 + (perf_counter() - began) * PER_SECOND_OF_WORK


class FloodLimit:
    """Unsolicited messages and bytes that one connection may still send; refilled over time."""

    __slots__ = ("_bytes", "_max_bytes", "_messages", "_since")

    def __init__(self, max_message: int) -> None:
        self._max_bytes = max(BYTES, 4 * max_message)
        self._messages: float = MESSAGES
        self._bytes: float = self._max_bytes
        self._since = monotonic()

    def take(self, messages: float, size: int) -> bool:
        """Take some of the allowance; return False if too little is left: the server floods."""
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
    """The time that one stream has used since the event loop last served other tasks."""

    __slots__ = ("_began", "_spent")

    def __init__(self) -> None:
        self._began = self._spent = 0.0

    def begin(self) -> None:
        """Start or resume the time slice."""
        self._began = perf_counter()

    def over(self) -> bool:
        """Whether the slice is used up; if so, start a new one."""
        now = perf_counter()
        self._spent += now - self._began
        self._began = now
        if self._spent < SLICE:
            return False
        self._spent = 0.0
        return True
