"""What is wrong with an entry, in a person's words and without the values that were found there."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["InvalidEntryError", "Problem", "did_you_mean"]


class Problem(Value):
    """One thing that is wrong with an entry, in words."""

    field: str | None
    message: str


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
