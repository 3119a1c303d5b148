"""Compile a server's JSON Schema for a provider: follow references, resolve unions and intersections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import unquote

from mooring.core.schema.dialects import SUBSETS, Dialect, Notes, Path, Subset
from mooring.core.schema.shapes import (
    NEVER,
    OPEN,
    Alt,
    Budget,
    Kind,
    SetAside,
    Shape,
    as_list,
    as_object,
    check,
    finite,
    is_kind,
    join,
    kind_of,
    meet,
    merge,
    value_key,
)
from mooring.core.schema.write import Plan, Writer, undo
from mooring.core.types import Json, Tool

__all__ = ["Compiled", "Dialect", "SetAside", "compile_schema", "compile_tools"]


class References:
    """Finds the targets of `#`, `#/any/json/pointer`, `#anchor`, and these behind the schema's `$id`."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._anchors: dict[str, Json] | None = None

    def find(self, ref: str) -> Json:
        """Return the schema that a reference points to, or None."""
        base = self._root.get("$id")
        if isinstance(base, str) and base and ref.startswith(base):
            ref = ref[len(base) :] or "#"
        if ref == "#":
            return self._root
        if ref.startswith("#/"):
            target = self._follow(ref[2:])
        elif ref.startswith("#"):
            if self._anchors is None:
                self._anchors = _anchors(self._root)
            target = self._anchors.get(ref[1:])
        else:
            target = None
        return target if isinstance(target, bool) else as_object(target)

    def _follow(self, pointer: str) -> Json:
        place: Json = self._root
        for part in pointer.split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if (members := as_object(place)) is not None:
                place = members.get(name)
            else:
                items = as_list(place)
                within = name.isdecimal() and len(name) <= 6 and int(name) < len(items)
                place = items[int(name)] if within else None
        return place


def _anchors(root: Json) -> dict[str, Json]:
    """Return the subschemas that have an anchor or id, by that name."""
    found: dict[str, Json] = {}
    waiting: list[Json] = [root]
    while waiting:
        place = waiting.pop()
        if isinstance(place, list):
            waiting.extend(as_list(place))
        elif schema := as_object(place):
            waiting.extend(schema.values())
            for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(name := schema.get(keyword), str):
                    found.setdefault(name.removeprefix("#"), schema)
    return found


_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_WORDS = ("format", "pattern")
_LARGEST_COUNT = 2**53
"""Larger integers lose precision in some JSON parsers."""

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
"""By type: the keywords that imply it in a schema without `type`."""


