"""A `Shape` written in a dialect, with the plan that converts arguments back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from mooring.core.schema.dialects import Notes, Path, Subset, described, shared, with_hint
from mooring.core.schema.shapes import (
    OPEN,
    SUBSCHEMAS,
    Alt,
    Budget,
    Kind,
    SetAside,
    Shape,
    finite,
    fits,
    kind_of,
    merge,
    merged_by_kind,
)
from mooring.core.types import Json

__all__ = ["Branches", "FieldPlan", "Items", "Labels", "Members", "Plan", "Text", "Writer", "Written", "undo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    name: str
    """The name that the server uses."""
    plan: Plan | None = None
    drop_null: bool = False
    """Null means that the member is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """An object: members are renamed and converted, and placeholders left out."""

    fields: Mapping[str, FieldPlan]
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
    """Fixed values that the model refers to by label."""

    values: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """A union: the first branch whose result fits is used."""

    branches: tuple[tuple[tuple[Alt, ...], Plan | None], ...]


Plan = Members | Items | Text | Labels | Branches


def undo(plan: Plan | None, value: Json) -> Json:
    """Return a value of the model in the form of the server's schema."""
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
    # Of several candidates, the one with the fewest nulls: a null more likely means "not given".
    readings = [_reading(option, outcome, nulls) for option in plan.options]
    fitting = [one for one, option in zip(readings, plan.options, strict=True) if fits(option, one)]
    return min(fitting, key=len, default=outcome)


def _reading(option: Alt, outcome: dict[str, Json], nulls: set[str]) -> dict[str, Json]:
    """Return the members of one of the merged objects, without nulls that it does not allow."""
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
    # If the server accepts no text here, the parsed value is closer to its schema, even if wrong.
    return value if allowed or "string" not in kinds else text


