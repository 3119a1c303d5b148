"""Schemas as servers write them, values that they allow, and a model that follows a compiled schema."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.lab.dialects import TYPES, as_json_schema

EXAMPLES = int(os.environ.get("MOORING_EXAMPLES", "150"))
"""Schemas that are generated for a property test; 2,000 once in a while."""

NAMES = (
    "a",
    "b",
    "type",
    "properties",
    "required",
    "enum",
    "$ref",
    "",
    "a b",
    "a_b",
    "1st",
    "名",
    "x.y",
    "y" * 70,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]
Maker = Callable[[Draw], Any]
"""Draws one value that a schema allows."""


@dataclass
class _Grower:
    """Grows one schema together with the way to make values for it."""

    draw: Draw
    defs: dict[str, Any] = field(default_factory=dict)
    makers: dict[str, Maker] = field(default_factory=dict)

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def node(self, depth: int) -> tuple[Any, Maker]:
        kinds = [self.string, self.number, self.fixed, self.scalar, self.anything]
        if depth > 0:
            kinds += [self.array, self.pair, self.object, self.object, self.union, self.nullable]
            kinds += [self.both, self.reference, self.tree, self.map]
        schema, make = self.pick(*kinds)(depth - 1)
        if isinstance(schema, dict) and self.draw(st.booleans()):
            schema = {**schema, "description": self.pick("what it is", "")}
        return schema, make

    def string(self, depth: int) -> tuple[Any, Maker]:
        schema = {"type": "string", **self.pick({}, {"minLength": 1}, {"pattern": "."}, {"format": "uri"})}
        return schema, lambda draw: draw(st.sampled_from(["x", "x1", "null", "5", '"x"', "{}", "xml"]))

    def number(self, depth: int) -> tuple[Any, Maker]:
        schema = {
            "type": self.pick("integer", "number"),
            **self.pick({}, {"minimum": 0}, {"exclusiveMaximum": 9}, {"multipleOf": 1}, {"default": 3}),
        }
        return schema, lambda draw: draw(st.integers(0, 8))

    def scalar(self, depth: int) -> tuple[Any, Maker]:
        kind = self.pick("boolean", "null")
        return {"type": kind}, lambda draw: draw(st.booleans()) if kind == "boolean" else None

    def fixed(self, depth: int) -> tuple[Any, Maker]:
        values = self.pick(
            ["r", "g"], [1, 2, 3], ["1", 1], [1.5, 2], [True], ["x", None], [{"k": 1}, [2]], [None]
        )
        schema = self.pick({"enum": values}, {"const": values[0]})
        return schema, lambda draw: draw(st.sampled_from(schema.get("enum", values[:1])))

    def anything(self, depth: int) -> tuple[Any, Maker]:
        values = [None, True, 5, "5", "text", [1, {"a": None}], {"a": {"b": [None]}}]
        return self.pick(True, {}, {"title": "T"}), lambda draw: draw(st.sampled_from(values))

    def map(self, depth: int) -> tuple[Any, Maker]:
        inner, make = self.node(depth)
        schema = {"type": "object", "additionalProperties": inner}
        return schema, lambda draw: {name: make(draw) for name in draw(st.sets(st.sampled_from("pq")))}

    def array(self, depth: int) -> tuple[Any, Maker]:
        items, make = self.node(depth)
        schema = {"type": "array", "items": items, **self.pick({}, {"maxItems": 3}, {"title": "T"})}
        return schema, lambda draw: [make(draw) for _ in range(draw(st.integers(0, 2)))]

    def pair(self, depth: int) -> tuple[Any, Maker]:
        first, make_first = self.node(depth)
        second, make_second = self.node(depth)
        rest = self.pick({}, {"items": False})
        schema = {"type": "array", "prefixItems": [first, second], **rest}
        return schema, lambda draw: [make_first(draw), make_second(draw)]

    def object(self, depth: int) -> tuple[Any, Maker]:
        names = self.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
        grown = {name: self.node(depth) for name in names}
        required = [name for name in names if self.draw(st.booleans())]
        schema: dict[str, Any] = {"type": "object", "properties": {name: grown[name][0] for name in names}}
        if required:
            schema["required"] = [*required, *self.pick([], required)]
        extra = self.pick("absent", True, False)
        if extra != "absent":
            schema["additionalProperties"] = extra
        if extra is not False and self.pick(False, False, True):
            schema["required"] = [*required, "undeclared"]

        def make(draw: Draw) -> Any:
            value = {
                name: maker(draw)
                for name, (_, maker) in grown.items()
                if name in required or draw(st.booleans())
            }
            if "undeclared" in schema.get("required", ()):
                value["undeclared"] = draw(st.sampled_from(["u", 1, None]))
            if extra is not False and draw(st.booleans()):
                value["more"] = 1
            return value

        return schema, make

    def union(self, depth: int) -> tuple[Any, Maker]:
        grown = [self.node(depth) for _ in range(self.pick(1, 2, 3))]
        schema = {self.pick("anyOf", "anyOf", "oneOf"): [schema for schema, _ in grown]}
        return schema, lambda draw: draw(st.sampled_from([make for _, make in grown]))(draw)

    def objects(self, depth: int) -> tuple[Any, Maker]:
        grown = [self.pick(self.object, self.both, self.array)(depth - 1) for _ in range(self.pick(1, 2, 3))]
        schema = {"anyOf": [schema for schema, _ in grown]}
        return schema, lambda draw: draw(st.sampled_from([make for _, make in grown]))(draw)

    def nullable(self, depth: int) -> tuple[Any, Maker]:
        schema, make = self.node(depth)
        if isinstance(schema, dict) and isinstance(schema.get("type"), str) and self.draw(st.booleans()):
            schema = self.pick({**schema, "type": [schema["type"], "null"]}, {**schema, "nullable": True})
        else:
            schema = {"anyOf": [schema, {"type": "null"}], "default": None}
        return schema, lambda draw: None if draw(st.booleans()) else make(draw)

    def both(self, depth: int) -> tuple[Any, Maker]:
        first, make_first = self.node(depth)
        second, make_second = self.node(depth)
        parts = [{"properties": {"one": first}, "required": ["one"]}, {"properties": {"two": second}}]
        schema = self.pick(
            {"allOf": parts}, {"allOf": parts[:1], **parts[1]}, {"type": "object", "anyOf": parts}
        )

        def make(draw: Draw) -> Any:
            value = {"one": make_first(draw)}
            return {**value, "two": make_second(draw)} if draw(st.booleans()) else value

        return schema, make

    def reference(self, depth: int) -> tuple[Any, Maker]:
        if not self.defs or self.draw(st.booleans()):
            name = f"d{len(self.defs)}"
            self.defs[name] = True
            self.defs[name], self.makers[name] = self.node(depth)
        else:
            name = self.draw(st.sampled_from(sorted(self.makers))) if self.makers else None
        if name is None:
            return self.string(depth)
        return {"$ref": f"#/$defs/{name}"}, self.makers[name]

    def tree(self, depth: int) -> tuple[Any, Maker]:
        name = f"t{len(self.defs)}"
        self.defs[name] = True
        leaf, make_leaf = self.node(0)
        self.defs[name] = {
            "type": "object",
            "properties": {"leaf": leaf, "kids": {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}},
            "required": ["leaf"],
        }

        def make(draw: Draw, left: int = 5) -> Any:
            tree = {"leaf": make_leaf(draw)}
            if left and draw(st.booleans()):
                tree["kids"] = [make(draw, left - 1)]
            return tree

        return {"$ref": f"#/$defs/{name}"}, make


@st.composite
def schemas_with_values(draw: Draw) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A schema of arguments, and some arguments that it allows."""
    grower = _Grower(draw)
    root = grower.pick(grower.object, grower.object, grower.object, grower.both, grower.objects, grower.map)
    schema, make = root(3)
    if grower.defs:
        schema = {**schema, "$defs": grower.defs}
    allowed = Draft202012Validator(as_meant(schema))
    values = [make(draw) for _ in range(3)]
    return schema, [value for value in values if isinstance(value, dict) and allowed.is_valid(value)]


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 10**400, 1.5, float("nan"), float("inf")]),
    st.sampled_from(["", "string", "object", "#", "#/$defs/a", "#/properties/a/items", "null", "(a+)+$"]),
    st.lists(st.sampled_from(["string", "object", "null", "a", "", 1, None]), max_size=3),
)
# fmt: off
KEYWORDS = (
    "type", "properties", "required", "additionalProperties", "patternProperties", "items",
    "prefixItems", "additionalItems", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
    "dependentRequired", "dependentSchemas", "dependencies", "enum", "const", "nullable", "format",
    "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "$ref",
    "$dynamicRef", "$defs", "definitions", "$id", "$schema", "$comment", "x-more", "title",
    "description", "default", "examples", "contains", "propertyNames", "unevaluatedProperties",
)
# fmt: on
wild_nodes = st.recursive(
    junk,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=6),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    ),
    max_leaves=25,
)
wild_schemas = st.dictionaries(st.sampled_from(KEYWORDS), wild_nodes, max_size=7)
"""Whatever JSON a careless or hostile server may send as a schema."""

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=10,
)


