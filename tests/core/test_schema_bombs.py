"""Hostile schemas: each is cut or left out, and none recurses or grows without limit."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mooring.core.schema.compile import SetAside, compile_schema
from tests.lab.dialects import DIALECTS, nodes, problems


def nested(levels: int, keyword: str) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        node = {
            "properties": {"type": "object", "properties": {"x": node}},
            "items": {"type": "array", "items": node},
            "anyOf": {"anyOf": [node, {"type": "integer"}]},
            "allOf": {"allOf": [node]},
            "not": {"not": node},
        }[keyword]
    return {"type": "object", "properties": {"x": node}}


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next: 2**levels when it is written out."""
    defs: dict[str, Any] = {
        f"d{index}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{index + 1}"} for side in ("left", "right")},
        }
        for index in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string"}}}


def all_of_unions(count: int, width: int) -> dict[str, Any]:
    """A product of unions: width**count when it is multiplied out."""
    unions = [
        {"anyOf": [{"properties": {f"p{i}": {"const": j}}, "required": [f"p{i}"]} for j in range(width)]}
        for i in range(count)
    ]
    return {"type": "object", "allOf": unions}


def mutual(count: int) -> dict[str, Any]:
    refs = {f"m{index}": {"$ref": f"#/$defs/m{index}"} for index in range(count)}
    return {"$ref": "#/$defs/m0", "$defs": {name: {"type": "object", "properties": refs} for name in refs}}


BOMBS: dict[str, dict[str, Any]] = {
    "a reference to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "the root in itself": {"type": "object", "properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}},
    "a ring of references": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "all of itself": {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {"type": "string"}}},
    "any of itself": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object"},
    "doubling references": doubling(40),
    "everything refers to everything": mutual(40),
    "a product of unions": all_of_unions(30, 6),
    "a pattern that explodes": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}},
    },
    "many properties": {
        "type": "object",
        "properties": {f"p{index}": {"type": "string"} for index in range(400)},
    },
    "many fixed values": {"type": "object", "properties": {"x": {"enum": list(range(5_000))}}},
    "many equal fixed values": {
        "type": "object",
        "properties": {"x": {"allOf": [{"enum": list(range(4_000))}, {"enum": list(range(4_000))}]}},
    },
    "deep but allowed": nested(50, "properties"),
    **{
        f"deep {keyword}": nested(60, keyword) for keyword in ("properties", "items", "anyOf", "allOf", "not")
    },
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_defused_in_every_dialect(bomb) -> None:
    for dialect in DIALECTS:
        try:
            compiled = compile_schema(BOMBS[bomb], dialect)
        except SetAside as aside:
            assert "more than" in aside.reason
        else:
            assert problems(compiled.schema, dialect) == []
            assert sum(1 for _ in nodes(compiled.schema)) <= 10_000
            compiled.back({"x": {"x": {"x": "aaaa!"}}})


@pytest.mark.parametrize(
    "bomb", ["doubling references", "everything refers to everything", "the root in itself"]
)
def test_references_that_expand_too_far_are_cut_rather_than_set_aside(bomb) -> None:
    assert any("is cut" in note for note in compile_schema(BOMBS[bomb], "openai").notes)


@pytest.mark.parametrize("keyword", ["properties", "items", "anyOf", "allOf", "not"])
def test_a_schema_deeper_than_the_stack_is_set_aside(keyword) -> None:
    with pytest.raises(SetAside, match="nested more than 64 levels"):
        compile_schema(nested(sys.getrecursionlimit() * 3, keyword), "openai")


def test_ten_megabytes_are_set_aside() -> None:
    with pytest.raises(SetAside, match="larger than 10,000,000 characters"):
        compile_schema({"type": "object", "description": "x" * 10_000_001}, "openai")


def test_too_many_values_are_set_aside() -> None:
    with pytest.raises(SetAside, match="more than 50,000 values"):
        compile_schema({"type": "object", "properties": {"x": {"enum": [0] * 200_000}}}, "openai")


def test_what_is_no_json_is_set_aside() -> None:
    for value in (object(), {1: 2}, {"a", "b"}):
        with pytest.raises(SetAside, match="not JSON"):
            compile_schema({"type": "object", "default": value}, "openai")


def test_notes_are_bounded() -> None:
    names = {f"p{index}": {"$ref": "#/nowhere"} for index in range(1_000)}
    assert len(compile_schema({"type": "object", "properties": names}, "openai").notes) == 50


def test_nested_unions_of_objects_come_back_in_bounded_time() -> None:
    node: dict[str, Any] = {"type": "string"}
    value: Any = "leaf"
    for _ in range(25):
        inner = {"type": "object", "properties": {"p": node}, "required": ["p"]}
        node = {"anyOf": [inner, {"type": "object", "properties": {"q": {"type": "string"}}}]}
        value = {"p": value, "q": None}
    for dialect in DIALECTS:
        compiled = compile_schema({"type": "object", "properties": {"x": node}}, dialect)
        compiled.back({"x": value})
