"""Flat forms: the restricted JSON Schema in which servers may ask users for values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["choices", "problems_of", "unfit_form"]

_MOST_FIELDS = 100
_KINDS = ("string", "number", "integer", "boolean", "array")
_FORMATS = {
    "email": re.compile(r"[^@\s]+@[^@\s]+"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?"),
}


def unfit_form(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema is no flat form, or None."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "it has no properties"
    fields = cast("dict[str, Any]", properties)
    if len(fields) > _MOST_FIELDS:
        return f"it has more than {_MOST_FIELDS} fields"
    for name, field in fields.items():
        kind = cast("dict[str, Any]", field).get("type") if isinstance(field, dict) else None
        if kind not in _KINDS:
            return f"{name[:80]!r} is none of {', '.join(_KINDS)}"
        if kind == "array" and choices(cast("dict[str, Any]", field)) is None:
            return f"{name[:80]!r} is a list of no known choices"
    return None


def choices(field: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the values that a field may have, each with its title; None where any will do."""
    inner = _mapping(field.get("items")) if field.get("type") == "array" else field
    titled = inner.get("oneOf", inner.get("anyOf"))
    if isinstance(titled, list):
        options = [_mapping(option) for option in cast("list[Any]", titled)]
        return {str(option.get("const")): str(option.get("title", option.get("const"))) for option in options}
    values = inner.get("enum")
    if not isinstance(values, list):
        return None
    names = [str(value) for value in cast("list[Any]", values)]
    given = inner.get("enumNames")
    titles = [str(title) for title in cast("list[Any]", given)] if isinstance(given, list) else names
    return dict(zip(names, titles if len(titles) == len(names) else names, strict=True))


def problems_of(content: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the values of a form, field by field."""
    fields = _mapping(schema.get("properties"))
    required = schema.get("required")
    wanted = cast("list[Any]", required) if isinstance(required, list) else []
    problems = [f"{name!r} is missing" for name in wanted if name in fields and name not in content]
    for name, value in content.items():
        if name not in fields:
            problems.append(f"{name!r} was not asked for")
        elif problem := _unfit(value, _mapping(fields[name])):
            problems.append(f"{name!r} {problem}")
    return problems


def _unfit(value: object, field: Mapping[str, Any]) -> str | None:
    kind = field.get("type")
    if kind == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if kind in ("number", "integer"):
        return _unfit_number(value, field, whole=kind == "integer")
    if kind == "array":
        if not isinstance(value, list | tuple):
            return "must be a list"
        return _unfit_list(cast("Sequence[Any]", value), field)
    return _unfit_text(value, field)


def _unfit_number(value: object, field: Mapping[str, Any], *, whole: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if value != value or value in (float("inf"), float("-inf")):
        return "must be a finite number"
    if whole and value != int(value):
        return "must be a whole number"
    return _outside(value, field, "minimum", "maximum", "")


def _unfit_list(value: Sequence[Any], field: Mapping[str, Any]) -> str | None:
    known = choices(field) or {}
    if unknown := [item for item in value if not isinstance(item, str) or item not in known]:
        return f"must be among {', '.join(map(repr, known))}, not {unknown[0]!r}"
    return _outside(len(value), field, "minItems", "maxItems", " items")


def _unfit_text(value: object, field: Mapping[str, Any]) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    known = choices(field)
    if known is not None:
        return None if value in known else f"must be one of {', '.join(map(repr, known))}"
    form = field.get("format")
    pattern = _FORMATS.get(form) if isinstance(form, str) else None
    if pattern is not None and not pattern.fullmatch(value):
        return f"must be in the format {form!r}"
    return _outside(len(value), field, "minLength", "maxLength", " characters")


def _outside(size: float, field: Mapping[str, Any], least: str, most: str, unit: str) -> str | None:
    low, high = field.get(least), field.get(most)
    if isinstance(low, int | float) and size < low:
        return f"must be at least {low:g}{unit}"
    if isinstance(high, int | float) and size > high:
        return f"must be at most {high:g}{unit}"
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
