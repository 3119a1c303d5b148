"""How long to leave a failing server alone. Chance comes in as a value."""

from __future__ import annotations

FIRST = 1.0
LONGEST = 30.0
SPREAD = 0.2


def backoff(failures: int, chance: float) -> float:
    """Seconds before try number `failures + 1`: 1, 2, 4, 8, 16, 30, 30 …, each up to a fifth more or
    less, so that servers that fell together do not rise together. `chance` lies in [0, 1]."""
    if failures <= 0:
        return 0.0
    base = min(FIRST * 2 ** min(failures - 1, 16), LONGEST)
    return base * (1 + SPREAD * (2 * chance - 1))
