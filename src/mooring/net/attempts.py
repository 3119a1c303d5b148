"""What the attempts to connect to one server have shown: which era it speaks, and how long to rest."""

from __future__ import annotations

import random
from collections.abc import Callable

from mooring import clock
from mooring.core.breaker import Restarts, backoff
from mooring.core.known import Known
from mooring.net.message import WireError
from mooring.net.negotiate import MODERN_CODES, Era, Peer, era_of
from mooring.net.open import Wire

STABLE = 10.0
"""Seconds: a connection that lived longer did not fail at connecting, so the next attempt comes at once."""
TRIES = 3
"""Failed attempts to reconnect before waiting callers get the error."""
FALLBACK = (400, 404, 405, 415)
"""Statuses that mean "no Streamable HTTP here", so that legacy SSE is worth a try."""


class Attempts:
    """Counts attempts and keeps what they taught. One attempt may start a child twice, once per era."""

    def __init__(self, known: Known | None) -> None:
        self.restarts = Restarts()
        self.era: Era | None = era_of(known.protocol if known else None)
        """What the server spoke last time: only a guess until it has answered in this process."""
        self.seen = known.protocol if known else None
        """The newest protocol that the server ever spoke with us."""
        self.guessed = self.era is not None
        self.first: Era = "modern"
        """The era that a server is asked for which may speak both."""
        self._exits = False
        """Whether the child exited in both eras although it had read the request."""
        self._failures = 0
        self.flooding = False
        """Whether the last connection was cut because the server flooded it."""
        self._connected_before = False
        self._in_vain = 0
        """Failed attempts since the server was last connected."""

    def opened(self) -> Callable[[], None]:
        """A connection is open; call what is returned when it is cut because the server floods it."""
        self.flooding = False
        return self._cut

    def _cut(self) -> None:
        self.flooding = True

    def connected(self, peer: Peer) -> None:
        """Remember the agreement with a server that has been listed."""
        self.era, self.guessed, self._exits = peer.era, False, False
        self.seen = max(self.seen or "", peer.protocol)
        self._connected_before, self._in_vain = True, 0

    def failed(self, *, rested: bool, waiting: bool) -> float:
        """Count an attempt that failed; return the seconds to rest: 1, 2, 4, 8, 16, 30, each ± 20 %.

        Args:
            rested: False when a caller ended the rest before it; then the next rest is no longer.
            waiting: Whether callers wait. A server that was connected before is tried again for them at once.
        """
        self._failures = self._failures + 1 if rested or self.flooding else max(self._failures, 1)
        self._in_vain += 1
        if self.flooding:
            return backoff(self._failures, random.random())
        if waiting and self._connected_before and self._in_vain < TRIES:
            return self._guarded(0.0)
        delay = backoff(self._failures, random.random())
        return delay if rested else self._guarded(delay)

    def lost(self, lived: float, *, waiting: bool) -> float:
        """Count a connection that ended after `lived` seconds; return the seconds to rest."""
        self._failures = 0 if lived > STABLE else self._failures + 1
        return self._guarded(0.0 if waiting else backoff(self._failures - 1, random.random()))

    def _guarded(self, delay: float) -> float:
        """The rest after a start that callers asked for: they cannot keep a crash loop going."""
        return max(delay, self.restarts.rest(clock.monotonic()))

    def another_way(self, left: list[Wire], problem: BaseException) -> bool:
        """Whether the failure may be one of the transport or the era only, so that this attempt goes on
        with another one. Drops the first of `left` when its transport was wrong."""
        if not isinstance(problem, WireError):
            return False
        if left[0] == "stdio" and problem.kind == "closed" and problem.outcome == "not sent":
            return False  # the child exited before it read anything: no other request would change that
        if self.guessed and problem.kind not in ("auth", "refused", "timeout"):
            self.era, self.guessed = None, False
            return True
        if left[0] == "stdio":
            return self._other_era(problem)
        if left[0] == "http" and len(left) > 1 and problem.status in FALLBACK:
            if problem.code in MODERN_CODES:
                return False  # it speaks Streamable HTTP and refuses for another reason
            left.pop(0)
            return True
        return False

    def _other_era(self, problem: WireError) -> bool:
        """Some servers exit on a request that they do not know: start those again with the handshake.

        A child that exits in both eras is started once per attempt from then on, in alternate eras.
        """
        if self.first == "legacy":
            # Some cannot list all their tools in the handshake era: start those again in the other.
            again = self.era is None and problem.kind == "answer"
            self.era = "modern" if again else None
            return again
        if problem.kind != "closed":
            again = self._exits and self.era == "legacy"
            self.era, self._exits = None, False
            return again
        if self._exits:
            self.era = None if self.era == "legacy" else "legacy"
            return False
        again = self.era is None
        self.era, self._exits = ("legacy", False) if again else (None, True)
        return again
