"""JSON Schema in each provider's dialect: what is kept, what is rewritten, and the arguments converted
back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from mooring.core.schema.compile import Compiled, References, SetAside, compile_schema, compile_tools
from mooring.core.types import Tool
from tests.lab.dialects import DIALECTS, problems


def compiled(dialect: str, original: dict[str, Any]) -> Compiled:
    outcome = compile_schema(original, dialect)
    assert problems(outcome.schema, dialect) == []
    return outcome


def member(dialect: str, node: Any, **more: Any) -> Any:
    """How one required member of that schema is written."""
    original = {"type": "object", "properties": {"x": node}, "required": ["x"], **more}
    return compiled(dialect, original).schema["properties"]["x"]


def through(dialect: str, node: Any, sent: Any, **more: Any) -> Any:
    """What the server receives for a member of that schema when the model sends something."""
    original = {"type": "object", "properties": {"x": node}, "required": ["x"], **more}
    return compiled(dialect, original).back({"x": sent})["x"]


TYPICAL = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where"},
        "depth": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "Depth"},
        "mode": {"type": "string", "enum": ["fast", "full"], "default": "fast"},
    },
    "required": ["path"],
}


# One typical schema


def test_a_schema_that_is_fine_already_is_shared_not_copied() -> None:
    assert compiled("openai", TYPICAL).schema is TYPICAL
    assert compiled("anthropic", TYPICAL).schema is TYPICAL


def test_unchanged_parts_are_shared() -> None:
    part = {"type": "array", "items": {"type": "string"}}
    original = {
        "type": "object",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": part},
    }
    assert compiled("openai", original).schema["properties"]["a"] is part


def test_strict() -> None:
    assert compiled("openai-strict", TYPICAL).schema == snapshot(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where"},
                "depth": {"type": ["integer", "null"], "title": "Depth"},
                "mode": {
                    "type": ["string", "null"],
                    "enum": ["fast", "full", None],
                    "description": '(default: "fast")',
                },
            },
            "required": ["path", "depth", "mode"],
            "additionalProperties": False,
        }
    )


def test_gemini() -> None:
    assert compiled("gemini", TYPICAL).schema == snapshot(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where"},
                "depth": {"type": "integer", "nullable": True, "title": "Depth"},
                "mode": {"type": "string", "enum": ["fast", "full"], "description": '(default: "fast")'},
            },
            "required": ["path"],
        }
    )


def test_plain() -> None:
    assert compiled("plain", TYPICAL).schema == snapshot(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where"},
                "depth": {"type": ["integer", "null"], "title": "Depth"},
                "mode": {"type": "string", "enum": ["fast", "full"], "description": '(default: "fast")'},
            },
            "required": ["path"],
        }
    )


# Null and nothing


@pytest.mark.parametrize(
    "node",
    [
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": "string", "nullable": True},
    ],
)
def test_every_spelling_of_null_is_one(node) -> None:
    assert member("gemini", node) == {"type": "string", "nullable": True}
    assert member("openai-strict", node) == {"type": ["string", "null"]}
    assert member("plain", node) == {"type": ["string", "null"]}
    assert member("openai", node) == {"anyOf": [{"type": "string"}, {"type": "null"}]}


def test_a_null_among_fixed_values_is_null() -> None:
    node = {"enum": ["a", None]}
    assert member("gemini", node) == {"type": "string", "enum": ["a"], "nullable": True}
    assert member("openai-strict", node) == {"type": ["string", "null"], "enum": ["a", None]}


def test_a_strict_null_for_what_is_optional_is_not_sent() -> None:
    original = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["b"],
    }
    tool = compiled("openai-strict", original)
    assert tool.schema["required"] == ["a", "b"]
    assert tool.back({"a": None, "b": "x"}) == {"b": "x"}


def test_a_strict_null_is_sent_where_the_server_allows_null() -> None:
    original = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    assert compiled("openai-strict", original).back({"a": None}) == {"a": None}


def test_strict_nulls_are_dropped_inside_arrays_and_unions() -> None:
    small = {"type": "object", "properties": {"n": {"type": "integer"}}}
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    node = {"type": "array", "items": {"anyOf": [named, {**small, "additionalProperties": False}]}}
    assert through("openai-strict", node, [{"n": None}, {"name": "x"}]) == [{}, {"name": "x"}]


# What a dialect has no schema for


@pytest.mark.parametrize("dialect", ["openai-strict", "gemini"])
def test_a_free_form_object_is_json_text(dialect) -> None:
    node = {"type": "object", "description": "Labels", "additionalProperties": {"type": "string"}}
    assert member(dialect, node) == {"type": "string", "description": "Labels (JSON text: object)"}
    assert through(dialect, node, '{"a": "b"}') == {"a": "b"}


def test_a_strict_null_for_optional_json_text_is_not_sent_but_its_text_is() -> None:
    tool = compiled("openai-strict", {"type": "object", "properties": {"x": True}})
    assert tool.back({"x": None}) == {}
    assert tool.back({"x": "null"}) == {"x": None}


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("5", 5),
        ("plain words", "plain words"),
        ('"quoted"', "quoted"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        (7, 7),
    ],
)
def test_json_text_for_any_value_is_parsed_when_it_is_json(sent, received) -> None:
    assert through("openai-strict", {}, sent) == received


def test_text_that_is_not_what_the_server_takes_stays_text_where_text_is_taken() -> None:
    node = {"anyOf": [{"type": "string"}, {"type": "object"}]}
    assert through("gemini", node, "5") == "5"
    assert through("gemini", node, "{}") == {}


def test_json_text_nested_without_end_passes_unchanged() -> None:
    bomb = "[" * 100_000
    assert through("gemini", {}, bomb) == bomb


def test_a_tool_without_parameters_has_none_in_every_dialect() -> None:
    for dialect in DIALECTS:
        for original in ({}, {"type": "object"}, {"type": "object", "properties": {}}):
            assert compiled(dialect, original).schema["properties"] == {}


def test_a_root_that_takes_anything_is_given_as_one_json_text() -> None:
    tool = compiled("openai-strict", {"type": "object", "additionalProperties": True})
    assert tool.back({"arguments": '{"a": 1}'}) == {"a": 1}


# Roots


def test_a_root_union_becomes_one_object() -> None:
    original = {
        "oneOf": [
            {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
        ]
    }
    for dialect in DIALECTS:
        assert [*compiled(dialect, original).schema["properties"]] == ["id", "url"]
    assert compiled("openai-strict", original).back({"id": None, "url": "u"}) == {"url": "u"}


def test_a_root_that_asks_for_one_of_several_members_keeps_them_all_optional() -> None:
    properties = {"title": {"type": "string"}, "body": {"type": "string"}, "id": {"type": "integer"}}
    original = {
        "type": "object",
        "properties": properties,
        "required": ["id"],
        "anyOf": [{"required": ["title"]}, {"required": ["body"]}],
    }
    for dialect in ("openai", "anthropic", "gemini", "plain"):
        assert compiled(dialect, original).schema["required"] == ["id"]


def test_a_root_that_is_no_object_is_wrapped() -> None:
    for dialect in DIALECTS:
        tool = compiled(dialect, {"type": "string", "enum": ["a", "b"]})
        assert tool.schema["properties"] == {"arguments": {"type": "string", "enum": ["a", "b"]}}
        assert tool.back({"arguments": "a"}) == {"arguments": "a"}, "MCP sends objects only"


def test_a_root_that_allows_nothing_is_set_aside() -> None:
    with pytest.raises(SetAside, match="allows no arguments"):
        compile_schema({"not": {}}, "openai")


# References


def test_references_of_every_form_are_inlined() -> None:
    more = {
        "$defs": {"a/b": {"type": "string", "$anchor": "named"}},
        "definitions": {"n": {"type": "integer"}},
        "$id": "https://example.com/s",
    }
    for ref, written in {
        "#/$defs/a~1b": {"type": "string"},
        "#/%24defs/a~1b": {"type": "string"},
        "#named": {"type": "string"},
        "#/definitions/n": {"type": "integer"},
        "https://example.com/s#/definitions/n": {"type": "integer"},
    }.items():
        assert member("anthropic", {"$ref": ref}, **more) == written


def test_a_reference_into_the_properties_is_followed() -> None:
    properties = {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"$ref": "#/properties/a/items"}}
    tool = compiled("gemini", {"type": "object", "properties": properties})
    assert tool.schema["properties"]["b"] == {"type": "integer"}


def test_what_stands_beside_a_reference_counts() -> None:
    node = {"$ref": "#/$defs/s", "description": "mine", "maxLength": 3}
    more = {"$defs": {"s": {"type": "string", "description": "theirs", "minLength": 1}}}
    assert member("openai", node, **more) == {
        "type": "string",
        "minLength": 1,
        "maxLength": 3,
        "description": "mine",
    }


def test_a_reference_that_leads_nowhere_allows_anything_and_is_noted() -> None:
    tool = compiled("openai", {"type": "object", "properties": {"x": {"$ref": "http://elsewhere/s.json"}}})
    assert tool.schema["properties"]["x"] == {}
    assert tool.notes == snapshot(
        ("'x' refers to 'http://elsewhere/s.json', which is not there; anything is allowed",)
    )


def test_recursion_is_cut_and_what_lies_deeper_still_gets_through() -> None:
    tree = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    original = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    tool = compiled("openai-strict", original)
    assert any("is cut" in note for note in tool.notes)
    sent = {"tree": {"name": "1", "kids": [{"name": "2", "kids": ['{"name": "3", "kids": []}']}]}}
    assert tool.back(sent) == {
        "tree": {"name": "1", "kids": [{"name": "2", "kids": [{"name": "3", "kids": []}]}]}
    }


# Combinations


def test_all_of_is_merged() -> None:
    parts = [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {"minimum": 1}}},
    ]
    original = {"type": "object", "properties": {"b": {"type": "integer", "minimum": 0}}, "allOf": parts}
    written = compiled("openai", original).schema
    assert written["properties"] == {"b": {"type": "integer", "minimum": 1}, "a": {"type": "string"}}
    assert written["required"] == ["a"]


def test_constants_of_a_union_become_one_list() -> None:
    node = {"anyOf": [{"const": "a"}, {"const": "b"}, {"const": "c"}]}
    for dialect in DIALECTS:
        assert member(dialect, node) == {"type": "string", "enum": ["a", "b", "c"]}


def test_a_branch_that_nothing_satisfies_disappears() -> None:
    assert member("openai", {"anyOf": [{"not": {}}, {"type": "string"}]}) == {"type": "string"}


def test_a_gemini_union_stands_alone_with_its_description_inside() -> None:
    node = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "Either"}
    assert member("gemini", node) == {
        "anyOf": [{"type": "string", "description": "Either", "nullable": True}, {"type": "integer"}]
    }


def test_plain_has_no_unions_and_merges_objects() -> None:
    one = {
        "type": "object",
        "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}},
        "required": ["kind"],
    }
    two = {
        "type": "object",
        "properties": {"kind": {"const": "b"}, "s": {"type": "string"}},
        "required": ["kind"],
    }
    written = member("plain", {"oneOf": [one, two]})
    assert written["properties"]["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert written["required"] == ["kind"]
    assert through("plain", {"type": ["string", "integer"]}, "5") == 5


def test_members_declared_under_a_condition_can_be_given() -> None:
    original = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "if": {"properties": {"kind": {"const": "file"}}},
        "then": {"properties": {"path": {"type": "string"}}, "required": ["path"]},
        "else": {"properties": {"url": {"type": "string"}}},
        "dependentSchemas": {"kind": {"properties": {"size": {"type": "integer"}}}},
    }
    tool = compiled("openai", original)
    assert [*tool.schema["properties"]] == ["kind", "path", "url", "size"]
    assert "required" not in tool.schema
    assert len(tool.notes) == 2


@pytest.mark.parametrize(
    "node",
    [
        {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
    ],
)
def test_a_tuple_is_an_array_of_whatever_its_places_hold(node) -> None:
    assert member("openai-strict", {"type": "array", **node}) == {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "maxItems": 2,
    }


# Names and values


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("openai", ["a b", "a_b", "1st", "名前", "x.y", "_"]),
        ("anthropic", ["a_b_2", "a_b", "1st", "__", "x.y", "_"]),
        ("gemini", ["a_b_2", "a_b", "_1st", "__", "x_y", "_"]),
    ],
)
def test_names_that_a_dialect_refuses_are_replaced_by_distinct_ones(dialect, names) -> None:
    theirs = ["a b", "a_b", "1st", "名前", "x.y", ""]
    original = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in theirs},
        "required": theirs,
    }
    tool = compiled(dialect, original)
    assert [*tool.schema["properties"]] == tool.schema["required"] == names
    assert tool.back({name: name for name in names}) == dict(zip(theirs, names, strict=True))


def test_a_replaced_name_that_is_taken_gets_the_next_number() -> None:
    theirs = ["a b", "a_b", "a-b", "a/b"]
    properties = {name: {"type": "string"} for name in theirs}
    written = compiled("gemini", {"type": "object", "properties": properties})
    assert [*written.schema["properties"]] == ["a_b_2", "a_b", "a_b_3", "a_b_4"]


def test_long_names_stay_distinct() -> None:
    theirs = ["x" * 100 + str(index) for index in range(200)]
    tool = compiled("anthropic", {"type": "object", "properties": {name: {} for name in theirs}})
    ours = [*tool.schema["properties"]]
    assert [*tool.back(dict.fromkeys(ours, 1))] == theirs


def test_a_member_sent_under_the_servers_own_name_gets_through() -> None:
    tool = compiled("gemini", {"type": "object", "properties": {"x.y": {"type": "string"}}})
    assert tool.back({"x.y": "v"}) == {"x.y": "v"}


def test_fixed_values_that_are_no_strings_have_names_in_gemini() -> None:
    node = {"enum": [1, "1", True, None]}
    assert member("gemini", node) == {"type": "string", "enum": ["1", '"1"', "true"], "nullable": True}
    assert [through("gemini", node, sent) for sent in ("1", '"1"', "true", None, "other")] == [
        1,
        "1",
        True,
        None,
        "other",
    ]


def test_a_required_member_without_declaration_is_declared() -> None:
    written = compiled(
        "gemini", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b", "b"]}
    )
    assert written.schema["required"] == ["b"]
    closed = {"type": "object", "properties": {}, "required": ["b"], "additionalProperties": False}
    assert "required" not in compiled("gemini", closed).schema


def test_a_member_whose_schema_is_no_schema_is_left_out() -> None:
    original = {"type": "object", "properties": {"a": {"type": "string"}, "type": "object"}}
    tool = compiled("openai", original)
    assert [*tool.schema["properties"]] == ["a"]
    assert tool.notes == ("'type' is not a schema; left out",)


# Keywords


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        ("openai", {"type": "string", "format": "uri", "minLength": 3, "description": "(pattern: ^h)"}),
        ("openai-strict", {"type": "string", "description": "(minLength: 3; format: uri; pattern: ^h)"}),
        ("gemini", {"type": "string", "minLength": 3, "description": "(format: uri; pattern: ^h)"}),
        ("plain", {"type": "string", "description": "(minLength: 3; format: uri; pattern: ^h)"}),
    ],
)
def test_keywords_that_a_dialect_refuses_are_reported_in_the_description(dialect, written) -> None:
    node = {"type": "string", "format": "uri", "minLength": 3, "pattern": "^h", "x-order": 1, "$comment": "c"}
    assert member(dialect, node) == written


def test_draft_4_bounds_are_read() -> None:
    node = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    assert member("openai", node) == {"type": "number", "exclusiveMinimum": 0, "maximum": 9}


def test_numbers_that_are_no_json_and_senseless_keywords_disappear() -> None:
    nan, inf = float("nan"), float("inf")
    node = {
        "type": "number",
        "minimum": nan,
        "maximum": -inf,
        "default": nan,
        "multipleOf": 0,
        "enum": [inf, 1.5],
    }
    assert member("openai", node) == {"type": "number", "enum": [1.5]}
    assert member("openai", {"type": "string", "minLength": -1, "maxLength": "9", "description": 5}) == {
        "type": "string"
    }


def test_a_count_of_zero_is_kept_and_one_of_less_is_not() -> None:
    assert member("openai", {"type": "string", "maxLength": 0})["maxLength"] == 0
    assert member("openai", {"type": "array", "items": {}, "minItems": 0})["minItems"] == 0
    assert "minItems" not in member("openai", {"type": "array", "items": {}, "minItems": -1})
    assert member("openai", {"type": "array", "items": {}, "uniqueItems": True})["uniqueItems"] is True
    assert "uniqueItems" not in member("openai", {"type": "array", "items": {}, "uniqueItems": False})


def test_strict_nulls_are_dropped_to_match_one_of_several_objects() -> None:
    """A null that an object requires or allows is sent; others mean "not given"."""
    node = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "note": {"type": ["string", "null"]}},
                "required": ["a"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"b": {"type": "integer"}},
                "required": ["b"],
                "additionalProperties": False,
            },
        ]
    }
    tool = compiled("openai-strict", node)
    assert [*tool.schema["properties"]] == ["a", "note", "b"]
    assert tool.back({"a": "x", "note": None, "b": None}) == {"a": "x", "note": None}
    assert tool.back({"a": None, "note": None, "b": 2}) == {"b": 2}


def test_json_text_names_the_first_twenty_members() -> None:
    inner = {"type": "object", "properties": {f"m{number}": {"type": "string"} for number in range(25)}}
    node: dict[str, Any] = inner
    for _ in range(9):
        node = {"type": "array", "items": node}
    written = json.dumps(compiled("openai-strict", {"type": "object", "properties": {"x": node}}).schema)
    assert "m19" in written
    assert "m20" not in written


def test_members_that_cannot_be_given_are_noted_only_if_the_server_allows_them() -> None:
    def notes(**more: Any) -> tuple[str, ...]:
        node = {"type": "object", "properties": {"a": {"type": "string"}}, **more}
        return compiled("gemini", {"type": "object", "properties": {"x": node}}).notes

    assert notes() == notes(additionalProperties=False) == ()
    assert "may have members that are not declared" in notes(additionalProperties={"type": "string"})[0]


def test_a_huge_description_is_cut_but_not_its_hint() -> None:
    written = member("gemini", {"type": "string", "description": "d" * 50_000, "pattern": "^h"})
    assert len(written["description"]) <= 4_096
    assert written["description"].endswith("… (pattern: ^h)")


def test_more_fixed_values_than_strict_takes_are_not_listed() -> None:
    values = [f"value {index}" for index in range(2_000)]
    written = member("openai-strict", {"type": "string", "enum": values})
    assert written["type"] == "string"
    assert "enum" not in written


def strict_enums(*counts: int, length: int = 4) -> list[bool]:
    """Whether each of these lists of distinct values is listed in one strict schema."""
    values = [[f"{number:0{length}}" for number in range(count)] for count in counts]
    names = [f"m{index}" for index in range(len(counts))]
    properties = {
        name: {"type": "string", "enum": listed} for name, listed in zip(names, values, strict=True)
    }
    original = {"type": "object", "properties": properties, "required": names}
    written = compiled("openai-strict", original).schema["properties"]
    return ["enum" in written[name] for name in names]


def test_a_strict_schema_lists_a_thousand_fixed_values_in_total() -> None:
    assert strict_enums(1_000) == [True]
    assert strict_enums(1_001) == [False]
    assert strict_enums(600, 400) == [True, True]
    assert strict_enums(600, 401, 400) == [True, False, True]


def test_a_strict_list_of_more_than_250_values_has_at_most_15000_characters() -> None:
    assert strict_enums(250, length=61) == [True]
    assert strict_enums(251, length=61) == [False]
    assert strict_enums(300, length=50) == [True]
    assert strict_enums(300, length=51) == [False]


def test_fixed_values_take_at_most_half_of_the_characters_of_a_strict_schema() -> None:
    assert strict_enums(200, 100, length=200) == [True, True]
    assert strict_enums(200, 101, 100, length=200) == [True, False, True]


def test_names_and_values_of_a_strict_schema_have_at_most_120000_characters() -> None:
    def named(length: int) -> dict[str, Any]:
        names = [f"{number:04}" + "n" * (length - 4) for number in range(100)]
        return {"type": "object", "properties": {name: {"type": "string"} for name in names}}

    assert len(compiled("openai-strict", named(1_200)).schema["properties"]) == 100
    with pytest.raises(SetAside, match="more than 120,000 characters"):
        compile_schema(named(1_201), "openai-strict")


def test_fixed_values_that_strict_does_not_list_are_named_in_the_description() -> None:
    node = {"type": "integer", "enum": [*range(1_001)]}
    written = member("openai-strict", node)
    assert written["type"] == "integer"
    assert "one of 0, 1, 2" in written["description"]
    assert through("openai-strict", node, 7) == 7


def test_strict_writes_what_lies_deeper_than_ten_levels_as_json_text() -> None:
    node: dict[str, Any] = {"type": "string"}
    value: Any = "leaf"
    for _ in range(14):
        node = {"type": "object", "properties": {"in": node}, "required": ["in"]}
        value = {"in": value}
    tool = compiled("openai-strict", node)
    deep = value
    for _ in range(9):
        deep = deep["in"]
    deep["in"] = json.dumps(deep["in"])
    sent = json.loads(json.dumps(value))
    deep["in"] = json.loads(deep["in"])
    assert tool.back(sent) == value


# Many tools


def test_one_bad_tool_is_set_aside_and_the_others_stay() -> None:
    tools = [
        Tool(name="good", server="s", remote_name="good", input_schema=TYPICAL),
        Tool(name="bad", server="s", remote_name="bad", input_schema={"not": {}}),
    ]
    done, aside = compile_tools(tools, "openai")
    assert [*done] == ["good"]
    assert aside == {"bad": "its schema allows no arguments at all"}


@pytest.mark.parametrize("never", [{}, True])
def test_a_schema_that_excludes_everything_leaves_no_arguments(never: Any) -> None:
    with pytest.raises(SetAside):
        compile_schema({"not": never}, "openai")


def test_a_schema_that_excludes_nothing_is_kept() -> None:
    compiled = compile_schema(
        {"type": "object", "properties": {"a": {"not": False, "type": "string"}}}, "openai"
    )
    assert "a" in compiled.schema["properties"]


# References and limits


def test_a_pointer_may_lead_into_a_list() -> None:
    references = References({"anyOf": [{"type": "string"}, True], "a/b": {"c~d": {"type": "null"}}})
    assert references.find("#/anyOf/0") == {"type": "string"}
    assert references.find("#/anyOf/1") is True
    assert references.find("#/a~1b/c~0d") == {"type": "null"}
    for nowhere in ("#/anyOf/2", "#/anyOf/-1", "#/anyOf/x", "#/none", "other.json"):
        assert references.find(nowhere) is None


@pytest.mark.parametrize("index", ["0000009", "000000" + "9" * 5000, "9" * 5000])
def test_a_pointer_to_an_absurd_index_leaves_the_other_tools_usable(index: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "x": {"$ref": f"#/properties/y/anyOf/{index}"},
            "y": {"anyOf": [{"type": "string"}]},
        },
    }
    tools = [
        Tool(name=name, server="s", remote_name=name, description="", input_schema=one)
        for name, one in (("evil", schema), ("good", {"type": "object"}))
    ]
    assert "good" in compile_tools(tools, "openai")[0]


def test_a_tuple_without_a_rule_for_further_items_has_any_length() -> None:
    assert "maxItems" not in member("anthropic", {"type": "array", "items": [{"type": "string"}]})


def test_a_note_shows_at_most_40_characters_of_a_name() -> None:
    notes = compiled("anthropic", {"type": "object", "properties": {"n" * 50: 7}}).notes
    assert [note for note in notes if "n" * 40 in note]
    assert not [note for note in notes if "n" * 41 in note]


def test_a_description_that_is_not_text_is_noted() -> None:
    def notes(description: Any) -> tuple[str, ...]:
        return compiled("anthropic", {"type": "object", "description": description}).notes

    assert notes("Words.") == ()
    assert notes(7) == ("the schema has a description that is not text",)


@pytest.mark.parametrize(("step", "kept"), [(0.5, True), (1, True), (0, False), (-2, False)])
def test_a_multiple_is_kept_if_it_is_above_0(step: float, kept: bool) -> None:
    assert ("multipleOf" in member("anthropic", {"type": "number", "multipleOf": step})) == kept


@pytest.mark.parametrize(("sent", "received"), [("7", 7), ("7.5", 7.5), ("true", "true"), ("{}", {})])
def test_json_text_is_parsed_if_the_server_takes_its_type(sent: str, received: Any) -> None:
    assert through("plain", {"type": ["number", "string", "object"]}, sent) == received
