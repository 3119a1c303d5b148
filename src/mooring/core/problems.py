"""What is wrong with an entry, in a person's words and without the values that were found there."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["InvalidEntryError", "Problem", "did_you_mean", "misspelled"]


class Problem(Value):
    """One thing that is wrong with an entry, in words."""

    field: str | None
    message: str
    serious: bool = False
    """Whether a setting that protects something may be missing because of it."""


class InvalidEntryError(ConfigError):
    """An entry is wrong; `problems` holds everything that is, so that it can be mended in one go."""

    def __init__(self, problems: tuple[Problem, ...], *, place: str | None = None) -> None:
        lines = [f"{p.field!r} {p.message}" if p.field else p.message for p in problems]
        super().__init__("; ".join(lines), place=place)
        self.problems = problems


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a misspelling of."""
    import difflib  # only when something is wrong

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is one slip away from (two, in a long name); None when there is none.

    Narrower than `did_you_mean`, for places where most unknown names belong to other programs.
    """
    for other in sorted(known):
        slips = 0 if len(other) < 4 else 1 if len(other) < 6 else 2
        if abs(len(name) - len(other)) <= slips and 0 < _distance(name, other) <= slips:
            return other
    return None


def _distance(one: str, two: str) -> int:
    """Return how many letters were left out, added, replaced or swapped with their neighbour."""
    before, row = list[int](), list(range(len(two) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, other in enumerate(two, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == two[j - 2] and one[i - 2] == other:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
