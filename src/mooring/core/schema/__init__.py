"""JSON Schema -> what each model provider takes, and the model's arguments back to what the server asks for.

    compiled = schema.compile(tool.input_schema, "openai-strict")
    compiled.schema                 # for the provider
    compiled.back(arguments)        # for the server
    compiled.notes                  # what was changed or lost, in words

A schema is read into a `Shape` (read, algebra, shapes), which is written in the dialect (write, dialects)
together with a plan for the way back (back). What a dialect cannot say becomes looser, or JSON written as
text, or words in a description; the server still checks its arguments. What cannot be offered at all raises
`SetAside`: `compile_tools` leaves that tool out and keeps the others.

    dialect         rule                                                           known from
    all             root: type object, no anyOf/oneOf/allOf/enum/const/not         OpenAI, Anthropic (errors)
    all             objects have properties, arrays have items                     OpenAI's errors
    all             no $ref: references are inlined                                Anthropic's docs, Gemini
    all             no pattern: one that a provider cannot read fails the request  OpenAI's errors
    anthropic       names of members ^[a-zA-Z0-9_.-]{1,64}$                        Anthropic's errors
    openai-strict   objects closed, all members required, optional = nullable      Structured Outputs guide
    openai-strict   keywords: numeric bounds, multipleOf, min/maxItems, format     Structured Outputs guide
    openai-strict   10 levels; 5,000 properties; 1,000 fixed values;               Structured Outputs guide
                    120,000 characters of names and values; a list of more than
                    250 values at most 15,000 characters
    gemini          fields of google.genai.types.Schema; one type per node         SDK, Gemini's errors
    gemini          names of members [a-zA-Z_][a-zA-Z0-9_]{0,63}                   SDK (FunctionDeclaration)
    gemini          enum: strings only; required: declared members only            Gemini's errors
    gemini          format: date-time; int32, int64; float, double                 Gemini's errors
    gemini          anyOf stands alone; objects below the root have members        Vertex AI, Gemini (errors)
    plain           one type per node, or that type and null; nothing exotic       part of all but Gemini's

Free-form objects and open values are JSON text where a dialect has no schema for them (`openai-strict`,
`gemini`, and open values in `plain`): the model writes JSON into a string, and `back` parses it.
In `openai-strict` a null for an optional member means that it is not given and is dropped, unless the
server's schema allows null there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from mooring.core.schema.dialects import SUBSETS, Dialect, Notes, Subset
from mooring.core.schema.read import SchemaReader
from mooring.core.schema.shapes import OPEN, Alt, SetAside, Shape, check, merge
from mooring.core.schema.write import Plan, Writer, undo
from mooring.core.types import Json, Tool

__all__ = ["Compiled", "Dialect", "SetAside", "compile", "compile_tools"]

_REACHES = (16, 3, 1)
"""References inside one another, tried in turn until the schema is small enough."""

_WRAPPER = "arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A tool's schema as one provider takes it. Read-only: it may share parts with the server's."""

    schema: Mapping[str, Json]
    notes: tuple[str, ...] = ()
    plan: Plan | None = None
    wrapped: bool = False
    """Whether the model gives everything as one member, because the server's root has none."""

    def back(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments as the server's schema wants them. Never fails: wrong ones pass unchanged."""
        outcome = undo(self.plan, dict(arguments))
        if self.wrapped and isinstance(inner := outcome.get(_WRAPPER), dict):
            return cast("dict[str, Json]", inner)
        return outcome


def compile(schema: Mapping[str, Json], dialect: Dialect) -> Compiled:  # noqa: A001 (used as schema.compile)
    """Return a tool's input schema in a dialect.

    Raises:
        SetAside: the schema is too large, is no JSON, or allows nothing.
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
    """Return each tool's schema in a dialect, and why others were set aside, both by local name."""
    compiled: dict[str, Compiled] = {}
    aside: dict[str, str] = {}
    for tool in tools:
        try:
            compiled[tool.name] = compile(tool.input_schema, dialect)
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
