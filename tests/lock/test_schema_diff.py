"""Changes of a schema: breaking unless it still accepts everything that callers sent before."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mooring.lock.schema_diff import schema_differences
from tests.lab.offers import quick


def weights(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    return {found.path: found.weight for found in schema_differences(before, after, "input")}


def gravest(before: dict[str, Any], after: dict[str, Any]) -> str:
    order = ["same", "text", "compatible", "breaking"]
    return max(["same", *weights(before, after).values()], key=order.index)


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (props(a=STRING), props(a=STRING, b=STRING)),
        ({**props(a=STRING), "required": ["a"]}, props(a=STRING)),
        (props(a={"enum": ["x"]}), props(a={"enum": ["y", "x"]})),
        (props(a={"const": "x"}), props(a={"enum": ["y", "x"]})),
        (props(a={"type": "integer"}), props(a={"type": "number"})),
        (props(a=STRING), props(a={"type": ["null", "string"]})),
        (props(a={"type": "string", "maxLength": 5}), props(a={"type": "string", "maxLength": 9})),
        (props(a={"type": "string", "pattern": "x"}), props(a=STRING)),
        (props(a={"anyOf": [STRING]}), props(a={"anyOf": [{"type": "null"}, STRING]})),
        ({**props(), "additionalProperties": False}, props()),
        ({**props(), "additionalProperties": False}, {**props(a=STRING), "additionalProperties": False}),
        (props(a=STRING), props()),
        (props(a={"default": 1}), props(a={"default": 2})),
        ({"$defs": {"a": props(x=STRING)}}, {"$defs": {"a": props(x=STRING, y=STRING), "b": STRING}}),
        ({"patternProperties": {"^x": {"minimum": 2}}}, {"patternProperties": {"^x": {"minimum": 1}}}),
        ({"allOf": [{"minimum": 2}, STRING]}, {"allOf": [{"minimum": 1}, STRING]}),
        ({"anyOf": [{"minimum": 2}, STRING]}, {"anyOf": [{"minimum": 1}, STRING]}),
        ({"uniqueItems": True}, {"uniqueItems": False}),
    ],
)
def test_a_schema_that_accepts_all_it_did_is_compatible(before: Any, after: Any) -> None:
    assert gravest(before, after) == "compatible"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (props(a=STRING), {**props(a=STRING), "required": ["a"]}),
        ({**props(a=STRING), "additionalProperties": False}, {**props(), "additionalProperties": False}),
        (props(a={"enum": ["x", "y"]}), props(a={"enum": ["x"]})),
        (props(a={}), props(a={"enum": ["x"]})),
        (props(a=STRING), props(a={"type": "integer"})),
        (props(a={"type": "number"}), props(a={"type": "integer"})),
        (props(a={"minimum": 1}), props(a={"minimum": 2})),
        (props(a={"minimum": True}), props(a={"minimum": 0})),
        (props(a={"enum": "x"}), props(a={"enum": ["x"]})),
        (props(a={"oneOf": [STRING]}), props(a={"oneOf": [STRING, {"maxLength": 3}]})),
        (props(a={"not": STRING}), props(a={"not": {}})),
        (props(), {**props(), "additionalProperties": False}),
        (props(a={"$ref": "#/a"}), props(a={"$ref": "#/b"})),
        (props(a={"x-new": 1}), props(a={"x-new": 2})),
        ({"$defs": {"a": STRING}}, {"$defs": {}}),
        ({"patternProperties": {}}, {"patternProperties": {"^x": STRING}}),
        ({"anyOf": [STRING, {"type": "null"}]}, {"anyOf": [STRING]}),
        ({"type": [1]}, {"type": [1, 2]}),
        ({"properties": []}, props(a=STRING)),
        ({"unevaluatedProperties": False, **props()}, {"unevaluatedProperties": False, **props(a=STRING)}),
        ({**props(), "additionalProperties": STRING}, props(a={"type": "integer"})),
        (
            {**props(b=STRING), "allOf": [props(a=STRING)]},
            {**props(b=STRING), "allOf": [props(a=STRING, b={"type": "integer"})]},
        ),
        (
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"enum": [1]}}},
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"enum": [1, 2]}}},
        ),
    ],
)
def test_a_schema_that_may_refuse_what_it_accepted_is_breaking(before: Any, after: Any) -> None:
    assert gravest(before, after) == "breaking"


def test_wording_alone_is_text_however_deep_it_stands() -> None:
    before = props(a={"oneOf": [{"description": "one"}]}, b={"title": "B", "items": {"examples": [1]}})
    after = props(a={"oneOf": [{"description": "two"}]}, b={"title": "C", "items": {"examples": [2]}})
    assert set(weights(before, after).values()) == {"text"}


def test_branches_in_another_order_are_text() -> None:
    assert gravest({"anyOf": [STRING, {}]}, {"anyOf": [{}, STRING]}) == "text"


def test_a_place_is_named_by_its_path() -> None:
    before, after = props(a=STRING), props(a={"type": "integer"}, b=STRING)
    assert weights(before, after) == {
        "input.properties.a.type": "breaking",
        "input.properties.b": "compatible",
    }


def test_data_that_looks_like_a_keyword_keeps_its_order() -> None:
    assert gravest({"default": {"required": ["a", "b"]}}, {"default": {"required": ["b", "a"]}}) != "same"


def test_a_number_is_not_a_boolean() -> None:
    assert gravest({"enum": [1]}, {"enum": [True]}) == "breaking"


plain = st.sampled_from([None, True, 0, 1, 2, 1.5, "", "x", "xyz"])
small = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "object", ["string", "null"]]),
            "enum": st.lists(plain, min_size=1, max_size=3),
            "const": plain,
            "minimum": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "minLength": st.integers(0, 2),
            "description": st.sampled_from(["one", "two"]),
        },
    )
    | st.booleans(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["object", "string"]]),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from("ab"), inner, max_size=1),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "minProperties": st.integers(0, 2),
        },
    ),
    max_leaves=6,
)
instances = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def edited(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema and a near relative of it: independent ones would nearly always be breaking."""
    before = draw(small.filter(lambda schema: isinstance(schema, dict)))
    other = draw(small.filter(lambda schema: isinstance(schema, dict)))

    def mix(one: Any, two: Any) -> Any:
        if not (isinstance(one, dict) and isinstance(two, dict)):
            return draw(st.sampled_from([one, one, two]))
        return {
            key: mix(one[key], two[key]) if key in one and key in two else one.get(key, two.get(key))
            for key in [*one, *(key for key in two if key not in one)]
            if draw(st.integers(0, 5)) or (key in one and draw(st.booleans()))
        }

    return before, mix(before, other)


