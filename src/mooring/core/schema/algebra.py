"""Shapes combined: `meet` (both at once), `join` (either), `merge` (several objects as one wider one)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mooring.core.schema.shapes import OPEN, Alt, Budget, Kind, Shape, fits, value_key
from mooring.core.types import Json

__all__ = ["blend", "join", "meet", "merge"]

_OPTIONS = 32
"""Exact alternatives remembered of a merged object."""

_TIGHTER: Mapping[str, Any] = {"min": max, "exclusiveMin": max, "max": min, "exclusiveMax": min}


def join(shapes: Sequence[Shape], *, mixed: bool = False) -> Shape:
    """Whatever one of the shapes allows: equal alternatives once, fixed values of one type together.

    Without any shape, everything is allowed.
    """
    if any(shape.open for shape in shapes) or not shapes:
        return next((shape for shape in shapes if shape.open and shape.text), OPEN)
    if len({id(shape) for shape in shapes}) == 1:
        return shapes[0]
    alts: dict[object, Alt] = {}
    for alt in (alt for shape in shapes for alt in _told_alts(shape)):
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


def _told_alts(shape: Shape) -> Iterable[Alt]:
    """The alternatives of one branch, the first of them carrying what the branch says about itself."""
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
    """What both shapes allow. Where one object meets several, the outcome is one merged object.

    Raises:
        SetAside: the budget is spent.
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
    if "any" in (one.kind, other.kind):
        return other if one.kind == "any" else one
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
        # A closed side does not take away what the other one declares: those who write
        # `additionalProperties: false` into each part of an `allOf` mean the whole.
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
    """One object that allows whatever one of the objects does, remembering them as its options."""
    options = [option for alt in objects for option in alt.options or (alt,)]
    names = dict.fromkeys(name for alt in objects for name in alt.fields)
    fields = {
        name: join([alt.fields[name] for alt in objects if name in alt.fields], mixed=True) for name in names
    }
    extras = [alt.extra for alt in objects if alt.extra is not None]
    return Alt(
        kind="object",
        facets=_common(objects),
        fields={name: _retold(shape, name, objects) for name, shape in fields.items()},
        required=tuple(name for name in names if all(name in alt.required for alt in objects)),
        extra=join(extras, mixed=True) if extras else None,
        stated=any(alt.stated for alt in objects),
        options=tuple(options) if len(options) <= _OPTIONS else (),
    )


def blend(alts: Sequence[Alt]) -> list[Alt]:
    """The alternatives with all arrays as one and all objects as one."""
    arrays = [alt for alt in alts if alt.kind == "array" and alt.values is None]
    objects = [alt for alt in alts if alt.kind == "object" and alt.values is None]
    apart = {*arrays, *objects}
    blended = [alt for alt in alts if alt not in apart]
    if len(arrays) > 1:
        arrays = [Alt(kind="array", items=join([alt.items or OPEN for alt in arrays], mixed=True))]
    if len(objects) > 1:
        objects = [merge(objects)]
    return blended + arrays + objects


def _common(objects: Sequence[Alt]) -> Mapping[str, Json]:
    first = objects[0].facets
    return {
        name: value for name, value in first.items() if all(alt.facets.get(name) == value for alt in objects)
    }


def _retold(shape: Shape, name: str, objects: Sequence[Alt]) -> Shape:
    """The joined shape with the first text that one of the objects gives for that member."""
    if shape.text or len(shape.alts) > 1:
        return shape
    text = next(
        (alt.fields[name].text for alt in objects if name in alt.fields and alt.fields[name].text), None
    )
    return replace(shape, text=text) if text else shape
