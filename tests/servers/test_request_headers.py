"""The headers of modern requests: our rules, and the same answers as the official SDK gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.types import ServerInfo, Snapshot, Tool
from mooring.servers.active import header_map, header_problem, header_value, mirrored, parameter_headers


def official() -> Any:
    """The rules of the SDK. Its import takes as long as the collection of a thousand tests."""
    from mcp.shared import inbound

    return inbound


KEYWORDS = (
    *("properties", "items", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "prefixItems", "$defs"),
    *("definitions", "patternProperties", "additionalProperties", "dependentSchemas", "contains", "enum"),
    *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema", "default", "examples"),
)
tokens = st.sampled_from(["Region", "region", "X-Id", "a b", "", "é", "a\n", "!#$%&'*+-.^_`|~"]) | st.text()
plain: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
kinds = st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None, 3])
names = st.sampled_from(["a", "b", "a.b", "type", "properties", "x-mcp-header", ""])


def _schema(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    part = st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=2) | inner
    leaf = st.fixed_dictionaries({}, optional={"x-mcp-header": tokens | plain, "type": kinds})
    rest = st.dictionaries(st.sampled_from(KEYWORDS), part, max_size=3)
    return st.builds(lambda one, two: {**one, **two}, leaf, rest)


schemas = st.recursive(_schema(st.just({})) | plain, _schema, max_leaves=12)
chains = st.recursive(
    st.fixed_dictionaries({"type": kinds, "x-mcp-header": tokens}),
    lambda inner: st.builds(lambda found: {"properties": found}, st.dictionaries(names, inner, max_size=3)),
)
values: st.SearchStrategy[Any] = st.recursive(
    plain | st.integers(min_value=10**4299, max_value=10**4301),
    lambda inner: st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=2),
)
spoken = st.text(alphabet=st.characters(codec="utf-8")) | st.sampled_from(
    ["", " ", " a", "=?base64?YQ==?=", "=?"]
)


@given(spoken)
def test_values_are_written_as_the_sdk_writes_them(text: str) -> None:
    inbound = official()
    assert header_value(text) == inbound.encode_header_value(text)
    assert inbound.decode_header_value(header_value(text)) == text


@given(schemas | chains)
def test_schemas_are_judged_as_the_sdk_judges_them(schema: Any) -> None:
    inbound = official()
    assert (header_problem(schema) is None) == (inbound.find_invalid_x_mcp_header(schema) is None)
    assert header_map(schema) == inbound.x_mcp_header_map(schema)


@given(chains, st.dictionaries(names, values))
def test_arguments_are_mirrored_as_the_sdk_mirrors_them(schema: Any, arguments: dict[str, Any]) -> None:
    inbound = official()
    wanted = inbound.x_mcp_header_map(schema)
    assert parameter_headers(wanted, arguments) == inbound.mcp_param_headers(wanted, arguments)


REGION = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"a": REGION, "b": {"properties": {"c": {**REGION, "x-mcp-header": "C"}}}}}, None),
        ({"properties": {"a": {"enum": [REGION]}}}, None),
        (REGION, "only allowed on properties"),
        ({"properties": {"a": {"items": REGION}}}, "only allowed on properties"),
        ({"$defs": {"a": REGION}}, "only allowed on properties"),
        ({"properties": {"a": {**REGION, "x-mcp-header": 3}}}, "must be a string, not int"),
        ({"properties": {"a": {**REGION, "x-mcp-header": "a b"}}}, "is not a token of RFC 9110"),
        ({"properties": {"a": {**REGION, "type": "number"}}}, "not 'number'"),
        ({"properties": {"a": {**REGION, "type": ["string"]}}}, "not list"),
        (
            {"properties": {"a": REGION, "b": {**REGION, "x-mcp-header": "region"}}},
            "is also that of property",
        ),
        (
            {"properties": {"a.b": REGION, "a": {"properties": {"b": REGION}}}},
            "is also that of property 'a.b'",
        ),
    ],
)
def test_what_is_wrong_with_an_annotation_is_said(schema: dict[str, Any], problem: str | None) -> None:
    found = header_problem(schema)
    assert found is None if problem is None else problem in (found or "")


def test_tools_with_wrong_annotations_are_set_aside() -> None:
    def tool(name: str, schema: dict[str, Any]) -> Tool:
        return Tool(name=name, server="s", remote_name=name, input_schema=schema)

    good, plain = tool("good", {"properties": {"a": REGION}}), tool("plain", {})
    snapshot = Snapshot(server="s", info=ServerInfo(), tools=(good, tool("bad", REGION), plain))
    kept, maps = mirrored(snapshot)
    assert kept.tools == (good, plain)
    assert maps == {"good": {("a",): "Region"}}
    assert kept.warnings[0].startswith(
        "s: tool 'bad' is left out: x-mcp-header is only allowed on properties"
    )
