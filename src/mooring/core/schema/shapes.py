"""What a schema means, in one form, and bounds on its size."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from sys import float_info
from typing import Literal, TypeGuard, cast

from mooring.core.types import EMPTY, Json
from mooring.errors import MooringError

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


Kind = Literal["string", "integer", "number", "boolean", "array", "object", "null", "any"]

KINDS: tuple[Kind, ...] = ("string", "integer", "number", "boolean", "array", "object", "null")

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _nothing() -> Mapping[str, Json]:
    return EMPTY


def _no_fields() -> Mapping[str, Shape]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """Any one of some alternatives; none at all for a schema that nothing satisfies."""

    alts: tuple[Alt, ...]
    text: Mapping[str, Json] = field(default_factory=_nothing)
    """`title`, `description`, `default`, `examples`."""
    raw: Mapping[str, Json] | None = None
    """The schema it was read from, to be shared when it comes out unchanged."""
    vague: bool = False
    """Whether the types are only meant, not said: met with others, it takes nothing away from them."""
    mixed: bool = False
    """Whether it stands for several places: a value alone does not tell which alternative is meant."""

    @property
    def open(self) -> bool:
        """Whether every value will do."""
        return any(alt.kind == "any" for alt in self.alts)

    @property
    def nullable(self) -> bool:
        return any(alt.kind in ("null", "any") for alt in self.alts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alt:
    """Values of one JSON type; `any` stands for every value."""

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
    """What other members of an object must be; None when there may be none."""
    stated: bool = False
    """Whether the schema itself says what other members there may be."""
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
    """The narrowest JSON type of a value."""
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
    """Equal for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


class _Fuel:
    """Steps left for one comparison: what takes longer is taken to fit."""

    def __init__(self) -> None:
        self.left = 20_000


def fits(alt: Alt, value: Json) -> bool:
    """Whether a value fits this alternative. Patterns are not checked."""
    return _fits(alt, value, _Fuel())


def _fits(alt: Alt, value: Json, fuel: _Fuel) -> bool:
    fuel.left -= 1
    if alt.kind == "any" or fuel.left < 0:
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
        return items is None or all(_one_fits(items, item, fuel) for item in cast("list[Json]", value))
    return not isinstance(value, dict) or _object_fits(alt, cast("dict[str, Json]", value), fuel)


def _one_fits(shape: Shape, value: Json, fuel: _Fuel) -> bool:
    return any(_fits(alt, value, fuel) for alt in shape.alts)


def _object_fits(alt: Alt, value: dict[str, Json], fuel: _Fuel) -> bool:
    if any(name not in value for name in alt.required):
        return False
    if alt.options and not any(_fits(option, value, fuel) for option in alt.options):
        return False
    for name, member in value.items():
        shape = alt.fields.get(name, alt.extra)
        if shape is None or not _one_fits(shape, member, fuel):
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
