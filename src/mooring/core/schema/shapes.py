"""The normal form of a schema, and limits on its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from sys import float_info
from typing import Any, Literal, TypeGuard, cast

from mooring.core.types import EMPTY, Json
from mooring.errors import MooringError

DEPTH = 64
"""Nesting of subschemas, with references resolved."""
SUBSCHEMAS = 5_000
"""Subschemas that one schema may hold or expand to."""
LENGTH = 10_000_000
"""Characters of the schema as JSON, roughly counted."""
VALUES = 50_000
"""JSON values of any kind in the schema."""
NESTING = 3 * DEPTH
"""Nesting of JSON values: a subschema is at most two levels below the next."""
_LARGEST = float_info.max
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SetAside(MooringError):
    """A schema cannot be sent to the model provider: leave this tool out, and keep the others."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Budget:
    """The number of subschemas that may still be read, combined or written."""

    def __init__(self, left: int = SUBSCHEMAS) -> None:
        self.left = left

    def spend(self, depth: int) -> None:
        """Count one subschema.

        Raises:
            SetAside: None is left, or the nesting is too deep.
        """
        self.left -= 1
        if self.left < 0:
            raise SetAside(f"its schema expands to more than {SUBSCHEMAS:,} subschemas")
        if depth > DEPTH:
            raise SetAside(f"its schema is nested more than {DEPTH} levels deep")


