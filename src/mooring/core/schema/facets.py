"""The keywords of one JSON type that restrict its values, and which of their values make sense."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.schema.limits import finite
from mooring.core.schema.shapes import Kind
from mooring.core.types import Json

__all__ = ["GROUPS", "facets_of"]

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_WORDS = ("format", "pattern")
_LARGEST_COUNT = 2**53
"""Beyond this, not every JSON parser keeps a whole number whole."""

_FACETS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", *_WORDS),
    "integer": (*_NUMBERS, "format"),
    "number": (*_NUMBERS, "format"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}

GROUPS: Mapping[Kind, frozenset[str]] = {
    "string": frozenset(("minLength", "maxLength", *_WORDS)),
    "number": frozenset(_NUMBERS),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")),
    "object": frozenset(
        (
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "minProperties",
            "maxProperties",
        )
    ),
}
"""The type that a schema without `type` must mean when it holds one of these."""


def facets_of(kind: Kind, schema: Mapping[str, Json]) -> dict[str, Json]:
    """The restricting keywords of one type, with draft 4's `exclusiveMinimum: true` in today's form."""
    facets = {
        name: schema[name]
        for name in _FACETS.get(kind, ())
        if name in schema and _sensible(name, schema[name])
    }
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in facets:
            facets[exclusive] = facets.pop(bound)
    return facets


def _sensible(name: str, value: Json) -> bool:
    if name == "uniqueItems":
        return value is True
    if name in _WORDS:
        return isinstance(value, str) and value != ""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not finite(value):
        return False
    if name in _COUNTS:
        return isinstance(value, int) and 0 <= value <= _LARGEST_COUNT
    return name != "multipleOf" or value > 0
