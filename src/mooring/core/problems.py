"""What is wrong with an entry, in a person's words and without the values that were found there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mooring.core.durations import kind
from mooring.errors import ConfigError

__all__ = ["InvalidEntryError", "Problem", "did_you_mean", "problems_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
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
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


def problems_of(error: ValidationError, known: Iterable[str]) -> tuple[Problem, ...]:
    """pydantic's findings in our words, without the values it found."""
    return tuple(_problem(details, list(known)) for details in error.errors(include_url=False))


def _problem(details: ErrorDetails, known: list[str]) -> Problem:
    place = ".".join(str(part) for part in details["loc"]) or None
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            message = str(context["error"])
        case "extra_forbidden":
            near = did_you_mean(str(details["loc"][-1]), known) if len(details["loc"]) == 1 else None
            message = "is not a known field" + (f"; did you mean {near!r}?" if near else "; remove it")
        case "missing":
            message = "is missing; add it"
        case "literal_error":
            message = f"must be one of {context['expected']}"
        case "bool_parsing" | "bool_type":
            message = "must be true or false"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            limit = next(iter(context.values()))
            words = {"greater_than": "more than", "greater_than_equal": "at least"}
            message = f"must be {words.get(details['type'], 'at most')} {limit:g}"
        case "string_type":
            message = f"must be text, not {kind(details['input'])}"
        case other if other.startswith("int"):
            message = "must be a whole number"
        case _:
            message = f"has the wrong type: {kind(details['input'])}"
    return Problem(field=place, message=message)
