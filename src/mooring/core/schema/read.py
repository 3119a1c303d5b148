"""A server's JSON Schema read into a `Shape`: references followed, unions and intersections resolved.

What a shape cannot say is loosened, never tightened, and noted: the server checks its arguments itself.
The one exception is a schema without `type` whose keywords belong to one type: it is taken to mean that type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mooring.core.schema.algebra import join, meet
from mooring.core.schema.facets import GROUPS, facets_of
from mooring.core.schema.limits import Budget, finite
from mooring.core.schema.notes import Notes, Path
from mooring.core.schema.refs import References
from mooring.core.schema.shapes import (
    NEVER,
    OPEN,
    Alt,
    Kind,
    Shape,
    as_list,
    as_object,
    is_kind,
    kind_of,
    value_key,
)
from mooring.core.types import Json

__all__ = ["Reader"]

_UNROLL = 2
"""How often a reference may be open inside itself."""

_LOST = ("if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains", "not")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a subschema stands: its path, its depth, and the references that led there."""

    at: Path = ()
    depth: int = 0
    opened: tuple[str, ...] = ()

    def under(self, *names: str) -> _Place:
        return _Place((*self.at, *names), self.depth + 1, self.opened)

    def behind(self, ref: str) -> _Place:
        return _Place(self.at, self.depth + 1, (*self.opened, ref))


class Reader:
    """Reads one schema. `reach` is how many references may be followed inside one another."""

    def __init__(self, root: Mapping[str, Json], notes: Notes, reach: int) -> None:
        self._references = References(root)
        self._notes = notes
        self._reach = reach
        self._budget = Budget()

    def read(self, raw: Json, place: _Place = _Place()) -> Shape:  # noqa: B008 (frozen)
        """Return what a schema allows.

        Raises:
            SetAside: the schema is too deep, or expands to too much.
        """
        self._budget.spend(place.depth)
        if isinstance(raw, bool):
            return OPEN if raw else NEVER
        schema = as_object(raw)
        if schema is None:
            self._notes.add(place.at, "is no schema; anything is allowed")
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
                    place.at, f"has a `{keyword}` that the model is not told; the server checks it"
                )
        return replace(shape, text={**shape.text, **self._text(schema, place)}, raw=schema)

    def _parts(self, schema: dict[str, Json], place: _Place) -> Iterator[Shape]:
        """Whatever must hold besides the schema's own keywords."""
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
        """What the schema's own keywords say, besides fixed values and combinations."""
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
            self._notes.add(place.at, "is a tuple whose places are not told apart")
        return replace(alt, items=join([shape for shape in shapes if shape.alts], mixed=True))

    def _object(self, alt: Alt, schema: dict[str, Json], place: _Place) -> Alt:
        extra, stated = self._extra(schema, place)
        required = list(
            dict.fromkeys(name for name in as_list(schema.get("required")) if isinstance(name, str))
        )
        fields: dict[str, Shape] = {}
        for name, raw in (as_object(schema.get("properties")) or {}).items():
            if not isinstance(raw, (dict, bool)):
                self._notes.add((*place.at, name), "is no schema; left out")
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
        """What members without a declaration must be, and whether the schema says so."""
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        patterns = as_object(schema.get("patternProperties")) or {}
        if patterns:
            self._notes.add(place.at, "has `patternProperties`, whose patterns the model is not told")
        shapes = [self.read(raw, place.under("*")) for raw in (*patterns.values(), schema.get(keyword, True))]
        allowed = [shape for shape in shapes if shape.alts]
        return (join(allowed) if allowed else None), keyword in schema or bool(patterns)

    def _conditional(self, shape: Shape, schema: dict[str, Json], place: _Place) -> Shape:
        """The shape with members that are declared under a condition, as members that may be given."""
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
        """What a schema says about itself, as far as it is usable."""
        text = {name: schema[name] for name in ("title", "description") if isinstance(schema.get(name), str)}
        if "description" in schema and "description" not in text:
            self._notes.add(place.at, "has a description that is no text")
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
    """The shape of some fixed values: one alternative per JSON type."""
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