def declared(value: Any, schema: Any) -> bool:
    """Whether a value uses only properties that the schema names: what callers do."""
    if isinstance(value, dict):
        known = schema.get("properties", {}) if isinstance(schema, dict) else {}
        return all(name in known and declared(inner, known[name]) for name, inner in value.items())
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return all(not isinstance(inner, dict) or declared(inner, items) for inner in value)
    return True


@quick
@given(edited(), st.lists(instances, min_size=1, max_size=8))
def test_what_is_called_compatible_accepts_what_was_accepted(
    pair: tuple[dict[str, Any], dict[str, Any]], tries: list[Any]
) -> None:
    before, after = pair
    assume(gravest(before, after) != "breaking")
    old, new = jsonschema.Draft202012Validator(before), jsonschema.Draft202012Validator(after)
    for instance in tries:
        if declared(instance, before) and old.is_valid(instance):
            assert new.is_valid(instance)


@pytest.mark.parametrize(
    ("before", "after", "weight"),
    [
        ({"type": ["integer", "number"]}, {"type": "number"}, "compatible"),
        ({"type": "number"}, {"type": ["integer", "number"]}, "compatible"),
        ({"type": "number"}, {"type": "integer"}, "breaking"),
        ({"minimum": 1}, {"minimum": 0}, "compatible"),
        ({"minimum": 1}, {"minimum": 2}, "breaking"),
        ({"maximum": 1}, {"maximum": 2}, "compatible"),
        ({"maximum": 1}, {"maximum": 0}, "breaking"),
        ({"minimum": 1}, {"minimum": "0"}, "breaking"),
        ({"uniqueItems": True}, {"uniqueItems": False}, "compatible"),
        ({"uniqueItems": False}, {"uniqueItems": True}, "breaking"),
        ({"required": ["a", "b"]}, {"required": ["a"]}, "compatible"),
        ({"required": ["a"]}, {"required": ["a", "b"]}, "breaking"),
        ({"properties": {}}, {"properties": 1}, "breaking"),
        ({"properties": {"a": 1}}, {"properties": ["a"]}, "breaking"),
    ],
)
def test_a_keyword_that_accepts_at_least_as_much_is_compatible(
    before: dict[str, Any], after: dict[str, Any], weight: str
) -> None:
    assert gravest(before, after) == weight


def test_required_members_in_another_order_or_twice_are_the_same() -> None:
    both = props(a=STRING, b=STRING)
    for required in (["b", "a"], ["a", "b", "a"]):
        assert gravest({**both, "required": ["a", "b"]}, {**both, "required": required}) in (
            "same",
            "compatible",
        )


def test_a_reference_or_a_negation_alone_leaves_a_wider_limit_compatible() -> None:
    before, after = ({"type": "string", "maxLength": most} for most in (5, 9))
    for other in ({"$ref": "#/properties/a"}, {"not": {"const": 7}}):
        assert gravest(props(a=before, b=other), props(a=after, b=other)) == "compatible"
    assert (
        gravest(
            {**props(a=before, b={"not": {"$ref": "#/$defs/a"}}), "$defs": {"a": before}},
            {**props(a=before, b={"not": {"$ref": "#/$defs/a"}}), "$defs": {"a": after}},
        )
        == "breaking"
    )
