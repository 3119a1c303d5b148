"""JSON Schema: the same verdict as the library `jsonschema`, for every keyword and dialect."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from referencing.jsonschema import EMPTY_REGISTRY

from mooring.core.schema.validate import Unresolvable, Validator

DIALECTS: dict[str, Any] = {
    "http://json-schema.org/draft-04/schema#": Draft4Validator,
    "http://json-schema.org/draft-07/schema#": Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
}
NEWEST = "https://json-schema.org/draft/2020-12/schema"


def problem(schema: Any, value: Any) -> tuple[tuple[str | int, ...], str] | None:
    validator = Validator(schema, matches=lambda one, two: bool(re.search(one, two)), tick=lambda: None)
    found = validator.first(value)
    return None if found is None else (found.path, found.message)


def same(schema: dict[str, Any], value: Any, dialect: str = NEWEST) -> bool:
    """Whether the value fits, on which the library must agree."""
    whole = {"$schema": dialect, **schema}
    valid = DIALECTS[dialect](whole, registry=EMPTY_REGISTRY).is_valid(value)
    assert (problem(whole, value) is None) == valid, (whole, value)
    return valid


names = st.sampled_from(["a", "b", "ab", "c"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, 2.5, -1.0])
    | st.sampled_from(["", "a", "ab", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
small = st.integers(0, 3)
numbers = st.sampled_from([-1, 0, 1, 2, 0.5])
patterns = st.sampled_from(["^a", "b$", "c", "^$"])
kinds = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])


def parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": kinds | st.lists(kinds, min_size=1, max_size=2, unique=True),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": small,
        "maxLength": small,
        "pattern": patterns,
        "minItems": small,
        "maxItems": small,
        "minProperties": small,
        "maxProperties": small,
        "required": st.lists(names, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
        "dependentSchemas": st.dictionaries(names, inner, max_size=2),
        "properties": st.dictionaries(names, inner, max_size=2),
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "prefixItems": some,
        "items": inner,
        "contains": inner,
        "minContains": small,
        "maxContains": small,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(["#/$defs/x", "#y"]),
    }
    pairs = [st.tuples(st.just(key), found) for key, found in keywords.items()]
    return st.lists(st.one_of(pairs), max_size=3).map(dict)


schemas = st.recursive(st.booleans() | parts(st.booleans()), parts, max_leaves=6).map(
    lambda found: found if isinstance(found, dict) else {"allOf": [found]}
)


@settings(max_examples=400)
@given(schemas, values, st.sampled_from([{"type": "object"}, {"minLength": 1}, True]))
def test_the_newest_dialect_is_judged_as_the_library_judges_it(schema: Any, value: Any, named: Any) -> None:
    more = {"x": named, "z": {"$anchor": "y", **(named if isinstance(named, dict) else {})}}
    same({**schema, "$defs": more}, value)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_older_dialects_are_judged_as_the_library_judges_them(dialect: str, data: st.DataObject) -> None:
    inner = st.fixed_dictionaries(
        {}, optional={"type": kinds, "enum": st.lists(values, min_size=1, max_size=2)}
    )
    schema = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "type": kinds,
                "items": inner | (st.just({}) if dialect == NEWEST else st.lists(inner, max_size=2)),
                "additionalItems": inner,
                "dependencies": st.dictionaries(names, inner | st.lists(names, min_size=1, max_size=2)),
                "properties": st.dictionaries(names, inner, max_size=2),
                "additionalProperties": inner,
                "minimum": numbers,
                "exclusiveMinimum": st.booleans() if "draft-04" in dialect else numbers,
                "maximum": numbers,
                "exclusiveMaximum": st.booleans() if "draft-04" in dialect else numbers,
                "$ref": st.just("#/definitions/x"),
            },
        )
    )
    if "draft-04" in dialect:  # there they mean nothing without the limit
        schema |= {"minimum": schema.get("minimum", -9), "maximum": schema.get("maximum", 9)}
    if dialect == NEWEST or "2019" in dialect:
        schema.pop("dependencies", None)
    same({**schema, "definitions": {"x": data.draw(inner)}}, data.draw(values), dialect)


TREE = {
    "$id": "https://example.org/tree",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
STRICT = {
    "$id": "https://example.org/strict",
    "$dynamicAnchor": "node",
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {"tree": TREE},
}


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        (STRICT, {"children": [{"data": 1}]}, True),
        (STRICT, {"children": [{"daat": 1}]}, False),
        ({"$ref": "item", "$defs": {"a": {"$id": "item", "type": "integer"}}}, 1, True),
        ({"$ref": "item#/$defs/b", "$defs": {"a": {"$id": "item", "$defs": {"b": False}}}}, 1, False),
        ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}}, 1, False),
        ({"$ref": "#/allOf/0", "allOf": [{"type": "integer"}]}, 1, True),
        ({"type": "integer", "$ref": "#/$defs/a", "$defs": {"a": {"minimum": 3}}}, 2, False),
        ({"const": 1}, True, False),
        ({"const": 1}, 1.0, True),
        ({"enum": [[{"a": False}]]}, [{"a": 0}], False),
        ({"type": "integer"}, 2.0, True),
        ({"type": "number"}, True, False),
        ({"uniqueItems": True}, [1, 2, 1], False),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, {"a": 1, "b": 2}, False),
        (
            {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
            {"a": 1},
            True,
        ),
        (
            {"anyOf": [{"required": ["b"], "properties": {"b": True}}, True], "unevaluatedProperties": False},
            {"b": 1},
            True,
        ),
        (
            {"patternProperties": {"^x": True}, "unevaluatedProperties": {"type": "string"}},
            {"x1": 1, "y": 2},
            False,
        ),
        ({"if": {"properties": {"a": {"const": 1}}}, "unevaluatedProperties": False}, {"a": 1}, True),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"properties": {"a": True}}},
                "unevaluatedProperties": False,
            },
            {"a": 1},
            True,
        ),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], False),
        ({"prefixItems": [True], "contains": {"const": 2}, "unevaluatedItems": False}, [1, 2], True),
        ({"allOf": [{"items": True}], "unevaluatedItems": False}, [1, 2], True),
    ],
)
def test_references_and_what_is_left_over(schema: dict[str, Any], value: Any, valid: bool) -> None:
    assert same(schema, value) is valid


@pytest.mark.parametrize(
    ("schema", "value", "path", "message"),
    [
        (
            {"properties": {"a": {"items": {"type": "null"}}}},
            {"a": [None, 1]},
            ("a", 1),
            "1 is not of type 'null'",
        ),
        ({"minLength": 1}, "", (), "'' should be non-empty"),
        ({"minLength": 3}, "ab", (), "'ab' is too short"),
        ({"maxItems": 1}, [1, 2], (), "[1, 2] is too long"),
        ({"exclusiveMaximum": 1}, 1, (), "1 is greater than or equal to the maximum of 1"),
        ({"const": 1}, 2, (), "1 was expected"),
        ({"multipleOf": 2}, 3, (), "3 is not a multiple of 2"),
        ({"anyOf": [{"type": "null"}]}, 3, (), "3 is not valid under any of the given schemas"),
        ({"not": {}}, 3, (), "3 should not be valid under {}"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, (), "'b' is a dependency of 'a'"),
    ],
)
def test_the_first_problem_has_its_place_and_its_words(
    schema: dict[str, Any], value: Any, path: tuple[str | int, ...], message: str
) -> None:
    assert problem(schema, value) == (path, message)
    error = next(iter(Draft202012Validator(schema).iter_errors(value)))
    assert (tuple(error.absolute_path), error.message) == (path, message)


@pytest.mark.parametrize("ref", ["#/nowhere", "#nobody", "https://example.org/other", "other.json#/a"])
def test_a_reference_out_of_the_schema_is_an_error(ref: str) -> None:
    with pytest.raises(Unresolvable):
        problem({"$ref": ref}, 1)


def test_a_circle_of_references_is_an_error() -> None:
    with pytest.raises(RecursionError):
        problem({"$ref": "#"}, 1)


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_a_recursive_reference_follows_the_outermost_anchor_only_from_an_anchor(
    outer: bool, inner: bool
) -> None:
    schema = {
        "$id": "https://example.com/outer",
        "$recursiveAnchor": outer,
        "$ref": "inner",
        "maxProperties": 1,
        "$defs": {
            "inner": {
                "$id": "https://example.com/inner",
                "$recursiveAnchor": inner,
                "properties": {"a": {"$recursiveRef": "#"}},
            }
        },
    }
    dialect = "https://json-schema.org/draft/2019-09/schema"
    fits = same(schema, {"a": {"a": 1, "b": 2}}, dialect)
    assert fits is not (outer and inner)


@pytest.mark.parametrize(
    ("schema", "fitting", "other"),
    [
        ({"maxItems": 2}, [[1, 2], "abc"], [[1, 2, 3]]),
        ({"minItems": 2}, [[1, 2], "a"], [[1]]),
        ({"maxLength": 2}, ["ab", [1, 2, 3]], ["abc"]),
        ({"minLength": 2}, ["ab", [1]], ["a"]),
        ({"maxProperties": 1}, [{"a": 1}, [1, 2]], [{"a": 1, "b": 1}]),
        ({"minProperties": 1}, [{"a": 1}, []], [{}]),
        ({"maximum": 2}, [2, "x"], [3]),
        ({"minimum": 2}, [2, "x"], [1]),
        ({"multipleOf": 0.5}, [1, 1.5, -2, "x"], [0.7, 1.25]),
        ({"multipleOf": 3}, [0, 3, 6.0], [1, 4]),
        ({"exclusiveMinimum": 2}, [3, "x"], [2, 1]),
        ({"exclusiveMaximum": 2}, [1, "x"], [2, 3]),
        (
            {"if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
             "then": {"properties": {"b": True}}, "else": {"properties": {"c": True}},
             "unevaluatedProperties": False},
            [{"a": 1, "b": 1}, {"c": 1}],
            [{"a": 1, "c": 1}, {"b": 1}, {"a": 2}],
        ),
        (
            {"dependentSchemas": {"a": {"properties": {"a": True, "b": True}}},
             "unevaluatedProperties": False},
            [{"a": 1, "b": 1}, {}],
            [{"b": 1}, {"a": 1, "c": 1}],
        ),
        (
            {"if": {"minItems": 2}, "then": {"prefixItems": [True, True]}, "unevaluatedItems": False},
            [[1, 2], []],
            [[1], [1, 2, 3]],
        ),
        (
            {"if": {"prefixItems": [{"const": 1}], "minItems": 1}, "else": {"items": True},
             "unevaluatedItems": False},
            [[1], [2, 3], []],
            [[1, 2]],
        ),
        (
            {"allOf": [{"prefixItems": [True], "unevaluatedItems": {"type": "string"}}],
             "unevaluatedItems": False},
            [[1], [1, "x"]],
            [[1, 2]],
        ),
        ({"allOf": [{"contains": {"const": 1}}], "unevaluatedItems": False}, [[1], [1, 1]], [[1, 2], []]),
    ],
)  # fmt: skip
def test_a_keyword_decides_at_its_border(
    schema: dict[str, Any], fitting: list[Any], other: list[Any]
) -> None:
    assert [same(schema, value) for value in fitting] == [True] * len(fitting)
    assert [same(schema, value) for value in other] == [False] * len(other)


def test_tuples_of_older_dialects_count_as_evaluated_items() -> None:
    old = "https://json-schema.org/draft/2019-09/schema"
    tuples = {"allOf": [{"items": [{"type": "integer"}]}], "unevaluatedItems": False}
    assert same(tuples, [1], old)
    assert not same(tuples, [1, 2], old)
    rest = {"allOf": [{"items": [True], "additionalItems": {"type": "string"}}], "unevaluatedItems": False}
    assert same(rest, [1, "x", "y"], old)
    assert not same(rest, [1, 2], old)


def test_a_dynamic_reference_finds_the_outermost_resource_that_has_the_anchor() -> None:
    schema = {
        "$id": "https://example.com/outer",
        "$ref": "list",
        "$defs": {
            "list": {
                "$id": "https://example.com/list",
                "$ref": "tree",
                "$defs": {"node": {"$dynamicAnchor": "node", "type": "integer"}},
            },
            "tree": {
                "$id": "https://example.com/tree",
                "properties": {"a": {"$dynamicRef": "#node"}},
                "$defs": {"node": {"$dynamicAnchor": "node", "type": "string"}},
            },
        },
    }
    assert same(schema, {"a": 1})
    assert not same(schema, {"a": "x"})


def test_an_item_that_nothing_evaluates_is_named_or_where_it_stands() -> None:
    tuple_of = {"prefixItems": [{}]}
    message = "Unevaluated items are not allowed (2 was unexpected)"
    assert problem({**tuple_of, "unevaluatedItems": False}, [1, 2]) == ((), message)
    found = problem({**tuple_of, "unevaluatedItems": {"type": "string"}}, [1, 2])
    assert found is not None
    assert found[0] == (1,)


@pytest.mark.parametrize("name", ["ab", "b"])
def test_a_property_that_fits_a_pattern_is_evaluated(name: str) -> None:
    schema = {"patternProperties": {"^a": {}}, "unevaluatedProperties": False}
    assert same(schema, {name: 1}) == (name == "ab")
