"""Stubs from hostile and ordinary schemas: always valid Python, within limits."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.types import Tool
from mooring.scripts.stubs import HEADER, function_names, identifiers, stub_of, within_budget


def tool(name: str = "t", schema: Any = None, output: Any = None, **more: Any) -> Tool:
    given_schema = {"type": "object"} if schema is None else schema
    return Tool(
        name=name, server="s", remote_name=name, input_schema=given_schema, output_schema=output, **more
    )


def signature(schema: Any, output: Any = None) -> str:
    return stub_of("f", tool(schema=schema, output=output)).text


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (of(), "async def f() -> Any: ..."),
        ({"type": "object"}, "async def f(**more: Any) -> Any: ..."),
        ({**of(a={"type": "string"}), "required": ["a"]}, "async def f(*, a: str) -> Any: ..."),
        (of(a={"type": "integer", "default": 3}), "async def f(*, a: int | None = 3) -> Any: ..."),
        (of(a={"enum": ["x", "y"]}), "async def f(*, a: Literal['x', 'y'] | None = None) -> Any: ..."),
        (of(a={"type": ["number", "null"]}), "async def f(*, a: float | None = None) -> Any: ..."),
        (
            of(a={"type": "array", "items": {"type": "boolean"}}),
            "async def f(*, a: list[bool] | None = None) -> Any: ...",
        ),
        (
            of(a={"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            "async def f(*, a: str | int | None = None) -> Any: ...",
        ),
        (of(**{"not valid": {}}), "async def f(**more: Any) -> Any: ..."),
        (of(**{"class": {}}), "async def f(**more: Any) -> Any: ..."),
    ],
)
def test_input_schemas_become_keyword_arguments(schema: Any, text: str) -> None:
    assert signature(schema) == text


def test_objects_become_typed_dicts_inner_ones_first() -> None:
    inner = of(id={"type": "integer"})
    text = signature(of(), {**of(rows={"type": "array", "items": inner}), "required": ["rows"]})
    assert text == (
        "class f_ResultRowsitem(TypedDict):\n    id: NotRequired[int]\n"
        "class f_Result(TypedDict):\n    rows: list[f_ResultRowsitem]\n"
        "async def f() -> f_Result: ..."
    ).replace("f_ResultRowsitem", text.split("(")[0].removeprefix("class "))


def test_recursive_references_end() -> None:
    schema = {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(a={"$ref": "#/$defs/A"})}}
    ast.parse(HEADER + signature(schema))


SCHEMA = st.recursive(
    st.sampled_from(["string", "integer", "object", "array", None, 7, "no such type"]).map(
        lambda kind: {"type": kind}
    )
    | st.lists(st.text(max_size=4) | st.integers() | st.none(), max_size=3).map(
        lambda values: {"enum": values}
    )
    | st.sampled_from(["#/x", "#/properties/a", "#", "http://x", ""]).map(lambda ref: {"$ref": ref}),
    lambda inner: (
        st.builds(
            lambda members, required: {"type": "object", "properties": members, "required": required},
            st.dictionaries(st.text(max_size=6), inner, max_size=4),
            st.lists(st.text(max_size=3), max_size=2) | st.none(),
        )
        | inner.map(lambda one: {"type": "array", "items": one})
        | st.lists(inner, max_size=3).map(lambda many: {"anyOf": many})
    ),
    max_leaves=12,
)


@given(SCHEMA, SCHEMA, st.text(max_size=20), st.text(max_size=40))
def test_every_schema_gives_python_that_parses(schema: Any, output: Any, name: str, about: str) -> None:
    for function, one in function_names([tool(name, schema, output, description=about)]).items():
        stub = stub_of(function, one)
        ast.parse(HEADER + stub.shown)
        assert "\n" not in stub.signature
        assert "\n" not in stub.about


def test_names_are_identifiers_and_equal_names_are_left_out() -> None:
    names = function_names([tool("a-b"), tool("a.b"), tool("1x"), tool("print"), tool("class"), tool("ok")])
    assert sorted(names) == ["_1x", "class_", "ok", "print_"]


def test_tools_for_user_interfaces_only_are_left_out() -> None:
    hidden = tool("hidden", meta={"ui": {"visibility": ["app"]}})
    both = tool("both", meta={"ui": {"visibility": ["model", "app"]}})
    assert list(function_names([hidden, both])) == ["both"]


def test_a_huge_catalog_is_cut_to_the_budget() -> None:
    stubs = [stub_of(f"tool_{number}", tool(description="x" * 500)) for number in range(500)]
    shown, rest = within_budget(stubs, 1_000)
    assert len(shown) + len(rest) == 500
    assert 1 <= len(shown) < 100


def test_words_are_found_without_parsing() -> None:
    assert identifiers("((((( mcp_a(x=1) 'mcp_b") >= {"mcp_a", "mcp_b", "x"}
