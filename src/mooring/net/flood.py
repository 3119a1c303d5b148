"""Limits on what a server may send without being asked: how much, and how long it may hold the event loop."""

from __future__ import annotations

from time import monotonic, perf_counter

__all__ = ["Allowance", "Slice", "cost"]

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


class Allowance:
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