def as_meant(schema: Any) -> Any:
    """The schema that a model gets: `nullable` spelled out, and `oneOf` without its exclusiveness."""
    return as_json_schema(json.loads(json.dumps(schema).replace('"oneOf"', '"anyOf"')))


class CannotSay(Exception):
    """A value has no form in the compiled schema."""


class Model:
    """Says values in a compiled schema, knowing no more than what it says."""

    def __init__(self, dialect: str) -> None:
        self.strict = dialect == "openai-strict"
        self.adds_members = dialect in ("openai", "anthropic")
        self.left_out = False
        """Whether a member was lost that the schema has no place for."""
        self._costs = 0

    def say(self, schema: dict[str, Any], value: Any) -> Any:
        if "anyOf" in schema:
            return self._branch(schema["anyOf"], value)
        kinds = schema.get("type")
        if kinds is None:
            return value
        if (
            text := re.search(r"JSON text: ([a-z ]+)", schema.get("description", ""))
        ) and "enum" not in schema:
            return self._text(text[1].split(), value)
        if value is None:
            if "null" in kinds or schema.get("nullable"):
                return None
            raise CannotSay(value)
        if "enum" in schema:
            return self._one_of(schema["enum"], value)
        if isinstance(value, dict) and "object" in kinds:
            return self._object(schema, value)
        if isinstance(value, list) and "array" in kinds:
            return [self.say(schema["items"], item) for item in value]
        if not Draft202012Validator({"type": kinds}).is_valid(value):
            raise CannotSay(value)
        return value

    def _branch(self, branches: list[dict[str, Any]], value: Any) -> Any:
        """The value in the branch that says it most directly."""
        found: list[tuple[int, Any]] = []
        before = self._costs
        for branch in branches:
            self._costs = 0
            try:
                said = self.say(branch, value)
            except CannotSay:
                continue
            if Draft202012Validator(as_json_schema(branch)).is_valid(said):
                found.append((self._costs, said))
        if not found:
            raise CannotSay(value)
        fewest, said = min(found, key=lambda pair: pair[0])
        self._costs = before + fewest
        return said

    def _text(self, words: list[str], value: Any) -> str:
        kinds = [word for word in words if word in TYPES]
        if "any" not in words and not Draft202012Validator({"type": kinds}).is_valid(value):
            raise CannotSay(value)
        return json.dumps(value)

    def _one_of(self, values: list[Any], value: Any) -> Any:
        for one in (json.dumps(value), value):
            if any(type(one) is type(known) and one == known for known in values):
                self._costs += one is not value
                return one
        raise CannotSay(value)

    def _object(self, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        ours = {self._server_name(name, node): name for name, node in schema["properties"].items()}
        for name, sent in ours.items():
            if name in value:
                said[sent] = self.say(schema["properties"][sent], value[name])
            elif sent in schema.get("required", ()):
                # Only a strict schema asks for what the server does not: null stands for nothing there.
                if not self.strict or not Draft202012Validator(schema["properties"][sent]).is_valid(None):
                    raise CannotSay(value)
                self._costs += 1
                said[sent] = None
        for name in value.keys() - ours.keys():
            extra = schema.get("additionalProperties", self.adds_members)
            self._costs += 1
            if extra is False or name in said:
                self.left_out = True
            else:
                said[name] = self.say(extra, value[name]) if isinstance(extra, dict) else value[name]
        return said

    def _server_name(self, name: str, node: dict[str, Any]) -> str:
        for one in (node, *node.get("anyOf", ())[:1]):
            if match := re.search(r"the server calls it ('(?:[^'\\]|\\.)*')", one.get("description", "")):
                return match[1][1:-1]
        return name