_VALUES = 1_000
"""Fixed values of a strict schema in total."""
_LONG_LIST, _LONG_LIST_TEXT = 250, 15_000
"""A strict list of more values than this must not have more characters than that."""
_STRICT_TEXT = 120_000
"""Characters of names and fixed values in a strict schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A schema as the provider accepts it."""

    schema: dict[str, Json]
    plan: Plan | None = None
    null: bool = False
    """Whether the server allows null here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """One branch of a union, or the only one; `hints` are still to be put into its description."""

    schema: dict[str, Json]
    alts: tuple[Alt, ...]
    plan: Plan | None = None
    hints: tuple[str, ...] = ()


class Writer:
    """Writes one schema."""

    def __init__(self, subset: Subset, notes: Notes) -> None:
        self._subset = subset
        self._notes = notes
        self._budget = Budget(2 * SUBSCHEMAS)
        self._values = 0
        self._characters = 0

    def root(self, alt: Alt, text: Mapping[str, Json], raw: Mapping[str, Json]) -> Written:
        """Write the object that holds the arguments."""
        branch = self._object(alt, (), 0)
        return Written(
            schema=shared(self._described(branch.schema, text, branch.hints), raw), plan=branch.plan
        )

    def shape(
        self, shape: Shape, at: Path, level: int, *, absent: bool = False, hints: tuple[str, ...] = ()
    ) -> Written:
        """Write a shape. `absent`: null must be allowed as well, for "not given".

        Raises:
            SetAside: the schema is larger than the dialect takes.
        """
        self._budget.spend(level)
        if shape.open and self._subset.anything:
            schema = self._described({}, shape.text, hints)
            return Written(schema=shared(schema, shape.raw), null=True)
        alts = [alt for alt in shape.alts if alt.kind != "null"]
        null = len(alts) < len(shape.alts)
        if not alts and self._subset.unions and self._subset.null != "nullable":
            schema = self._described({"type": "null"}, shape.text, hints)
            return Written(schema=shared(schema, shape.raw), null=True)
        if shape.mixed and not self._subset.anything:
            alts = merged_by_kind(alts)
        branches = self._branches(alts, null, at, level)
        # JSON text can contain null itself, so a null beside it means "not given".
        null = null and not any(isinstance(branch.plan, Text) for branch in branches)
        schema = self._assembled(branches, shape, null or absent, hints)
        plan = branches[0].plan
        if len(branches) > 1:
            pairs = tuple((branch.alts, branch.plan) for branch in branches)
            plan = Branches(branches=pairs) if any(plan for _, plan in pairs) else None
        return Written(schema=shared(schema, shape.raw), plan=plan, null=null)

    def _branches(self, alts: list[Alt], null: bool, at: Path, level: int) -> list[_Branch]:
        labelled = [alt for alt in alts if self._labelled(alt)]
        as_text = [alt for alt in alts if not self._native(alt, level)]
        if any(alt.kind == "string" and alt.values is None for alt in alts):
            as_text += labelled  # a label could be any other string
        if as_text:
            as_text += [alt for alt in alts if alt.kind == "string"]
        textual = set(as_text)
        rest = [alt for alt in alts if alt not in textual]
        together = bool(labelled) or not self._subset.unions
        fixed = [alt for alt in rest if together and alt.values is not None]
        native = [alt for alt in rest if not together or alt.values is None]
        if not self._subset.unions and len(native) + bool(as_text) + bool(fixed) > 1:
            self._notes.add(at, "is a union, written less strictly")
            one = _as_one(alts)
            native, fixed, as_text = ([], [], alts) if one is None else ([one], [], [])
        branches = [self._alt(alt, at, level) for alt in native]
        if fixed:
            branches.append(self._fixed(fixed, at))
        if as_text or not branches:
            branches.append(self._text(as_text, null, at))
        return branches

    def _labelled(self, alt: Alt) -> bool:
        """Whether fixed values need labels."""
        if alt.values is None:
            return False
        return alt.kind in ("object", "array") or (self._subset.labels and alt.kind != "string")

    def _native(self, alt: Alt, level: int) -> bool:
        """Whether the dialect has a schema for this; otherwise it is written as JSON text."""
        if alt.kind == "any" or (alt.kind in ("object", "array") and level >= self._subset.levels):
            return False
        if alt.kind != "object" or alt.fields or alt.values is not None:
            return True
        return self._subset.maps if alt.extra is not None else self._subset.empty

    def _text(self, alts: Sequence[Alt], null: bool, at: Path) -> _Branch:
        """JSON as text, for schemas that the dialect cannot express."""
        kinds: list[Kind] = [*dict.fromkeys(alt.kind for alt in alts)]
        if null or not alts:
            kinds.append("null")
        words = "any value" if "any" in kinds else " or ".join(kinds)
        names = ", ".join(name[:40] for alt in alts for name in [*alt.fields][:20])
        self._notes.add(at, "is written by the model as JSON text")
        hint = f"JSON text: {words}{f' with {names}' if names else ''}"
        return _Branch(
            schema={"type": "string"},
            alts=(*alts, *((Alt(kind="null"),) if "null" in kinds else ())),
            plan=Text(kinds=frozenset(kinds)),
            hints=(hint,),
        )

    def _alt(self, alt: Alt, at: Path, level: int) -> _Branch:
        self._budget.spend(level)
        if alt.values is not None:
            return self._fixed([alt], at)
        if alt.kind == "object":
            return self._object(alt, at, level)
        schema: dict[str, Json] = {"type": alt.kind}
        plan = None
        if alt.kind == "array":
            items = self.shape(alt.items or OPEN, (*at, "*"), level + 1)
            schema["items"] = items.schema
            plan = Items(plan=items.plan) if items.plan else None
        hints = self._facets(schema, alt)
        return _Branch(schema=schema, alts=(alt,), plan=plan, hints=hints)

    def _facets(self, schema: dict[str, Json], alt: Alt) -> tuple[str, ...]:
        """Add the keywords that the dialect supports to the schema; return the others as text."""
        hints: list[str] = []
        formats = self._subset.formats
        for name, value in alt.facets.items():
            known = name in self._subset.facets
            if name == "format" and known and formats is not None:
                known = value in formats.get(alt.kind, ())
            if known:
                schema[name] = value
            else:
                hints.append(f"{name}: {value}")
        return tuple(hints)

    def _fixed(self, alts: Sequence[Alt], at: Path) -> _Branch:
        """Write a list of fixed values: as they are, or as labels if the dialect cannot list them."""
        values = [value for alt in alts for value in alt.values or ()]
        kinds = {alt.kind for alt in alts}
        by_name = len(kinds) > 1 or any(self._labelled(alt) for alt in alts)
        labels = _labels(values)
        if self._subset.strict and not self._affordable(labels):
            self._notes.add(at, "has more fixed values than the provider takes; they are not listed")
            if by_name:
                return self._text(alts, False, at)
            return _Branch(
                schema={"type": alts[0].kind}, alts=(*alts,), hints=(f"one of {', '.join(labels)}",)
            )
        if by_name:
            return _Branch(
                schema={"type": "string", "enum": [*labels]}, alts=(*alts,), plan=Labels(values=labels)
            )
        schema: dict[str, Json] = {"type": alts[0].kind, "enum": values}
        return _Branch(schema=schema, alts=(*alts,), hints=self._facets(schema, alts[0]))

    def _affordable(self, labels: Mapping[str, Json]) -> bool:
        """Count a list of fixed values towards the limits of a strict schema; return whether it fits."""
        length = sum(map(len, labels))
        long = len(labels) > _LONG_LIST and length > _LONG_LIST_TEXT
        if long or self._values + len(labels) > _VALUES or self._characters + length > _STRICT_TEXT // 2:
            return False
        self._values += len(labels)
        self._characters += length
        return True

    def _object(self, alt: Alt, at: Path, level: int) -> _Branch:
        subset = self._subset
        properties: dict[str, Json] = {}
        fields: dict[str, FieldPlan] = {}
        names = subset.rename(alt.fields)
        for name, shape in alt.fields.items():
            sent = names[name]
            absent = subset.strict and name not in alt.required
            hints = (f"the server calls it {name[:80]!r}",) if sent != name else ()
            member = self.shape(shape, (*at, name), level + 1, absent=absent, hints=hints)
            properties[sent] = member.schema
            drop_null = absent and not member.null
            if sent != name or member.plan or drop_null:
                fields[sent] = FieldPlan(name=name, plan=member.plan, drop_null=drop_null)
        schema: dict[str, Json] = {"type": "object", "properties": properties}
        required = [sent for name, sent in names.items() if subset.strict or name in alt.required]
        if required or subset.strict:
            schema["required"] = required
        extra = self._extra(schema, alt, at, level)
        self._measure(names)
        options = alt.options if subset.strict else ()
        plan = Members(fields=fields, extra=extra, options=options) if fields or extra or options else None
        return _Branch(schema=schema, alts=(alt,), plan=plan, hints=self._facets(schema, alt))

    def _extra(self, schema: dict[str, Json], alt: Alt, at: Path, level: int) -> Plan | None:
        subset = self._subset
        if subset.strict:
            schema["additionalProperties"] = False
        if not subset.maps or not (subset.anything or not alt.fields):
            if alt.extra is not None and alt.stated:
                self._notes.add(at, "may have members that are not declared; the model cannot give them")
            return None
        if alt.extra is None:
            if alt.stated and subset.anything:
                schema["additionalProperties"] = False
            return None
        if alt.extra.open or not subset.anything:
            if alt.stated or not subset.anything:
                schema["additionalProperties"] = True
            return None
        extra = self.shape(alt.extra, (*at, "*"), level + 1)
        schema["additionalProperties"] = extra.schema
        return extra.plan

    def _measure(self, names: Mapping[str, str]) -> None:
        self._characters += sum(map(len, names.values()))
        if self._subset.strict and self._characters > _STRICT_TEXT:
            raise SetAside(f"its names and values have more than {_STRICT_TEXT:,} characters")

    def _assembled(
        self, branches: Sequence[_Branch], shape: Shape, null: bool, hints: tuple[str, ...]
    ) -> dict[str, Json]:
        """One schema from its branches, with null where it is allowed, and its annotations."""
        if len(branches) == 1 and not (null and self._null_apart(branches[0].schema)):
            (branch,) = branches
            text = {**branch.alts[0].text, **shape.text} if branch.alts else shape.text
            schema = {**branch.schema, **self._null_within(branch.schema)} if null else branch.schema
            return self._described(schema, text, (*branch.hints, *hints))
        parts: list[dict[str, Json]] = []
        for branch in branches:
            (own, *_) = branch.alts
            parts.append(shared(self._described(branch.schema, own.text, branch.hints), own.raw))
        if self._subset.lone_union:
            text = {
                **shape.text,
                "description": with_hint(shape.text.get("description"), parts[0].get("description")),
            }
            first = {**parts[0], "nullable": True} if null else parts[0]
            return {"anyOf": [self._described(first, text, hints), *parts[1:]]}
        if null:
            parts.append({"type": "null"})
        return self._described({"anyOf": parts}, shape.text, hints)

    def _described(
        self, schema: dict[str, Json], text: Mapping[str, Json], hints: tuple[str, ...]
    ) -> dict[str, Json]:
        return described(schema, text, hints, self._subset.annotations)

    def _null_apart(self, schema: dict[str, Json]) -> bool:
        """Whether null needs a branch of its own."""
        if self._subset.null == "type":
            return self._subset.unions and schema["type"] in ("object", "array")
        return self._subset.null == "anyOf"

    def _null_within(self, schema: dict[str, Json]) -> dict[str, Json]:
        if self._subset.null == "nullable":
            return {"nullable": True}
        both: dict[str, Json] = {"type": [schema["type"], "null"]}
        return {**both, "enum": [*schema["enum"], None]} if "enum" in schema else both


def _labels(values: Sequence[Json]) -> dict[str, Json]:
    """A distinct text for each value: its JSON, or a string as it is unless that is the JSON of another."""
    taken = {json.dumps(value, ensure_ascii=False) for value in values if not isinstance(value, str)}
    labels: dict[str, Json] = {}
    for value in values:
        label = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        while label in labels or (isinstance(value, str) and label in taken):
            label = json.dumps(label, ensure_ascii=False)
        labels[label] = value
    return labels


def _as_one(alts: Sequence[Alt]) -> Alt | None:
    """Return one alternative that covers several, if there is one."""
    kinds = {alt.kind for alt in alts}
    if kinds == {"integer", "number"}:
        return Alt(kind="number")
    if kinds == {"object"} and all(alt.values is None for alt in alts):
        return merge(alts)
    return Alt(kind=alts[0].kind) if len(kinds) == 1 and kinds <= {"string", "integer", "number"} else None
