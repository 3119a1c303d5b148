"""Differences of two JSON Schemas: wording only, compatible, or breaking.

A change is compatible only if that follows from the keywords; everything else is breaking. Callers are
assumed to send only declared properties, so a new optional property is compatible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeGuard, cast

from mooring.core.types import Json
from mooring.core.value import Value
from mooring.lock.definitions import canonical

__all__ = ["Difference", "Weight", "ordered", "schema_differences"]

Weight = Literal["text", "annotations", "compatible", "breaking"]
"""In order of severity."""


class Difference(Value):
    """One place where two definitions differ."""

    path: str
    """Such as `input.properties.path.type`."""
    weight: Weight
    before: str | None
    """As JSON text; None: not there."""
    after: str | None


Schema: TypeAlias = Mapping[str, Json]
_ABSENT: Json = object()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEXT = _words("title description $comment examples deprecated readOnly writeOnly")
_UNORDERED = _words("required enum type")
_MAPS = _words("properties patternProperties $defs definitions dependentSchemas")
_SCHEMAS = _words(
    """items prefixItems additionalItems additionalProperties allOf anyOf oneOf not if then else contains
    propertyNames unevaluatedItems unevaluatedProperties contentSchema"""
)
_LOWER = _words("minimum exclusiveMinimum minLength minItems minProperties")
_UPPER = _words("maximum exclusiveMaximum maxLength maxItems maxProperties maxContains")
_REMOVABLE = (
    _LOWER
    | _UPPER
    | _words(
        """pattern format multipleOf uniqueItems propertyNames contains not oneOf anyOf allOf if then else
    enum const required dependentRequired dependentSchemas type"""
    )
)
"""Independent assertions: without them more values are accepted."""
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$ref", "$dynamicRef")
"""Keywords that apply several schemas to one value."""
_NOT_MONOTONE = ("not", "oneOf", "if", "maxContains", "unevaluatedProperties", "unevaluatedItems")
"""Below these, accepting more inside can mean accepting less outside."""


def ordered(schema: Json, *, without: frozenset[str] = frozenset()) -> Json:
    """Return a schema with unordered lists sorted, and without some keywords."""
    if not isinstance(schema, Mapping):
        return schema
    keywords = cast("Schema", schema)
    return {word: _ordered(word, value, without) for word, value in keywords.items() if word not in without}


def _ordered(word: str, value: Json, without: frozenset[str]) -> Json:
    if word in _UNORDERED and _is_list(value):
        return sorted(value, key=canonical)
    if word in _MAPS and _is_map(value):
        return {name: ordered(inner, without=without) for name, inner in value.items()}
    if word in _SCHEMAS:
        if _is_list(value):
            return [ordered(inner, without=without) for inner in value]
        return ordered(value, without=without)
    return value


def schema_differences(before: Schema, after: Schema, path: str) -> list[Difference]:
    """Return the differences for values that callers send."""
    walk = _Walk(before, after)
    walk.schema(path, before, after, composed=False)
    return walk.found


class _Walk:
    def __init__(self, before: Schema, after: Schema) -> None:
        self.found: list[Difference] = []
        # A property name that equals a keyword can only make the result stricter.
        text = canonical(before) + canonical(after)
        refers = any(f'"{word}":' in text for word in ("$ref", "$dynamicRef", "$recursiveRef"))
        turns = any(f'"{word}":' in text for word in _NOT_MONOTONE)
        self.uncertain = '"unevaluated' in text or (refers and turns)
        self.mixed = any(f'"{word}":' in text for word in _IN_PLACE if word != "$ref")

    def note(self, path: str, before: Json, after: Json, *, widens: bool) -> None:
        self.add(path, before, after, "compatible" if widens and not self.uncertain else "breaking")

    def add(self, path: str, before: Json, after: Json, weight: Weight) -> None:
        self.found.append(Difference(path=path, weight=weight, before=_shown(before), after=_shown(after)))

    def schema(self, path: str, before: Json, after: Json, *, composed: bool) -> None:
        if _same(before, after):
            return
        if not (_is_map(before) and _is_map(after)):
            self.note(path, before, after, widens=before is False or _is_anything(after))
            return
        composed = composed or any(word in schema for schema in (before, after) for word in _IN_PLACE)
        for word in sorted(before.keys() | after.keys()):
            self.keyword(path, word, before, after, composed)

    def keyword(self, path: str, word: str, before: Schema, after: Schema, composed: bool) -> None:
        old, new = before.get(word, _ABSENT), after.get(word, _ABSENT)
        if old is not _ABSENT and new is not _ABSENT and _same_value(word, old, new):
            return
        here = f"{path}.{word}"
        if word in _TEXT:
            self.add(here, old, new, "text")
        elif word == "properties":
            self.properties(here, before, after, composed)
        elif word in ("items", "additionalProperties"):
            self.schema(here, *(True if side is _ABSENT else side for side in (old, new)), composed=False)
        elif word in ("$defs", "definitions") and _is_map(old) and _is_map(new):
            self.maps(here, old, new, composed=self.mixed, added="compatible")
        elif word == "patternProperties" and _is_map(old) and _is_map(new):
            self.maps(here, old, new, composed=True, added="breaking")
        elif word in ("allOf", "prefixItems") and _is_list(old) and _is_list(new) and len(old) == len(new):
            self.pairs(here, old, new, composed=word == "allOf")
        elif word == "anyOf" and _is_list(old) and _is_list(new):
            self.any_of(here, old, new)
        elif word == "default":
            self.note(here, old, new, widens=True)
        elif old is not _ABSENT and new is not _ABSENT and _same_but_text(word, old, new):
            self.add(here, old, new, "text")
        else:
            self.note(here, old, new, widens=_widens(word, before, after))

    def properties(self, path: str, before: Schema, after: Schema, composed: bool) -> None:
        old, new = before.get("properties", {}), after.get("properties", {})
        if not (_is_map(old) and _is_map(new)):
            self.note(path, old, new, widens=False)
            return
        for name in sorted(old.keys() | new.keys()):
            here = f"{path}.{name}"
            if name in old and name in new:
                self.schema(here, old[name], new[name], composed=False)
            elif name in old:
                rest = after.get("additionalProperties", True)
                widens = "patternProperties" not in after and self.accepts_all_of(old[name], rest)
                self.note(here, old[name], _ABSENT, widens=widens)
            else:
                rest = before.get("additionalProperties", True)
                # It was not declared, so callers do not send it; a rule for the rest is a declaration.
                declared = composed or "patternProperties" in before
                widens = (not declared and _is_anything(rest)) or self.accepts_all_of(rest, new[name])
                self.note(here, _ABSENT, new[name], widens=widens)

    def accepts_all_of(self, before: Json, after: Json) -> bool:
        trial = _Walk({}, {})
        trial.uncertain, trial.mixed = self.uncertain, self.mixed
        trial.schema("", before, after, composed=True)
        return all(difference.weight != "breaking" for difference in trial.found)

    def maps(self, path: str, old: Schema, new: Schema, *, composed: bool, added: Weight) -> None:
        for name in sorted(old.keys() | new.keys()):
            if name in old and name in new:
                self.schema(f"{path}.{name}", old[name], new[name], composed=composed)
            else:
                widens = name in new and added == "compatible"
                self.note(f"{path}.{name}", old.get(name, _ABSENT), new.get(name, _ABSENT), widens=widens)

    def pairs(self, path: str, old: list[Json], new: list[Json], *, composed: bool) -> None:
        for index, (one, two) in enumerate(zip(old, new, strict=True)):
            self.schema(f"{path}.{index}", one, two, composed=composed)

    def any_of(self, path: str, old: list[Json], new: list[Json]) -> None:
        ours, theirs = ([canonical(ordered(branch, without=_TEXT)) for branch in side] for side in (old, new))
        if sorted(ours) == sorted(theirs):
            self.add(path, old, new, "text")
        elif set(ours) <= set(theirs):
            self.note(path, old, new, widens=True)
        elif len(old) == len(new):
            self.pairs(path, old, new, composed=True)
        else:
            self.note(path, old, new, widens=False)


def _widens(word: str, before: Schema, after: Schema) -> bool:
    """Whether this keyword still accepts all values that it accepted before."""
    old, new = before.get(word, _ABSENT), after.get(word, _ABSENT)
    if word in ("enum", "const"):
        if not all(_is_list(schema.get("enum", [])) for schema in (before, after)):
            return False
        then, now = _values(before), _values(after)
        return now is None or (then is not None and then <= now)
    if new is _ABSENT:
        return word in _REMOVABLE
    if word == "uniqueItems":
        return new is False
    if old is _ABSENT:
        return False
    if word in _LOWER or word in _UPPER:
        if not (_is_number(old) and _is_number(new)):
            return False
        return new <= old if word in _LOWER else new >= old
    if word in ("type", "required"):
        then, now = _names(old), _names(new)
        if then is None or now is None:
            return False
        return _all_types(then) <= _all_types(now) if word == "type" else now <= then
    return False


def _values(schema: Schema) -> frozenset[str] | None:
    """Return the values that `enum` and `const` accept; None for any."""
    enum, const = schema.get("enum", _ABSENT), schema.get("const", _ABSENT)
    allowed = None if const is _ABSENT else frozenset((canonical(const),))
    if enum is _ABSENT:
        return allowed
    listed = frozenset(canonical(value) for value in enum)
    return listed if allowed is None else listed & allowed


def _names(value: Json) -> frozenset[str] | None:
    items = value if _is_list(value) else [value]
    return frozenset(items) if all(isinstance(item, str) for item in items) else None


def _all_types(names: frozenset[str]) -> frozenset[str]:
    return names | {"integer"} if "number" in names else names


def _same(one: Json, other: Json) -> bool:
    return one is other or canonical(ordered(one)) == canonical(ordered(other))


def _same_value(word: str, one: Json, other: Json) -> bool:
    return canonical(_ordered(word, one, frozenset())) == canonical(_ordered(word, other, frozenset()))


def _same_but_text(word: str, one: Json, other: Json) -> bool:
    return canonical(_ordered(word, one, _TEXT)) == canonical(_ordered(word, other, _TEXT))


def _is_anything(schema: Json) -> bool:
    return schema is True or (_is_map(schema) and not schema)


def _shown(value: Json) -> str | None:
    return None if value is _ABSENT else json.dumps(value, ensure_ascii=False, default=dict)


def _is_map(value: Json) -> TypeGuard[Mapping[str, Json]]:
    return isinstance(value, Mapping)


def _is_list(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list | tuple)


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
