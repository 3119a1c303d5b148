"""Shapes: limits of a schema, which values fit, and union and intersection of alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.schema import shapes
from mooring.core.schema.shapes import (
    NEVER,
    OPEN,
    Alt,
    Budget,
    SetAside,
    Shape,
    check,
    finite,
    fits,
    join,
    kind_of,
    meet,
    merge,
    merged_by_kind,
    value_key,
)

STRING, INTEGER, NUMBER = Alt(kind="string"), Alt(kind="integer"), Alt(kind="number")


def shape(*alts: Alt, **more: Any) -> Shape:
    return Shape(alts=alts, **more)


def thing(required: tuple[str, ...] = (), extra: Shape | None = None, **fields: Shape) -> Alt:
    return Alt(kind="object", fields=fields, required=required, extra=extra)


def kinds(one: Shape) -> list[str]:
    return [alt.kind for alt in one.alts]


def both(one: Shape, other: Shape) -> Shape:
    return meet(one, other, Budget(), 0)


# --- limits


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels - 1):
        found = [found]
    return found


def test_a_budget_gives_exactly_as_many_subschemas_as_it_has() -> None:
    budget = Budget(2)
    budget.spend(0)
    budget.spend(shapes.DEPTH)
    with pytest.raises(SetAside, match="more than 5,000 subschemas"):
        budget.spend(0)
    with pytest.raises(SetAside, match="more than 64 levels"):
        Budget().spend(shapes.DEPTH + 1)


def test_a_schema_may_be_nested_as_deeply_as_the_limit_says() -> None:
    assert check(nested(shapes.NESTING)) is False
    with pytest.raises(SetAside, match="nested more than"):
        check(nested(shapes.NESTING + 1))


def test_a_schema_may_hold_as_many_values_as_the_limit_says() -> None:
    check([1] * (shapes.VALUES - 1))
    with pytest.raises(SetAside, match="more than 50,000 values"):
        check([1] * shapes.VALUES)
    with pytest.raises(SetAside, match="more than 50,000 values"):
        check([[1] * (shapes.VALUES - 2), 1])


def test_names_and_texts_count_towards_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "LENGTH", 100)
    check("x" * 92)
    check({"x" * 84: 1})
    for large in ("x" * 93, {"x" * 85: 1}, {"a": "x" * 84}, [1] * 13):
        with pytest.raises(SetAside, match="larger than"):
            check(large)


def test_a_schema_that_is_not_json_is_set_aside_with_the_type_that_it_holds() -> None:
    with pytest.raises(SetAside, match="int as a name"):
        check({1: "x"})  # pyright: ignore
    with pytest.raises(SetAside, match="it holds a set"):
        check([{"a": set[int]()}])
    assert check({"a": [None, True, 1, 1.5, "x"]}) is False


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_references_are_found_at_any_depth(word: str) -> None:
    assert check({"a": [{word: "#"}], "b": {"c": 1}})
    assert not check({"a": [{"$id": word}]})


def test_only_numbers_that_every_parser_reads_are_finite() -> None:
    most = int(shapes._LARGEST)
    for value in (most, -most, 0, "x", None, True, [1, {"a": 2.5}]):
        assert finite(value)
    for value in (10 * most, -10 * most, float("nan"), float("inf"), [float("nan")], {"a": [10 * most]}):
        assert not finite(value)


# --- values


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"), (True, "boolean"), (1, "integer"), (2.0, "integer"), (2.5, "number"),
        ("1", "string"), ({}, "object"), ([], "array"),
    ],
)  # fmt: skip
def test_each_value_has_the_narrowest_type(value: Any, kind: str) -> None:
    assert kind_of(value) == kind


def test_equal_json_values_have_equal_keys() -> None:
    assert value_key(1) == value_key(1.0)
    assert len({value_key(value) for value in (1, True, 1.5, "1", None)}) == 5


@pytest.mark.parametrize(
    ("facets", "inside", "outside"),
    [
        ({"minimum": 2}, [2, 2.5], [1, 1.9]),
        ({"maximum": 2}, [2, -1], [2.5, 3]),
        ({"exclusiveMinimum": 2}, [2.1], [2, 1]),
        ({"exclusiveMaximum": 2}, [1.9], [2, 3]),
        ({"minimum": 0, "maximum": 1}, [0, 1], [-1, 2]),
    ],
)
def test_bounds_of_numbers_are_checked(facets: Any, inside: list[Any], outside: list[Any]) -> None:
    alt = Alt(kind="number", facets=facets)
    assert all(fits(alt, value) for value in inside)
    assert not any(fits(alt, value) for value in outside)


@pytest.mark.parametrize(
    ("kind", "noun", "of_size"),
    [
        ("string", "Length", lambda n: "x" * n),
        ("array", "Items", lambda n: [0] * n),
        ("object", "Properties", lambda n: {str(i): 0 for i in range(n)}),
    ],
)
def test_sizes_are_checked(kind: Any, noun: str, of_size: Any) -> None:
    alt = Alt(kind=kind, facets={f"min{noun}": 1, f"max{noun}": 2}, extra=OPEN)
    assert [fits(alt, of_size(n)) for n in range(4)] == [False, True, True, False]
    assert fits(Alt(kind=kind, facets={f"max{noun}": 0}, extra=OPEN), of_size(0))


def test_facets_of_other_types_do_not_matter() -> None:
    facets = {"minLength": 2, "minimum": 2}
    assert fits(Alt(kind="boolean", facets=facets), False)
    assert fits(Alt(kind="null", facets=facets), None)
    assert fits(Alt(kind="any", facets=facets), 1)


def test_a_value_fits_its_type_and_an_integer_is_a_number() -> None:
    assert fits(NUMBER, 1)
    assert fits(NUMBER, 1.5)
    assert fits(INTEGER, 1.0)
    assert not fits(INTEGER, 1.5)
    assert not fits(STRING, 1)
    assert not fits(NUMBER, True)
    assert not fits(NUMBER, "1")


def test_a_fixed_value_must_be_of_the_same_type() -> None:
    alt = Alt(kind="integer", values=(1, 2))
    assert fits(alt, 1.0)
    assert not fits(alt, 3)
    assert not fits(Alt(kind="boolean", values=(True,)), 1)
    assert not fits(Alt(kind="number", values=(True,)), 1)


def test_every_item_of_an_array_must_fit() -> None:
    alt = Alt(kind="array", items=shape(STRING, INTEGER))
    assert fits(alt, ["a", 1])
    assert not fits(alt, ["a", None])
    assert fits(Alt(kind="array"), [None])


def test_an_object_needs_its_required_members_and_no_others_than_allowed() -> None:
    closed = thing(("a",), a=shape(STRING), b=shape(INTEGER))
    assert fits(closed, {"a": "x"})
    assert fits(closed, {"a": "x", "b": 1})
    assert not fits(closed, {"b": 1})
    assert not fits(closed, {"a": 1})
    assert not fits(closed, {"a": "x", "c": 1})
    assert fits(thing(extra=shape(INTEGER)), {"c": 1})
    assert not fits(thing(extra=shape(INTEGER)), {"c": "x"})


def test_a_merged_object_fits_only_what_one_of_its_options_allows() -> None:
    merged = merge([thing(("a",), a=shape(STRING)), thing(("b",), b=shape(STRING))])
    assert fits(merged, {"a": "x"})
    assert fits(merged, {"b": "x"})
    assert not fits(merged, {})
    assert not fits(merged, {"a": "x", "b": "x"})


def test_a_comparison_that_takes_too_many_steps_counts_as_fitting() -> None:
    alt = Alt(kind="array", items=shape(STRING))
    assert not fits(alt, [*["x"] * 19_998, 1])
    assert fits(alt, [*["x"] * 20_000, 1])


# --- union


def test_the_union_of_nothing_and_of_an_open_shape_is_open() -> None:
    assert join([]) is OPEN
    assert join([shape(STRING), OPEN]) is OPEN
    named = shape(Alt(kind="any"), text={"title": "Any"})
    assert join([shape(STRING), OPEN, named]) is named
    text = shape(STRING, text={"title": "Text"})
    assert join([text, OPEN]) is OPEN


def test_the_union_of_one_shape_is_this_shape() -> None:
    one = shape(STRING)
    assert join([one, one]) is one


def test_equal_alternatives_come_once_and_different_ones_stay() -> None:
    short = Alt(kind="string", facets={"maxLength": 3})
    found = join([shape(Alt(kind="string")), shape(Alt(kind="string")), shape(short), shape(INTEGER)])
    assert [(alt.kind, dict(alt.facets)) for alt in found.alts] == [
        ("string", {}), ("string", {"maxLength": 3}), ("integer", {}),
    ]  # fmt: skip
    lists = [shape(Alt(kind="array", items=shape(STRING))), shape(Alt(kind="array", items=shape(INTEGER)))]
    assert kinds(join(lists)) == ["array", "array"]
    objects = [shape(thing(a=shape(STRING))), shape(thing(b=shape(STRING))), shape(thing(extra=OPEN))]
    assert len(join(objects).alts) == 3
    raw = {"type": "array"}
    again = [shape(Alt(kind="array", items=shape(STRING)), raw=raw) for _ in range(2)]
    assert len(join(again).alts) == 1


def test_fixed_values_of_one_type_come_together_without_repeats() -> None:
    found = join(
        [shape(Alt(kind="integer", values=(1, 2))), shape(Alt(kind="integer", values=(2.0, 3))),
         shape(Alt(kind="string", values=("1",)))]
    )  # fmt: skip
    assert [(alt.kind, alt.values) for alt in found.alts] == [("integer", (1, 2, 3)), ("string", ("1",))]
    assert found.alts[0].raw is None


def test_fixed_values_with_a_text_of_their_own_stay_apart() -> None:
    one = shape(Alt(kind="string", values=("a",)), text={"title": "A", "default": "a"})
    other = shape(Alt(kind="string", values=("b",)), text={"description": "B"})
    found = join([one, other])
    assert [dict(alt.text) for alt in found.alts] == [{"title": "A"}, {"description": "B"}]


def test_only_the_first_alternative_of_a_branch_carries_its_text() -> None:
    found = join([shape(STRING, INTEGER, text={"title": "T"}), shape(NUMBER)])
    assert [dict(alt.text) for alt in found.alts] == [{"title": "T"}, {}, {}]


def test_a_union_is_vague_or_mixed_if_a_part_is() -> None:
    plain = shape(STRING)
    assert not join([plain, shape(INTEGER)]).vague
    assert not join([plain, shape(INTEGER)]).mixed
    assert join([plain, shape(INTEGER, vague=True)]).vague
    assert join([plain, shape(INTEGER, mixed=True)]).mixed
    assert join([plain, shape(INTEGER)], mixed=True).mixed


# --- intersection


def test_the_intersection_with_an_open_shape_is_the_other_one_with_both_texts() -> None:
    text = shape(STRING, text={"title": "T"}, raw={"type": "string"})
    for found in (both(text, OPEN), both(OPEN, text)):
        assert kinds(found) == ["string"]
        assert found.text == {"title": "T"}
        assert found.raw is None
    named = shape(Alt(kind="any"), text={"title": "Other", "description": "D"})
    assert both(text, named).text == {"title": "T", "description": "D"}


def test_an_integer_and_a_number_meet_as_an_integer() -> None:
    assert kinds(both(shape(INTEGER), shape(NUMBER))) == ["integer"]
    assert kinds(both(shape(NUMBER), shape(INTEGER))) == ["integer"]
    assert kinds(both(shape(NUMBER), shape(NUMBER))) == ["number"]
    assert kinds(both(shape(STRING), shape(NUMBER))) == []
    assert kinds(both(shape(STRING, INTEGER), shape(INTEGER, Alt(kind="null")))) == ["integer"]


def test_types_that_are_only_implied_do_not_exclude_others() -> None:
    vague = shape(Alt(kind="string", facets={"minLength": 1}), vague=True)
    found = both(vague, shape(STRING, INTEGER))
    assert [(alt.kind, dict(alt.facets)) for alt in found.alts] == [
        ("string", {"minLength": 1}), ("integer", {}),
    ]  # fmt: skip
    assert not found.vague
    assert both(vague, vague).vague
    assert kinds(both(shape(STRING, INTEGER), vague)) == ["string", "integer"]
    assert kinds(both(shape(NUMBER), shape(INTEGER, vague=True))) == ["integer"]


def test_the_tighter_bound_of_both_sides_applies() -> None:
    one = Alt(kind="number", facets={"minimum": 1, "maximum": 9, "pattern": "a"})
    other = Alt(kind="number", facets={"minimum": 2, "maximum": 8, "pattern": "b", "exclusiveMinimum": 0})
    for found in (both(shape(one), shape(other)), both(shape(other), shape(one))):
        facets = dict(found.alts[0].facets)
        assert (facets["minimum"], facets["maximum"], facets["exclusiveMinimum"]) == (2, 8, 0)
    assert both(shape(one), shape(other)).alts[0].facets["pattern"] == "a"


def test_values_of_both_sides_remain_if_the_rest_allows_them() -> None:
    def left(one: Alt, other: Alt) -> Any:
        found = [both(shape(one), shape(other)).alts, both(shape(other), shape(one)).alts]
        values = [alts[0].values if alts else () for alts in found]
        assert values[0] == values[1]
        return values[0]

    fixed = Alt(kind="integer", values=(1, 2, 3))
    assert left(fixed, Alt(kind="integer", values=(2.0, 3, 4))) in ((2, 3), (2.0, 3))
    assert left(fixed, Alt(kind="integer", values=(4,))) == ()
    assert left(fixed, Alt(kind="integer")) == (1, 2, 3)
    assert left(fixed, Alt(kind="number")) == (1, 2, 3)
    assert left(fixed, Alt(kind="number", facets={"minimum": 2})) == (2, 3)
    assert left(Alt(kind="number", values=(1, 1.5)), Alt(kind="integer")) == (1,)
    lists = Alt(kind="array", values=(["a"], [1]))
    assert left(lists, Alt(kind="array", items=shape(STRING))) == (["a"],)
    objects = Alt(kind="object", values=({"a": 1}, {"a": "x"}), extra=OPEN)
    assert left(objects, thing(a=shape(INTEGER))) == ({"a": 1},)
    assert both(shape(INTEGER), shape(INTEGER)).alts[0].values is None


def test_items_meet_when_both_sides_have_some() -> None:
    texts = Alt(kind="array", items=shape(STRING))
    for found in (both(shape(texts), shape(Alt(kind="array"))), both(shape(Alt(kind="array")), shape(texts))):
        assert found.alts[0].items is texts.items
    either = Alt(kind="array", items=shape(STRING, INTEGER))
    assert kinds(both(shape(texts), shape(either)).alts[0].items or NEVER) == ["string"]


def test_objects_meet_member_by_member() -> None:
    one = thing(("a",), a=shape(STRING, INTEGER), b=shape(STRING), extra=OPEN)
    other = thing(("c",), a=shape(STRING), c=shape(INTEGER), extra=shape(STRING))
    found = both(shape(one), shape(other)).alts[0]
    assert {name: kinds(field) for name, field in found.fields.items()} == {
        "a": ["string"], "b": ["string"], "c": ["integer"],
    }  # fmt: skip
    assert found.required == ("a", "c")
    assert kinds(found.extra or NEVER) == ["string"]


def test_a_member_that_nothing_satisfies_is_dropped_unless_it_is_required() -> None:
    found = both(shape(thing(a=shape(STRING), extra=OPEN)), shape(thing(a=shape(INTEGER), extra=OPEN)))
    assert dict(found.alts[0].fields) == {}
    for one, other in ((("a",), ()), ((), ("a",))):
        left, right = thing(one, a=shape(STRING)), thing(other, a=shape(INTEGER))
        assert both(shape(left), shape(right)).alts == ()


def test_an_intersection_is_closed_if_one_side_is() -> None:
    closed, opened = shape(thing(a=shape(STRING))), shape(thing(b=shape(STRING), extra=OPEN))
    for found in (both(closed, opened), both(opened, closed)):
        assert found.alts[0].extra is None
        assert set(found.alts[0].fields) == {"a", "b"}
    assert both(opened, opened).alts[0].extra is not None


def test_additional_properties_are_stated_if_one_side_states_them() -> None:
    stated, silent = Alt(kind="object", extra=OPEN, stated=True), Alt(kind="object", extra=OPEN)
    assert both(shape(stated), shape(silent)).alts[0].stated
    assert both(shape(silent), shape(stated)).alts[0].stated
    assert not both(shape(silent), shape(silent)).alts[0].stated


def test_one_object_and_several_become_one_with_the_exact_options() -> None:
    base = thing(("k",), k=shape(STRING), extra=OPEN)
    variants = shape(thing(("a",), a=shape(STRING), extra=OPEN), thing(("b",), b=shape(STRING), extra=OPEN))
    for found in (both(shape(base), variants), both(variants, shape(base))):
        assert kinds(found) == ["object"]
        assert [set(option.required) for option in found.alts[0].options] == [{"k", "a"}, {"k", "b"}]
        assert found.alts[0].required == ("k",)
    with_text = both(shape(base), shape(*variants.alts))
    assert kinds(with_text) == ["object"]
    assert len(both(variants, variants).alts) == 4
    merged = merge(list(variants.alts))
    exact = both(shape(base), shape(merged)).alts[0]
    assert [set(option.required) for option in exact.options] == [{"k", "a"}, {"k", "b"}]
    assert both(shape(base), shape(variants.alts[0])).alts[0].options == ()


def test_nesting_below_the_limit_is_counted_for_items_and_members() -> None:
    for make in (lambda inner: Alt(kind="array", items=inner), lambda inner: thing(a=inner, extra=OPEN)):
        inner = shape(STRING), shape(STRING, INTEGER)
        for _ in range(shapes.DEPTH):
            inner = shape(make(inner[0])), shape(make(inner[1]))
        meet(*inner, Budget(), 0)
        with pytest.raises(SetAside, match="levels deep"):
            meet(*inner, Budget(), 1)


# --- merging


def test_a_merged_object_requires_what_all_require_and_keeps_common_facets() -> None:
    one = Alt(kind="object", fields={"a": shape(STRING), "b": shape(STRING)}, required=("a", "b"),
              facets={"minProperties": 1, "maxProperties": 3})  # fmt: skip
    other = Alt(kind="object", fields={"a": shape(INTEGER)}, required=("a",), stated=True, extra=OPEN,
                facets={"minProperties": 1, "maxProperties": 4})  # fmt: skip
    found = merge([one, other])
    assert found.required == ("a",)
    assert dict(found.facets) == {"minProperties": 1}
    assert kinds(found.fields["a"]) == ["string", "integer"]
    assert found.fields["a"].mixed
    assert found.stated
    assert found.extra is OPEN
    assert found.options == (one, other)
    assert merge([one, one]).extra is None
    assert not merge([one, one]).stated


def test_a_merged_object_forgets_its_options_when_there_are_too_many() -> None:
    objects = [thing((str(number),), extra=OPEN) for number in range(33)]
    assert len(merge(objects[:32]).options) == 32
    assert merge(objects).options == ()


def test_a_merged_member_keeps_the_first_text_that_an_object_gives_it() -> None:
    one, other = shape(STRING), shape(STRING, text={"title": "T", "default": "d"})
    assert merge([thing(a=one), thing(b=one), thing(a=shape(STRING, text={"default": "d"}))]).fields[
        "a"
    ].text == {"default": "d"}
    assert merge([thing(a=other), thing(a=other)]).fields["a"].text == {"title": "T", "default": "d"}
    assert merge([thing(a=one), thing(a=shape(INTEGER, text={"default": 1}))]).fields["a"].text == {}


def test_arrays_and_objects_are_blended_and_other_alternatives_stay() -> None:
    texts, numbers = Alt(kind="array", items=shape(STRING)), Alt(kind="array", items=shape(NUMBER))
    fixed = Alt(kind="array", values=([1],))
    found = merged_by_kind([texts, STRING, numbers, fixed, thing(a=shape(STRING)), thing(b=shape(STRING))])
    assert [alt.kind for alt in found] == ["string", "array", "array", "object"]
    assert found[1] is fixed
    assert kinds(found[2].items or NEVER) == ["string", "number"]
    assert set(found[3].fields) == {"a", "b"}
    assert merged_by_kind([texts, STRING]) == [STRING, texts]
    assert (merged_by_kind([texts, Alt(kind="array")])[0].items or NEVER).open
