"""What one client may use up. Pure: the caller brings the clock."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Limits", "TooMany"]

KEPT = 50_000
"""Clients that are remembered; the one that was quiet for longest is forgotten first."""


class TooMany(Exception):
    """This client must wait; `retry_after` in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Share:
    tokens: float
    at: float
    under_way: int = 0


class Limits:
    """A bucket of requests and a number of places for each client."""

    def __init__(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self.set(rate=rate, burst=burst, concurrency=concurrency)
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        """From now on these hold; what is under way stays counted."""
        self._rate, self._burst, self._concurrency = rate, float(burst), concurrency

    def enter(self, client: str, now: float) -> None:
        """Count one request in; whoever enters must `leave`.

        Raises:
            TooMany: it may not come in, and was not counted.
        """
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = _Share(tokens=self._burst, at=now)
            self._forget()
        else:
            self._shares.move_to_end(client)
        if share.under_way >= self._concurrency:
            raise TooMany(f"{self._concurrency} requests of this client are under way", 1.0)
        if self._rate is not None:
            share.tokens = min(self._burst, share.tokens + (now - share.at) * self._rate)
            share.at = now
            if share.tokens < 1:
                raise TooMany(f"more than {self._rate:g} requests a second", (1 - share.tokens) / self._rate)
            share.tokens -= 1
        share.under_way += 1

    def leave(self, client: str) -> None:
        share = self._shares.get(client)
        if share is not None:
            share.under_way -= 1

    def _forget(self) -> None:
        # Those with requests under way are kept, whatever the number: they will come to `leave`.
        while len(self._shares) > KEPT:
            name, share = next(iter(self._shares.items()))
            if share.under_way:
                return
            del self._shares[name]
