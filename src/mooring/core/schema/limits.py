"""Bounds on what a schema may cost us. Checked without recursion, before anything else looks at it."""

from __future__ import annotations

from sys import float_info
from typing import cast

from mooring.core.types import Json
from mooring.errors import MooringError

__all__ = ["DEPTH", "LENGTH", "SUBSCHEMAS", "Budget", "SetAside", "check", "finite"]

DEPTH = 64
"""Subschemas inside one another, references followed."""
SUBSCHEMAS = 5_000
"""Subschemas that one schema may hold or expand to."""
LENGTH = 10_000_000
"""Characters of the schema as JSON, roughly counted."""
VALUES = 50_000
"""JSON values of any kind in the schema."""
NESTING = 3 * DEPTH
"""JSON values inside one another: a subschema is at most two levels below the next."""
_LARGEST = float_info.max
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SetAside(MooringError):
    """A schema cannot be offered to the model provider: leave this tool out, and keep the others."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Budget:
    """Subschemas that may still be read, combined or written."""

    def __init__(self, left: int = SUBSCHEMAS) -> None:
        self.left = left

    def spend(self, depth: int) -> None:
        """Take one subschema.

        Raises:
            SetAside: there is none left, or it lies too deep.
        """
        self.left -= 1
        if self.left < 0:
            raise SetAside(f"its schema expands to more than {SUBSCHEMAS:,} subschemas")
        if depth > DEPTH:
            raise SetAside(f"its schema is nested more than {DEPTH} levels deep")


def check(schema: Json) -> bool:
    """Look once at every value, and return whether there may be references.

    Raises:
        SetAside: the schema is no JSON, or larger or deeper than allowed.
    """
    length = seen = 0
    refers = False
    level: list[Json] = [schema]
    for _ in range(NESTING):
        below: list[Json] = []
        for value in level:
            length += 8
            if isinstance(value, str):
                length += len(value)
            elif isinstance(value, dict):
                members = cast("dict[Json, Json]", value)
                for name in members:
                    if not isinstance(name, str):
                        raise SetAside(f"its schema is no JSON: {type(name).__name__} as a name")
                    length += len(name)
                    refers = refers or name in _REFERENCES
                below.extend(members.values())
            elif isinstance(value, list):
                below.extend(cast("list[Json]", value))
            elif not isinstance(value, (bool, int, float, type(None))):
                raise SetAside(f"its schema is no JSON: it holds a {type(value).__name__}")
            if length > LENGTH:
                raise SetAside(f"its schema is larger than {LENGTH:,} characters")
        seen += len(level)
        if seen + len(below) > VALUES:
            raise SetAside(f"its schema holds more than {VALUES:,} values")
        if not below:
            return refers
        level = below
    raise SetAside(f"its schema is nested more than {DEPTH} levels deep")


def finite(value: Json) -> bool:
    """Whether every parser reads a value: no NaN, no number too large for them. Expects a checked value."""
    if isinstance(value, (int, float)):
        return -_LARGEST <= value <= _LARGEST
    if isinstance(value, dict):
        return all(map(finite, cast("dict[str, Json]", value).values()))
    if isinstance(value, list):
        return all(map(finite, cast("list[Json]", value)))
    return True
