"""A model's arguments turned into what the server's own schema asks for.

A plan says what to undo at one place of the arguments; None means nothing, here and below. No plan ever
fails: what a model got wrong passes unchanged, and the server says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from mooring.core.schema.shapes import Alt, Kind, finite, fits, kind_of
from mooring.core.types import EMPTY, Json

__all__ = ["Branches", "FieldPlan", "Items", "Labels", "Members", "Plan", "Text", "undo"]


def _no_fields() -> Mapping[str, FieldPlan]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    name: str
    """What the server calls it."""
    plan: Plan | None = None
    drop_null: bool = False
    """Null stands for a member that is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """An object: members renamed, undone one by one, and those that stand for nothing left out."""

    fields: Mapping[str, FieldPlan] = field(default_factory=_no_fields)
    """By the name that the model uses; other members follow `extra`."""
    extra: Plan | None = None
    options: tuple[Alt, ...] = ()
    """The exact objects that were merged, where nulls must be dropped to match one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """An array."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """JSON written as text."""

    kinds: frozenset[Kind]
    """The types that the server takes here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Fixed values that the model knows by name."""

    values: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """A union: the first branch whose outcome fits is meant."""

    branches: tuple[tuple[tuple[Alt, ...], Plan | None], ...]


Plan = Members | Items | Text | Labels | Branches


def undo(plan: Plan | None, value: Json) -> Json:
    """Return a value of the model as the server wants it."""
    if plan is None or value is None:
        return value
    match plan:
        case Members():
            return _members(plan, cast("dict[str, Json]", value)) if isinstance(value, dict) else value
        case Items():
            if not isinstance(value, list):
                return value
            return [undo(plan.plan, item) for item in cast("list[Json]", value)]
        case Text():
            return _parsed(value, plan.kinds) if isinstance(value, str) else value
        case Labels():
            return plan.values.get(value, value) if isinstance(value, str) else value
        case Branches():
            return _branch(plan, value)


def _members(plan: Members, value: Mapping[str, Json]) -> dict[str, Json]:
    outcome: dict[str, Json] = {}
    nulls: set[str] = set()
    for sent, member in value.items():
        known = plan.fields.get(sent)
        if known is None:
            outcome.setdefault(sent, undo(plan.extra, member))
        elif member is not None or not known.drop_null:
            outcome[known.name] = undo(known.plan, member)
        if member is None:
            nulls.add(known.name if known else sent)
    # Of several readings, the one with the fewest nulls: a null is more likely to stand for nothing.
    readings = [_reading(option, outcome, nulls) for option in plan.options]
    fitting = [one for one, option in zip(readings, plan.options, strict=True) if fits(option, one)]
    return min(fitting, key=len, default=outcome)


def _reading(option: Alt, outcome: dict[str, Json], nulls: set[str]) -> dict[str, Json]:
    """The members as one of the merged objects would have them: without nulls that it does not know."""
    kept = {name for name, shape in option.fields.items() if shape.nullable} | {*option.required}
    return {name: member for name, member in outcome.items() if name not in nulls or name in kept}


def _branch(plan: Branches, value: Json) -> Json:
    likely: list[Json] = []
    for alts, branch in plan.branches:
        outcome = undo(branch, value)
        if any(fits(alt, outcome) for alt in alts):
            return outcome
        if any(alt.kind == kind_of(outcome) for alt in alts):
            likely.append(outcome)
    return likely[0] if likely else value


def _parsed(text: str, kinds: frozenset[Kind]) -> Json:
    try:
        value = json.loads(text)
        usable = finite(value)
    except (ValueError, RecursionError):
        return text
    if not usable:
        return text
    kind = kind_of(value)
    allowed = "any" in kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    # Where the server takes no text here, the parsed value is nearer to what it wants, even if wrong.
    return value if allowed or "string" not in kinds else text
