"""The dialects of JSON Schema as data, and notes on changes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mooring.core.schema.shapes import DEPTH
from mooring.core.types import Json

Path = tuple[str, ...]
"""Names of members from the root; `*` for the items of an array or the undeclared members of an object."""

_MOST = 50


class Notes:
    """Collects notes, at most fifty."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}

    def add(self, at: Path, words: str) -> None:
        if len(self._notes) < _MOST:
            place = ".".join(name[:40] for name in at)
            self._notes[f"{place[:200]!r} {words}" if at else f"the schema {words}"] = None

    def all(self) -> tuple[str, ...]:
        return tuple(self._notes)


_DESCRIPTION = 4_096
"""Characters of a description."""
_HINT = 400
"""Characters of a constraint that is only in the description."""


def described(
    schema: dict[str, Json], text: Mapping[str, Json], hints: tuple[str, ...], annotations: Collection[str]
) -> dict[str, Json]:
    """Return the schema with its texts. Defaults and examples that the dialect rejects become hints."""
    every = list(hints)
    outcome = dict(schema)
    if "title" in text:
        outcome["title"] = text["title"]
    for name in ("default", "examples"):
        if name in text and name in annotations:
            outcome[name] = text[name]
        elif text.get(name) is not None:
            every.append(f"{name}: {json.dumps(text[name], ensure_ascii=False)}")
    hint = "; ".join(one if len(one) <= _HINT else f"{one[: _HINT - 1]}…" for one in every)
    if words := with_hint(text.get("description"), f"({hint})" if hint else None):
        outcome["description"] = words
    return outcome


def with_hint(text: str | None, hint: str | None) -> str:
    """Return the description, cut if needed, followed by the hint."""
    hint = hint or ""
    room = max(_DESCRIPTION - len(hint) - 1, 0)
    if text and len(text) > room:
        text = f"{text[: room - 1]}…" if room else None
    return f"{text} {hint}" if text and hint else text or hint


def shared(schema: dict[str, Json], raw: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the server's own object if the schema did not change, so that no copy stays in memory."""
    return raw if isinstance(raw, dict) and raw == schema else schema


Dialect = Literal["openai", "openai-strict", "anthropic", "gemini", "plain"]

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The subset of JSON Schema that one dialect supports."""

    facets: frozenset[str]
    """Supported keywords that restrict values; the others go into the description."""
    formats: Mapping[str, frozenset[str]] | None
    """Values of `format` by type; None for all."""
    annotations: frozenset[str]
    """Which of `default` and `examples` are supported as keywords."""
    null: Literal["anyOf", "type", "nullable"]
    """How null is allowed beside something else: a branch, one more `type`, or OpenAPI's keyword."""
    unions: bool
    """Whether unions are supported."""
    anything: bool
    """Whether a schema may leave the type open."""
    maps: bool
    """Whether an object may have members that are not declared."""
    empty: bool = True
    """Whether an object below the root may declare no members."""
    labels: bool = False
    """Whether fixed values must be strings."""
    strict: bool = False
    """Whether objects must be closed and all their members required."""
    lone_union: bool = False
    """Whether `anyOf` must have no keywords beside it."""
    levels: int = DEPTH
    """Most nested objects and arrays."""
    foreign: re.Pattern[str] | None = None
    """Characters that names of members must not have; None if every name but the empty one is allowed."""
    letter_first: bool = False

    def rename(self, names: Iterable[str]) -> dict[str, str]:
        """Return the name that the model uses for each member: the server's if the dialect allows it; all
        distinct."""
        wanted = {name: self._name(name) for name in names}
        taken = {name for name, sent in wanted.items() if name == sent}
        for name, sent in wanted.items():
            if name != sent:
                number = 2
                unique = sent
                while unique in taken:
                    unique = f"{sent[: _LONGEST_NAME - 6]}_{number}"
                    number += 1
                taken.add(unique)
                wanted[name] = unique
        return wanted

    def _name(self, name: str) -> str:
        if self.foreign is None:
            return name or "_"
        reduced = self.foreign.sub("_", name)[:_LONGEST_NAME] or "_"
        if self.letter_first and not (reduced[0].isalpha() or reduced[0] == "_"):
            reduced = f"_{reduced}"[:_LONGEST_NAME]
        return reduced


_BOUNDS = frozenset(("minimum", "maximum"))
_EXCLUSIVE = frozenset(("exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_LENGTHS = frozenset(("minLength", "maxLength"))
_ITEMS = frozenset(("minItems", "maxItems"))
_PROPERTIES = frozenset(("minProperties", "maxProperties"))
# None supports `pattern`: providers reject the whole request if they cannot parse the expression.
_ALL = _BOUNDS | _EXCLUSIVE | _LENGTHS | _ITEMS | _PROPERTIES | {"uniqueItems", "format"}

_STRICT_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)

_LOOSE = Subset(
    facets=_ALL,
    formats=None,
    annotations=frozenset(("default", "examples")),
    null="anyOf",
    unions=True,
    anything=True,
    maps=True,
)

SUBSETS: Mapping[Dialect, Subset] = {
    "openai": _LOOSE,
    "openai-strict": Subset(
        facets=_BOUNDS | _EXCLUSIVE | _ITEMS | {"format"},
        formats={"string": _STRICT_FORMATS},
        annotations=frozenset(),
        null="type",
        unions=True,
        anything=False,
        maps=False,
        strict=True,
        levels=10,
    ),
    "anthropic": replace(_LOOSE, foreign=re.compile(r"[^a-zA-Z0-9_.-]")),
    "gemini": Subset(
        facets=_BOUNDS | _LENGTHS | _ITEMS | _PROPERTIES | {"format"},
        formats={
            "string": frozenset(("date-time",)),
            "integer": frozenset(("int32", "int64")),
            "number": frozenset(("float", "double")),
        },
        annotations=frozenset(),
        null="nullable",
        unions=True,
        anything=False,
        maps=False,
        empty=False,
        labels=True,
        lone_union=True,
        foreign=re.compile(r"[^a-zA-Z0-9_]"),
        letter_first=True,
    ),
    "plain": Subset(
        facets=_BOUNDS | _ITEMS,
        formats={},
        annotations=frozenset(),
        null="type",
        unions=False,
        anything=False,
        maps=True,
        foreign=re.compile(r"[^a-zA-Z0-9_]"),
        letter_first=True,
    ),
}
