"""How often something that costs a server work may happen because of a caller's mistake."""

from __future__ import annotations

from mooring import clock

__all__ = ["Allowance"]


class Allowance:
    """A token bucket: `most` at once, and one more every `every` seconds."""

    def __init__(self, most: int, every: float) -> None:
        self._most, self._every = most, every
        self._left, self._since = float(most), clock.monotonic()

    def take(self) -> bool:
        """Take one; False when none is left."""
        now = clock.monotonic()
        self._left = min(self._left + (now - self._since) / self._every, float(self._most))
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