def facets_of(kind: Kind, schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the restricting keywords of one type, with draft 4's `exclusiveMinimum: true` in the current
    form."""
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


_UNROLL = 2
"""How often a reference may be expanded inside itself."""

_LOST = ("if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains", "not")


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a subschema: its path, its depth, and the references that led to it."""

    at: Path = ()
    depth: int = 0
    opened: tuple[str, ...] = ()

    def under(self, *names: str) -> _Place:
        return _Place((*self.at, *names), self.depth + 1, self.opened)

    def behind(self, ref: str) -> _Place:
        return _Place(self.at, self.depth + 1, (*self.opened, ref))


class SchemaReader:
    """Reads one schema. `reach` is the greatest number of nested references."""

    def __init__(self, root: Mapping[str, Json], notes: Notes, reach: int) -> None:
        self._references = References(root)
        self._notes = notes
        self._reach = reach
        self._budget = Budget()

    def read(self, raw: Json, place: _Place = _Place()) -> Shape:  # noqa: B008 (frozen)
        """Return the shape of a schema: what it allows.

        Raises:
            SetAside: the schema is too deep, or expands to too much.
        """
        self._budget.spend(place.depth)
        if isinstance(raw, bool):
            return OPEN if raw else NEVER
        schema = as_object(raw)
        if schema is None:
            self._notes.add(place.at, "is not a schema; anything is allowed")
            return OPEN
        if "not" in schema and schema["not"] in ({}, True):
            return NEVER
        shape = self._own(schema, place)
        for part in self._parts(schema, place):
            shape = meet(shape, part, self._budget, place.depth)
        shape = self._conditional(shape, schema, place)
        if schema.get("nullable") is True and not shape.nullable:
            shape = replace(shape, alts=(*shape.alts, Alt(kind="null")))
        for keyword in _LOST:
            if keyword in schema:
                self._notes.add(
                    place.at, f"has a `{keyword}` that the model does not see; the server checks it"
                )
        return replace(shape, text={**shape.text, **self._text(schema, place)}, raw=schema)

    def _parts(self, schema: dict[str, Json], place: _Place) -> Iterator[Shape]:
        """Yield the shapes that apply beside the schema's own keywords: references, fixed values,
        combinations."""
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(ref := schema.get(keyword), str):
                yield self._refer(ref, place)
        for values in ([schema["const"]] if "const" in schema else [], as_list(schema.get("enum"))):
            if usable := [value for value in values if finite(value)]:
                yield _fixed(usable)
        for part in as_list(schema.get("allOf")):
            yield self.read(part, place.under())
        for keyword in ("anyOf", "oneOf"):
            if branches := as_list(schema.get(keyword)):
                yield join([self.read(branch, place.under()) for branch in branches])

    def _refer(self, ref: str, place: _Place) -> Shape:
        target = self._references.find(ref)
        if target is None:
            self._notes.add(place.at, f"refers to {ref[:80]!r}, which is not there; anything is allowed")
            return OPEN
        if place.opened.count(ref) < _UNROLL and len(place.opened) < self._reach:
            return self.read(target, place.behind(ref))
        self._notes.add(place.at, f"is cut where {ref[:80]!r} goes deeper; anything is allowed")
        text = self._text(as_object(target) or {}, place)
        return replace(OPEN, text={name: text[name] for name in ("title", "description") if name in text})

    def _own(self, schema: dict[str, Json], place: _Place) -> Shape:
        """Return the shape of the schema's own keywords, without fixed values and combinations."""
        said = schema.get("type")
        names = as_list(said) if isinstance(said, list) else [said]
        kinds: list[Kind] = [name for name in names if is_kind(name)]
        if "type" not in schema:
            kinds = [
                kind
                for kind, keywords in GROUPS.items()
                if any(name in keywords and not isinstance(schema[name], bool) for name in schema)
            ]
        elif len(kinds) < len(names):
            self._notes.add(place.at, "has a `type` that JSON Schema does not know; anything is allowed")
            return OPEN
        alts = [self._alt(kind, schema, place) for kind in dict.fromkeys(kinds)]
        return Shape(alts=tuple(alts), vague="type" not in schema) if alts else OPEN

    def _alt(self, kind: Kind, schema: dict[str, Json], place: _Place) -> Alt:
        alt = Alt(kind=kind, facets=facets_of(kind, schema))
        if kind == "array":
            return self._array(alt, schema, place)
        return self._object(alt, schema, place) if kind == "object" else alt

    def _array(self, alt: Alt, schema: dict[str, Json], place: _Place) -> Alt:
        items = schema.get("items")
        tuple_of = as_list(schema.get("prefixItems")) or as_list(items)
        rest = schema.get("additionalItems", True) if isinstance(items, list) else schema.get("items", True)
        shapes = [self.read(one, place.under(str(index))) for index, one in enumerate(tuple_of)]
        if rest is False:
            alt = replace(alt, facets={**alt.facets, "maxItems": len(shapes)})
        else:
            shapes.append(self.read(rest, place.under("*")))
        if tuple_of:
            self._notes.add(place.at, "is a tuple whose items are not distinguished")
        return replace(alt, items=join([shape for shape in shapes if shape.alts], mixed=True))

    def _object(self, alt: Alt, schema: dict[str, Json], place: _Place) -> Alt:
        extra, stated = self._extra(schema, place)
        required = list(
            dict.fromkeys(name for name in as_list(schema.get("required")) if isinstance(name, str))
        )
        fields: dict[str, Shape] = {}
        for name, raw in (as_object(schema.get("properties")) or {}).items():
            if not isinstance(raw, (dict, bool)):
                self._notes.add((*place.at, name), "is not a schema; left out")
                continue
            shape = self.read(raw, place.under(name))
            if shape.alts:
                fields[name] = shape
            elif name in required:
                self._notes.add((*place.at, name), "is required, and nothing is allowed for it")
                fields[name] = OPEN
        if extra is not None:
            fields.update({name: extra for name in required if name not in fields})
        known = tuple(name for name in required if name in fields)
        if len(known) < len(required):
            self._notes.add(place.at, "requires members that it does not allow")
        return replace(alt, fields=fields, required=known, extra=extra, stated=stated)

    def _extra(self, schema: dict[str, Json], place: _Place) -> tuple[Shape | None, bool]:
        """Return the shape of undeclared members (None: not allowed), and whether the schema declares it."""
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        patterns = as_object(schema.get("patternProperties")) or {}
        if patterns:
            self._notes.add(place.at, "has `patternProperties`, whose patterns the model does not see")
        shapes = [self.read(raw, place.under("*")) for raw in (*patterns.values(), schema.get(keyword, True))]
        allowed = [shape for shape in shapes if shape.alts]
        return (join(allowed) if allowed else None), keyword in schema or bool(patterns)

    def _conditional(self, shape: Shape, schema: dict[str, Json], place: _Place) -> Shape:
        """Return the shape with members that are declared under a condition as optional members."""
        parts = [schema[name] for name in ("then", "else") if name in schema]
        for name in ("dependentSchemas", "dependencies"):
            parts += [raw for raw in (as_object(schema.get(name)) or {}).values() if isinstance(raw, dict)]
        found: dict[str, Shape] = {}
        for part in parts:
            for alt in self.read(part, place.under()).alts:
                for name, one in alt.fields.items():
                    found[name] = join([found[name], one]) if name in found else one
        if not found:
            return shape
        return replace(shape, alts=tuple(_with_fields(alt, found) for alt in shape.alts))

    def _text(self, schema: dict[str, Json], place: _Place) -> dict[str, Json]:
        """Return the usable annotations of a schema: title, description, default, examples."""
        text = {name: schema[name] for name in ("title", "description") if isinstance(schema.get(name), str)}
        if "description" in schema and "description" not in text:
            self._notes.add(place.at, "has a description that is not text")
        if "default" in schema and finite(schema["default"]):
            text["default"] = schema["default"]
        if (examples := as_list(schema.get("examples"))) and finite(examples):
            text["examples"] = examples
        return text


def _with_fields(alt: Alt, found: Mapping[str, Shape]) -> Alt:
    if alt.kind != "object":
        return alt
    new = {name: one for name, one in found.items() if alt.fields.get(name, OPEN) is OPEN}
    return replace(alt, fields={**alt.fields, **new})


def _fixed(values: list[Json]) -> Shape:
    """Return the shape of some fixed values: one alternative per JSON type."""
    kinds: dict[Kind, dict[str, Json]] = {}
    whole = all(kind_of(value) != "number" for value in values)
    for value in values:
        kind = kind_of(value)
        some = kinds.setdefault("number" if kind == "integer" and not whole else kind, {})
        some.setdefault(value_key(value), value)
    return Shape(
        alts=tuple(
            Alt(kind=kind, values=None if kind == "null" else tuple(some.values()), extra=OPEN)
            for kind, some in kinds.items()
        )
    )


_REACHES = (16, 3, 1)
"""Limits of nested references, tried in turn until the schema is small enough."""

_WRAPPER = "arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A tool's schema as one provider accepts it. Read-only: it may share parts with the server's."""

    schema: Mapping[str, Json]
    notes: tuple[str, ...] = ()
    plan: Plan | None = None
    wrapped: bool = False
    """Whether all arguments are one member of the root, because the server's root is not an object."""

    def back(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments for the server's schema. Never fails: invalid ones stay unchanged."""
        outcome = undo(self.plan, dict(arguments))
        if self.wrapped and isinstance(inner := outcome.get(_WRAPPER), dict):
            return cast("dict[str, Json]", inner)
        return outcome


def compile_schema(schema: Mapping[str, Json], dialect: Dialect) -> Compiled:
    """Return a tool's input schema in a dialect.

    Raises:
        SetAside: the schema is too large, is not JSON, or allows no value.
    """
    raw = schema if isinstance(schema, dict) else dict(schema)
    retries = _REACHES[:-1] if check(raw) else ()
    for reach in retries:
        try:
            return _compile(raw, SUBSETS[dialect], reach)
        except SetAside:
            continue
    return _compile(raw, SUBSETS[dialect], _REACHES[-1])


def compile_tools(tools: Iterable[Tool], dialect: Dialect) -> tuple[dict[str, Compiled], dict[str, str]]:
    """Return each tool's schema in a dialect, and why other tools are left out, both by local name."""
    compiled: dict[str, Compiled] = {}
    aside: dict[str, str] = {}
    for tool in tools:
        try:
            compiled[tool.name] = compile_schema(tool.input_schema, dialect)
        except SetAside as problem:
            aside[tool.name] = problem.reason
    return compiled, aside


def _compile(raw: dict[str, Json], subset: Subset, reach: int) -> Compiled:
    notes = Notes()
    shape = SchemaReader(raw, notes, reach).read(raw)
    root, wrapped = _root(shape, subset, notes)
    text = {name: value for name, value in shape.text.items() if name in ("title", "description")}
    written = Writer(subset, notes).root(root, text, raw)
    return Compiled(schema=written.schema, notes=notes.all(), plan=written.plan, wrapped=wrapped)


def _root(shape: Shape, subset: Subset, notes: Notes) -> tuple[Alt, bool]:
    """Return the object of the arguments, and whether it wraps the schema of the server."""
    if not shape.alts:
        raise SetAside("its schema allows no arguments at all")
    objects = [alt for alt in shape.alts if alt.kind == "object" and alt.values is None]
    if len(objects) > 1:
        notes.add((), "is a union of objects, written as one object")
    root = merge(objects) if len(objects) > 1 else objects[0] if objects else None
    if shape.open:
        root = Alt(kind="object", extra=OPEN)
    if root is not None and (root.fields or subset.maps or not root.stated or root.extra is None):
        return root, False
    notes.add((), f"declares no members; what it allows is given as {_WRAPPER!r}")
    inner = replace(shape, text={}) if root is None else Shape(alts=(root,))
    return Alt(kind="object", fields={_WRAPPER: inner}, required=(_WRAPPER,)), True
