"""Backoff, circuit breaker and crash-loop detection. Time and randomness are arguments."""

from __future__ import annotations

from collections import deque
from typing import Literal

__all__ = ["Breaker", "BreakerState", "Restarts", "backoff"]

BreakerState = Literal["closed", "open", "half-open"]

FIRST, LONGEST, SPREAD = 1.0, 30.0, 0.2


def backoff(failures: int, chance: float) -> float:
    """Return the seconds before attempt `failures + 1`: 1, 2, 4, 8, 16, 30, 30 …, with 20 % jitter.
    `chance` is in [0, 1]."""
    if failures <= 0:
        return 0.0
    base = min(FIRST * 2 ** min(failures - 1, 16), LONGEST)
    return base * (1 + SPREAD * (2 * chance - 1))


class Breaker:
    """Opens after 5 transport failures in a row; lets one probe through after 10 s, doubling to 120 s;
    closes after 2 successes. An error result of a tool is not a failure, nor is a timeout that is shorter
    than the limit of the server, unless the server has responded to nothing for as long as its limit."""

    THRESHOLD = 5
    SUCCESSES = 2
    FIRST_REST = 10.0
    LONGEST_REST = 120.0
    WAITED = 0.9
    """Part of its limit that the server had: queueing and connecting use some of the time of a call."""

    def __init__(self) -> None:
        self._failures = 0
        self._waited = self._waited_until = 0.0
        self._successes = 0
        self._rest = self.FIRST_REST
        self._opened_at: float | None = None
        self._probing = False

    def state(self, now: float) -> BreakerState:
        if self._opened_at is None:
            return "closed"
        return "open" if self.retry_after(now) > 0 else "half-open"

    def retry_after(self, now: float) -> float:
        """Seconds until the next probe is allowed; 0 for now."""
        return 0.0 if self._opened_at is None else max(self._opened_at + self._rest - now, 0.0)

    def admit(self, now: float) -> bool:
        """Whether a call is allowed now. The half-open state allows one at a time; report its outcome."""
        if self._opened_at is None:
            return True
        if self._probing or self.retry_after(now) > 0:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures, self._waited = 0, 0.0
        if self._opened_at is None:
            return
        self._probing = False
        self._successes += 1
        if self._successes >= self.SUCCESSES:
            self._opened_at, self._rest, self._successes = None, self.FIRST_REST, 0

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._opened_at is not None:
            if not self._probing:
                return  # admitted before the breaker opened: no new information
            self._opened_at = now
            self._rest = min(self._rest * 2, self.LONGEST_REST)
            self._probing, self._successes = False, 0
        elif self._failures >= self.THRESHOLD:
            self._opened_at, self._probing, self._successes = now, False, 0

    def timed_out(self, sent: float, now: float, limit: float) -> bool:
        """Report a request without a response since `sent`; `limit` is the time that the server may take.
        Return whether it is a failure."""
        self._waited += now - max(sent, self._waited_until)
        self._waited_until = now
        if self._waited < self.WAITED * limit:
            return False
        self.failed(now)
        return True

    def abandoned(self) -> None:
        """Report that the admitted call was given up by its caller."""
        self._probing = False


class Restarts:
    """Recent starts of a server, to detect a crash loop."""

    LIMIT = 5
    WINDOW = 60.0

    def __init__(self) -> None:
        self._starts: deque[float] = deque(maxlen=self.LIMIT)

    def started(self, now: float) -> None:
        self._starts.append(now)

    def clear(self) -> None:
        """Reset the history after a useful connection."""
        self._starts.clear()

    def rest(self, now: float) -> float:
        """Return the seconds to wait before another start: 0 unless there were too many in the window."""
        return max(self._starts[0] + self.WINDOW - now, 0.0) if len(self._starts) == self.LIMIT else 0.0
