"""The published rules of each model provider, checked independently of how mooring follows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

DIALECTS = ("openai", "openai-strict", "anthropic", "gemini", "plain")

ANNOTATIONS = {"type", "title", "description", "enum", "properties", "required", "items"}
BOUNDS = {"minimum", "maximum", "minItems", "maxItems"}
JSON_SCHEMA = (
    ANNOTATIONS
    | BOUNDS
    | {"anyOf", "additionalProperties", "default", "examples", "format", "uniqueItems", "multipleOf"}
    | {"minLength", "maxLength", "minProperties", "maxProperties", "exclusiveMinimum", "exclusiveMaximum"}
)
KEYWORDS = {
    "openai": JSON_SCHEMA,
    "anthropic": JSON_SCHEMA,
    "openai-strict": ANNOTATIONS
    | BOUNDS
    | {"anyOf", "additionalProperties", "format", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"},
    "gemini": ANNOTATIONS
    | BOUNDS
    | {"anyOf", "format", "nullable", "minLength", "maxLength", "minProperties", "maxProperties"},
    "plain": ANNOTATIONS | BOUNDS | {"additionalProperties"},
}
NAMES = {
    "anthropic": re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
    "plain": re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
}
GEMINI_FORMATS = {
    "string": {"date-time"},
    "integer": {"int32", "int64"},
    "number": {"float", "double"},
}
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}

Node = dict[str, Any]


def nodes(schema: Node, level: int = 1) -> Iterator[tuple[Node, int]]:
    """Every subschema with the number of objects and arrays it lies in, itself included."""
    deeper = level + 1
    yield schema, level
    for child in schema.get("properties", {}).values():
        yield from nodes(child, deeper)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from nodes(schema[keyword], deeper)
    for branch in schema.get("anyOf", ()):
        yield from nodes(branch, level)


def problems(schema: Node, dialect: str) -> list[str]:
    """Why the provider would refuse a tool with this schema; empty when it would not."""
    return [f"{problem} in {json.dumps(node)[:200]}" for problem, node in _problems(schema, dialect)]


def _problems(schema: Node, dialect: str) -> Iterator[tuple[str, Node]]:
    json.dumps(schema, allow_nan=False)
    if schema.get("type") != "object":
        yield "the root is no object", schema
    for keyword in ("anyOf", "oneOf", "allOf", "enum", "const", "not"):
        if keyword in schema:
            yield f"{keyword} at the root", schema
    if dialect != "gemini":
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            yield f"no JSON Schema: {error.message}", schema
    for node, level in nodes(schema):
        if unknown := node.keys() - KEYWORDS[dialect]:
            yield f"{sorted(unknown)} not permitted", node
        yield from ((problem, node) for problem in _common(node, dialect))
        own = {"openai-strict": _strict, "gemini": _gemini, "plain": _plain}.get(dialect)
        if own is not None:
            yield from ((problem, node) for problem in own(node, root=node is schema, level=level))
    if dialect == "openai-strict":
        yield from ((problem, schema) for problem in _strict_totals(schema))


def _types(node: Node) -> list[str]:
    said = node.get("type", [])
    return said if isinstance(said, list) else [said]


def _common(node: Node, dialect: str) -> Iterator[str]:
    if "object" in _types(node) and not isinstance(node.get("properties"), dict):
        yield "object schema missing properties"
    if "array" in _types(node) and not isinstance(node.get("items"), dict):
        yield "array schema missing items"
    if not set(_types(node)) <= TYPES:
        yield "unknown type"
    if not set(node.get("required", ())) <= set(node.get("properties", ())):
        yield "required property is not defined"
    for name in node.get("properties", {}):
        if not name or (dialect in NAMES and not NAMES[dialect].fullmatch(name)):
            yield f"property name {name!r}"
    if "enum" in node and not node["enum"]:
        yield "empty enum"
    if len(node.get("description", "")) > 4_200:
        yield "huge description"


def _strict(node: Node, *, root: bool, level: int) -> Iterator[str]:
    if "type" not in node and "anyOf" not in node:
        yield "schema must have a 'type' key"
    if "object" in _types(node):
        if node.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false"
        if node.get("required") != list(node["properties"]):
            yield "'required' must include every key in properties"
        if level > 10:
            yield f"{level} levels of nesting exceeds limit of 10"
    if node.get("format") not in {None, *STRICT_FORMATS}:
        yield "format not permitted"


def _strict_totals(schema: Node) -> Iterator[str]:
    every = [node for node, _ in nodes(schema)]
    values = [str(value) for node in every for value in node.get("enum", ())]
    names = [name for node in every for name in node.get("properties", ())]
    if len(names) > 5_000:
        yield "more than 5000 properties"
    if len(values) > 1_000:
        yield "more than 1000 enum values"
    if sum(map(len, values + names)) > 120_000:
        yield "more than 120,000 characters"
    for node in every:
        if len(node.get("enum", ())) > 250 and sum(len(str(value)) for value in node["enum"]) > 15_000:
            yield "a long enum of more than 15,000 characters"


def _gemini(node: Node, *, root: bool, level: int) -> Iterator[str]:
    if "anyOf" in node:
        if len(node) > 1:
            yield "when using any_of, it must be the only field set"
        return
    kind = node.get("type")
    if not isinstance(kind, str) or kind == "null":
        yield "didn't specify one schema type"
        return
    if kind == "object" and not root and not node["properties"]:
        yield "properties: should be non-empty for OBJECT type"
    if kind != "object" and node.keys() & {"properties", "required"}:
        yield "properties: only allowed for OBJECT type"
    if "enum" in node and (kind != "string" or not all(isinstance(value, str) for value in node["enum"])):
        yield "enum: only allowed for STRING type"
    if "format" in node and node["format"] not in GEMINI_FORMATS.get(kind, ()):
        yield "format not supported"


def _plain(node: Node, *, root: bool, level: int) -> Iterator[str]:
    kinds = _types(node)
    if len([kind for kind in kinds if kind != "null"]) != 1 or len(kinds) > 2:
        yield "not of one type"
    if isinstance(node.get("additionalProperties"), dict):
        yield "additionalProperties is a schema"


def as_json_schema(schema: Any) -> Any:
    """OpenAPI's `nullable` in JSON Schema's words, to check a value with a common validator."""
    if isinstance(schema, list):
        return [as_json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: as_json_schema(value)
        for name, value in schema.items()
        if name != "nullable" or value is not True
    }
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") is True else plain