def check(schema: Json) -> bool:
    """Check every value once, and return whether there may be references.

    Raises:
        SetAside: The schema is not JSON, or larger or deeper than allowed.
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
                        raise SetAside(f"its schema is not JSON: {type(name).__name__} as a name")
                    length += len(name)
                    refers = refers or name in _REFERENCES
                below.extend(members.values())
            elif isinstance(value, list):
                below.extend(cast("list[Json]", value))
            elif not isinstance(value, (bool, int, float, type(None))):
                raise SetAside(f"its schema is not JSON: it holds a {type(value).__name__}")
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


Kind = Literal["string", "integer", "number", "boolean", "array", "object", "null", "any"]

KINDS: tuple[Kind, ...] = ("string", "integer", "number", "boolean", "array", "object", "null")

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _nothing() -> Mapping[str, Json]:
    return EMPTY


def _no_fields() -> Mapping[str, Shape]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A union of alternatives; empty for a schema that no value satisfies."""

    alts: tuple[Alt, ...]
    text: Mapping[str, Json] = field(default_factory=_nothing)
    """`title`, `description`, `default`, `examples`."""
    raw: Mapping[str, Json] | None = None
    """The schema it was read from, to be shared when it comes out unchanged."""
    vague: bool = False
    """Whether the types are implied, not declared: an intersection ignores them."""
    mixed: bool = False
    """Whether it was merged from several places, so that a value does not identify the alternative."""

    @property
    def open(self) -> bool:
        """Whether every value is allowed."""
        return any(alt.kind == "any" for alt in self.alts)

    @property
    def nullable(self) -> bool:
        return any(alt.kind in ("null", "any") for alt in self.alts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alt:
    """Values of one JSON type; `any` means every value."""

    kind: Kind
    facets: Mapping[str, Json] = field(default_factory=_nothing)
    """Checked keywords of this type, such as `minLength`, and those that are only described: `pattern`."""
    values: tuple[Json, ...] | None = None
    """The only values allowed, all of this type."""
    items: Shape | None = None
    """Of an array; None for anything."""
    fields: Mapping[str, Shape] = field(default_factory=_no_fields)
    required: tuple[str, ...] = ()
    extra: Shape | None = None
    """The schema of other members of an object; None when none are allowed."""
    stated: bool = False
    """Whether the schema declares `additionalProperties`."""
    options: tuple[Alt, ...] = ()
    """The exact alternatives, where several objects were merged into this wider one."""
    text: Mapping[str, Json] = field(default_factory=_nothing)
    raw: Mapping[str, Json] | None = None


OPEN = Shape(alts=(Alt(kind="any"),))
NEVER = Shape(alts=())


def is_kind(name: Json) -> TypeGuard[Kind]:
    return name in KINDS


def as_object(value: Json) -> dict[str, Json] | None:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else None


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def kind_of(value: Json) -> Kind:
    """Return the narrowest JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def value_key(value: Json) -> str:
    """Return a key that is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


class _StepsLeft:
    """Steps left for one comparison; when they are used up, the value counts as fitting."""

    def __init__(self) -> None:
        self.left = 20_000


def fits(alt: Alt, value: Json) -> bool:
    """Whether a value fits this alternative. Patterns are not checked."""
    return _fits(alt, value, _StepsLeft())


def _fits(alt: Alt, value: Json, steps: _StepsLeft) -> bool:
    steps.left -= 1
    if alt.kind == "any" or steps.left < 0:
        return True
    kind = kind_of(value)
    if kind != alt.kind and not (kind == "integer" and alt.kind == "number"):
        return False
    if alt.values is not None and not any(kind_of(one) == kind and one == value for one in alt.values):
        return False
    if not _within(alt.facets, value):
        return False
    if isinstance(value, list):
        items = alt.items
        return items is None or all(_one_fits(items, item, steps) for item in cast("list[Json]", value))
    return not isinstance(value, dict) or _object_fits(alt, cast("dict[str, Json]", value), steps)


def _one_fits(shape: Shape, value: Json, steps: _StepsLeft) -> bool:
    return any(_fits(alt, value, steps) for alt in shape.alts)


def _object_fits(alt: Alt, value: dict[str, Json], steps: _StepsLeft) -> bool:
    if any(name not in value for name in alt.required):
        return False
    if alt.options and not any(_fits(option, value, steps) for option in alt.options):
        return False
    for name, member in value.items():
        shape = alt.fields.get(name, alt.extra)
        if shape is None or not _one_fits(shape, member, steps):
            return False
    return True


def _within(facets: Mapping[str, Json], value: Json) -> bool:
    if not facets or isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        low, high, above, below = (facets.get(name) for name in _BOUNDS)
        return not (
            (low is not None and value < low)
            or (high is not None and value > high)
            or (above is not None and value <= above)
            or (below is not None and value >= below)
        )
    if value is None:
        return True
    noun = "Length" if isinstance(value, str) else "Items" if isinstance(value, list) else "Properties"
    size = len(cast("Sized", value))
    return facets.get(f"min{noun}", 0) <= size <= facets.get(f"max{noun}", size)


_OPTIONS = 32
"""Most exact alternatives that a merged object keeps."""

_TIGHTER: Mapping[str, Any] = {"min": max, "exclusiveMin": max, "max": min, "exclusiveMax": min}


def join(shapes: Sequence[Shape], *, mixed: bool = False) -> Shape:
    """Return the union of shapes: equal alternatives once, fixed values of one type together.

    Without any shape, everything is allowed.
    """
    if any(shape.open for shape in shapes) or not shapes:
        return next((shape for shape in shapes if shape.open and shape.text), OPEN)
    if len({id(shape) for shape in shapes}) == 1:
        return shapes[0]
    alts: dict[object, Alt] = {}
    for alt in (alt for shape in shapes for alt in _explicit_alts(shape)):
        if alt.values is not None and not alt.text:
            key: object = ("values", alt.kind)
            if (known := alts.get(key)) and known.values is not None:
                alt = replace(known, values=_union(known.values, alt.values), raw=None)
        else:
            key = _identity(alt)
        alts[key] = alt
    return Shape(
        alts=tuple(alts.values()),
        vague=any(shape.vague for shape in shapes),
        mixed=mixed or any(shape.mixed for shape in shapes),
    )


def _explicit_alts(shape: Shape) -> Iterable[Alt]:
    """Return the alternatives of one branch, the first of them with the annotations of the branch."""
    text = {name: shape.text[name] for name in ("title", "description") if name in shape.text}
    for alt in shape.alts:
        yield replace(alt, text={**alt.text, **text}, raw=shape.raw) if alt is shape.alts[0] else alt


def _identity(alt: Alt) -> object:
    if alt.items is None and not alt.fields and alt.extra is None and alt.values is None:
        return (alt.kind, repr(alt.facets), repr(alt.text))
    # Two readings of the same place in the schema are the same alternative.
    return id(alt.raw) if alt.raw is not None else id(alt)


def _union(first: tuple[Json, ...], second: tuple[Json, ...]) -> tuple[Json, ...]:
    known = {value_key(value) for value in first}
    return first + tuple(value for value in second if value_key(value) not in known)


def meet(one: Shape, other: Shape, budget: Budget, depth: int) -> Shape:
    """Return the intersection of two shapes. One object and several become one merged object.

    Raises:
        SetAside: The budget is used up.
    """
    budget.spend(depth)
    text = {**other.text, **one.text}
    if one.open or other.open:
        return replace(other if one.open else one, text=text, raw=None)
    alts = [
        both
        for left in one.alts
        for right in other.alts
        if (both := _meet_alts(left, right, budget, depth)) is not None
    ]
    for side, vague in ((one, other), (other, one)):
        if vague.vague:
            alts += [alt for alt in side.alts if not any(_same_kind(alt, known) for known in vague.alts)]
    if any(len(side.alts) == 1 and side.alts[0].fields for side in (one, other)):
        objects = [alt for alt in alts if alt.kind == "object"]
        if len(objects) > 1:
            alts = [alt for alt in alts if alt.kind != "object"] + [merge(objects)]
    return Shape(alts=tuple(alts), text=text, vague=one.vague and other.vague)


def _same_kind(one: Alt, other: Alt) -> bool:
    return one.kind == other.kind or {one.kind, other.kind} == {"integer", "number"}


def _meet_alts(one: Alt, other: Alt, budget: Budget, depth: int) -> Alt | None:
    budget.spend(depth)
    if not _same_kind(one, other):
        return None
    kind: Kind = one.kind if one.kind == other.kind else "integer"
    values = _meet_values(one, other)
    if values == ():
        return None
    both = Alt(
        kind=kind,
        values=values,
        facets=_tightest(one.facets, other.facets),
        items=_meet_parts(one.items, other.items, budget, depth),
        text={**other.text, **one.text},
    )
    return _meet_objects(both, one, other, budget, depth) if kind == "object" else both


def _meet_values(one: Alt, other: Alt) -> tuple[Json, ...] | None:
    if one.values is None:
        one, other = other, one
    if one.values is None:
        return None
    values = one.values
    if other.values is not None:
        known = {value_key(value) for value in other.values}
        values = tuple(value for value in values if value_key(value) in known)
    rest = replace(other, values=None)
    if rest.kind in (one.kind, "number") and rest.kind != "object" and not (rest.facets or rest.items):
        return values
    return tuple(value for value in values if fits(rest, value))


def _meet_parts(one: Shape | None, other: Shape | None, budget: Budget, depth: int) -> Shape | None:
    if one is None or other is None:
        return one or other
    return meet(one, other, budget, depth + 1)


def _meet_objects(both: Alt, one: Alt, other: Alt, budget: Budget, depth: int) -> Alt | None:
    fields: dict[str, Shape] = {}
    for name in {**one.fields, **other.fields}:
        # A closed side does not remove what the other one declares: authors who write `additionalProperties:
        # false` into each part of an `allOf` mean the whole object.
        left = one.fields.get(name) or one.extra or OPEN
        right = other.fields.get(name) or other.extra or OPEN
        shape = left if left is right else meet(left, right, budget, depth + 1)
        if shape.alts:
            fields[name] = shape
        elif name in one.required or name in other.required:
            return None
    closed = one.extra is None or other.extra is None
    pairs = [(left, right) for left in one.options or (one,) for right in other.options or (other,)]
    options: list[Alt] = []
    if 1 < len(pairs) <= _OPTIONS:
        exact = [(replace(left, options=()), replace(right, options=())) for left, right in pairs]
        options = [
            alt for left, right in exact if (alt := _meet_alts(left, right, budget, depth)) is not None
        ]
    return replace(
        both,
        fields=fields,
        required=tuple(dict.fromkeys(one.required + other.required)),
        extra=None if closed else _meet_parts(one.extra, other.extra, budget, depth),
        stated=one.stated or other.stated,
        options=tuple(options),
    )


def _tightest(one: Mapping[str, Json], other: Mapping[str, Json]) -> Mapping[str, Json]:
    facets = {**other, **one}
    for name in one.keys() & other.keys():
        tighter = next((pick for prefix, pick in _TIGHTER.items() if name.startswith(prefix)), None)
        if tighter is not None:
            facets[name] = tighter(one[name], other[name])
    return facets


def merge(objects: Sequence[Alt]) -> Alt:
    """Return one object that allows what any of the objects allows, with these as its options."""
    options = [option for alt in objects for option in alt.options or (alt,)]
    names = dict.fromkeys(name for alt in objects for name in alt.fields)
    fields = {
        name: join([alt.fields[name] for alt in objects if name in alt.fields], mixed=True) for name in names
    }
    extras = [alt.extra for alt in objects if alt.extra is not None]
    return Alt(
        kind="object",
        facets=_common(objects),
        fields={name: _with_text(shape, name, objects) for name, shape in fields.items()},
        required=tuple(name for name in names if all(name in alt.required for alt in objects)),
        extra=join(extras, mixed=True) if extras else None,
        stated=any(alt.stated for alt in objects),
        options=tuple(options) if len(options) <= _OPTIONS else (),
    )


def merged_by_kind(alts: Sequence[Alt]) -> list[Alt]:
    """Return the alternatives with all arrays merged into one, and all objects into one."""
    arrays = [alt for alt in alts if alt.kind == "array" and alt.values is None]
    objects = [alt for alt in alts if alt.kind == "object" and alt.values is None]
    apart = {*arrays, *objects}
    others = [alt for alt in alts if alt not in apart]
    if len(arrays) > 1:
        arrays = [Alt(kind="array", items=join([alt.items or OPEN for alt in arrays], mixed=True))]
    if len(objects) > 1:
        objects = [merge(objects)]
    return others + arrays + objects


def _common(objects: Sequence[Alt]) -> Mapping[str, Json]:
    first = objects[0].facets
    return {
        name: value for name, value in first.items() if all(alt.facets.get(name) == value for alt in objects)
    }


def _with_text(shape: Shape, name: str, objects: Sequence[Alt]) -> Shape:
    """Return the shape of a member; if it has no annotations, with the first that an object has for it."""
    if shape.text or len(shape.alts) > 1:
        return shape
    text = next(
        (alt.fields[name].text for alt in objects if name in alt.fields and alt.fields[name].text), None
    )
    return replace(shape, text=text) if text else shape
