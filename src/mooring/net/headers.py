"""The headers of a modern HTTP request: its method, what it names, and the arguments that a tool's schema
wants in headers (`x-mcp-header`). Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, cast

from mooring.core.types import Snapshot, Tool

_ANNOTATION = "x-mcp-header"
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)
_TYPES = ("string", "integer", "boolean")
_ONE_SCHEMA = frozenset(
    (
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
_LIST_OF_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAP_OF_SCHEMAS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties"))

HeaderMap = dict[tuple[str, ...], str]
"""The path of an argument (its name, and those of the objects around it), and the name after `Mcp-Param-`."""


def request_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Method`, and `Mcp-Name` for methods that name a thing."""
    headers = {"Mcp-Method": method}
    name = params.get(_NAMED.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = header_value(name)
    return headers


def parameter_headers(header_map: HeaderMap, arguments: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Param-…` for the arguments that the tool's schema wants in headers, except for those that are
    missing, null or no plain value."""
    headers: dict[str, str] = {}
    for path, name in header_map.items():
        value: Any = arguments
        for key in path:
            value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
        if (text := _as_text(value)) is not None:
            headers[f"Mcp-Param-{name}"] = header_value(text)
    return headers


def header_value(text: str) -> str:
    """The text as a header can carry it: as it is, or in base64 with marks around it."""
    if not text or (_PRINTABLE.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{b64encode(text.encode()).decode()}?="


def header_map(schema: Mapping[str, Any]) -> HeaderMap:
    """The arguments that a valid schema wants in headers; see `header_problem`."""
    return {
        path: part[_ANNOTATION]
        for path, part in _annotated(schema)
        if path and isinstance(part[_ANNOTATION], str)
    }


def header_problem(schema: Mapping[str, Any]) -> str | None:
    """What breaks the rules for header annotations: a tool with such a schema must not be used over HTTP."""
    owners: dict[str, str] = {}
    for path, part in _annotated(schema):
        if not path:
            return f"{_ANNOTATION} is only allowed on properties, not within another keyword or at the root"
        where, name, kind = ".".join(path), part[_ANNOTATION], part.get("type")
        if not isinstance(name, str):
            return f"property {where!r}: {_ANNOTATION} must be a string, not {type(name).__name__}"
        if not _TOKEN.fullmatch(name):
            return f"property {where!r}: {_ANNOTATION} {name!r} is not a token of RFC 9110"
        if not isinstance(kind, str) or kind not in _TYPES:
            found = repr(kind) if isinstance(kind, str) else type(kind).__name__
            return f"property {where!r}: {_ANNOTATION} needs the type string, integer or boolean, not {found}"
        if (owner := owners.get(name.lower())) is not None:
            return f"property {where!r}: {_ANNOTATION} {name!r} is also that of property {owner!r}"
        owners[name.lower()] = where
    return None


def mirrored(snapshot: Snapshot) -> tuple[Snapshot, dict[str, HeaderMap]]:
    """The snapshot without tools whose header annotations break the rules (they must not be used), and
    for each remaining tool that has any, which arguments go into headers."""
    kept: list[Tool] = []
    maps: dict[str, HeaderMap] = {}
    warnings: list[str] = []
    for tool in snapshot.tools:
        if _ANNOTATION in repr(tool.input_schema):  # quicker than a walk, and False for almost every tool
            if problem := header_problem(tool.input_schema):
                warnings.append(f"{tool.server}: set aside tool {tool.name!r}: {problem}")
                continue
            if found := header_map(tool.input_schema):
                maps[tool.name] = found
        kept.append(tool)
    if not warnings:
        return snapshot, maps
    return (
        Snapshot(
            server=snapshot.server,
            info=snapshot.info,
            instructions=snapshot.instructions,
            tools=tuple(kept),
            resources=snapshot.resources,
            templates=snapshot.templates,
            prompts=snapshot.prompts,
            warnings=(*snapshot.warnings, *warnings),
        ),
        maps,
    )


def _annotated(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Each part of a schema that has the annotation, with its path: the names of the properties that lead
    to it, or None where something else than `properties` does. References are not followed."""
    left: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while left:
        path, part = left.pop()
        if not isinstance(part, dict):
            continue
        schema = cast("dict[str, Any]", part)
        if _ANNOTATION in schema:
            yield path, schema
        for keyword, value in schema.items():
            if keyword in _ONE_SCHEMA:
                left.append((None, value))
            elif isinstance(value, list) and keyword in _LIST_OF_SCHEMAS:
                left.extend((None, item) for item in cast("list[Any]", value))
            elif isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                if keyword == "properties":
                    left.extend((None if path is None else (*path, name), inner[name]) for name in inner)
                elif keyword in _MAP_OF_SCHEMAS:
                    left.extend((None, item) for item in inner.values())


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:  # a number with more digits than Python writes
        return None
