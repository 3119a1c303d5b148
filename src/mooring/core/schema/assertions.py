"""The keywords of JSON Schema that look at one value and at no other schema: type, limits, choices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from mooring.core.text import dumps

__all__ = ["ASSERTIONS"]


def _type(wanted: Any, value: Any, schema: Any) -> str | None:
    kinds = [wanted] if isinstance(wanted, str) else list(wanted)
    if any(_TYPES[kind](value) for kind in kinds):
        return None
    return f"{value!r} is not of type {', '.join(map(repr, kinds))}"


def _enum(wanted: Any, value: Any, schema: Any) -> str | None:
    if any(_equal(value, one) for one in wanted):
        return None
    return f"{value!r} is not one of {wanted!r}"


def _const(wanted: Any, value: Any, schema: Any) -> str | None:
    return None if _equal(value, wanted) else f"{wanted!r} was expected"


def _minimum(least: Any, value: Any, schema: Any) -> str | None:
    if not _is_number(value):
        return None
    if schema.get("exclusiveMinimum") is True and value <= least:
        return f"{value!r} is less than or equal to the minimum of {least!r}"
    return f"{value!r} is less than the minimum of {least!r}" if value < least else None


def _maximum(most: Any, value: Any, schema: Any) -> str | None:
    if not _is_number(value):
        return None
    if schema.get("exclusiveMaximum") is True and value >= most:
        return f"{value!r} is greater than or equal to the maximum of {most!r}"
    return f"{value!r} is greater than the maximum of {most!r}" if value > most else None


def _above(least: Any, value: Any, schema: Any) -> str | None:
    if isinstance(least, bool) or not _is_number(value) or value > least:
        return None
    return f"{value!r} is less than or equal to the minimum of {least!r}"


def _below(most: Any, value: Any, schema: Any) -> str | None:
    if isinstance(most, bool) or not _is_number(value) or value < most:
        return None
    return f"{value!r} is greater than or equal to the maximum of {most!r}"


def _multiple_of(step: Any, value: Any, schema: Any) -> str | None:
    if not _is_number(value):
        return None
    try:
        rest = (value / step) % 1 if isinstance(step, float) else value % step
    except OverflowError:  # the number is too large for a float: compare less exactly
        return None
    return f"{value!r} is not a multiple of {step!r}" if rest else None


def _min_length(least: Any, value: Any, schema: Any) -> str | None:
    return _too_short(value, least) if isinstance(value, str) else None


def _max_length(most: Any, value: Any, schema: Any) -> str | None:
    return _too_long(value, most) if isinstance(value, str) else None


def _min_items(least: Any, value: Any, schema: Any) -> str | None:
    return _too_short(value, least) if isinstance(value, list) else None


def _max_items(most: Any, value: Any, schema: Any) -> str | None:
    return _too_long(value, most) if isinstance(value, list) else None


def _unique(wanted: Any, value: Any, schema: Any) -> str | None:
    if wanted is not True or not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    if len({dumps(item) for item in items}) < len(items):
        return "has items that are the same"
    return None


def _required(names: Any, value: Any, schema: Any) -> str | None:
    if not isinstance(value, dict) or isinstance(names, bool):
        return None
    missing = next((name for name in names if name not in value), None)
    return None if missing is None else f"{missing!r} is a required property"


def _min_properties(least: Any, value: Any, schema: Any) -> str | None:
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) < least:
        return f"{value!r} does not have enough properties"
    return None


def _max_properties(most: Any, value: Any, schema: Any) -> str | None:
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) > most:
        return f"{value!r} has too many properties"
    return None


def _too_short(value: Any, least: Any) -> str | None:
    if len(value) >= least:
        return None
    return f"{value!r} should be non-empty" if least == 1 else f"{value!r} is too short"


def _too_long(value: Any, most: Any) -> str | None:
    if len(value) <= most:
        return None
    return f"{value!r} is expected to be empty" if most == 0 else f"{value!r} is too long"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or cast("float", value).is_integer())


def _equal(one: Any, two: Any) -> bool:
    """Whether two JSON values are the same: 1 is 1.0, and true is not 1."""
    if isinstance(one, dict) and isinstance(two, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(one, list) and isinstance(two, list):
        first, second = cast("list[Any]", one), cast("list[Any]", two)
        return len(first) == len(second) and all(map(_equal, first, second))
    return isinstance(one, bool) is isinstance(two, bool) and one == two


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}
ASSERTIONS: Mapping[str, Callable[[Any, Any, Any], str | None]] = {
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _below,
    "exclusiveMinimum": _above,
    "maxItems": _max_items,
    "maxLength": _max_length,
    "maxProperties": _max_properties,
    "maximum": _maximum,
    "minItems": _min_items,
    "minLength": _min_length,
    "minProperties": _min_properties,
    "minimum": _minimum,
    "multipleOf": _multiple_of,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique,
}
"""By keyword: what is wrong with a value (the keyword's own value, the value, the schema), or None."""
