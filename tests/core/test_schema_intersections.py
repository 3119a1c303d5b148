"""Intersections of schemas with and without a `type`."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.schema.compile import compile_schema


def compiled(inner: dict[str, Any]) -> Any:
    """The compiled schema of a property; None when it allows nothing."""
    whole = {"type": "object", "properties": {"x": inner}}
    return compile_schema(whole, "gemini").schema.get("properties", {}).get("x")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"minLength": 2}, {"type": "integer"}], {"type": "integer"}),
        ([{"type": "integer"}, {"minLength": 2}], {"type": "integer"}),
        (
            [{"minimum": 3}, {"type": ["integer", "string"]}],
            {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string"}]},
        ),
        ([{"type": "string"}, {"type": "integer"}], None),
        ([{"type": "number"}, {"type": "integer"}], {"type": "integer"}),
    ],
)
def test_keywords_without_a_type_restrict_only_their_own_kind(parts: list[Any], expected: Any) -> None:
    assert compiled({"allOf": parts}) == expected


def types(inner: Any) -> set[str]:
    """The types of a compiled schema and its branches."""
    branches = inner.get("anyOf", [inner])
    return {branch["type"] for branch in branches}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], {"integer"}),
        ([1, 1.5], {"number"}),
        ([1, "a"], {"integer", "string"}),
        (["a", 1.5], {"string", "number"}),
    ],
)
def test_fixed_values_have_the_narrowest_type(values: list[Any], expected: set[str]) -> None:
    whole = {"type": "object", "properties": {"x": {"enum": values}}}
    assert types(compile_schema(whole, "openai").schema["properties"]["x"]) == expected
