"""An unchanged definition keeps its object in the next listing; a changed one never does."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.json_values import CHARACTERS, heavy, recalled, remember, shared
from mooring.core.types import Snapshot, Tool

scalars = st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.floats(-1, 2), st.text(max_size=3))
schemas = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner)
    ),
    max_size=3,
)
tools = st.lists(
    st.builds(
        lambda name, text, schema: Tool(
            name=name, server="s", remote_name=name, description=text, input_schema=schema
        ),
        st.sampled_from("abc"),
        st.text(max_size=3),
        schemas,
    ),
    max_size=4,
)


def of(given_tools: Any) -> Snapshot:
    return Snapshot(server="s", tools=tuple(given_tools))


@given(tools, tools)
def test_what_is_shared_says_the_same_as_what_was_listed(known: list[Tool], listed: list[Tool]) -> None:
    got = shared(of(known), of(listed))
    assert sorted(map(repr, got.tools)) == sorted(map(repr, listed))  # `repr` tells 1 from True


@given(tools)
def test_a_list_said_again_in_another_order_is_the_list_that_was_known(known: list[Tool]) -> None:
    distinct = list({tool.name: tool for tool in known}.values())
    before = of(distinct)
    if distinct:
        again = [replace(tool, input_schema=deepcopy(tool.input_schema)) for tool in reversed(distinct)]
        assert shared(before, of(again)).tools is before.tools


@pytest.mark.parametrize(("old", "new"), [(1, True), (0, False), (1, 1.0), ({"a": 1}, {"a": True})])
def test_values_that_python_calls_equal_are_distinguished(old: Any, new: Any) -> None:
    tool = Tool(name="t", server="s", remote_name="t", input_schema={"default": old})
    other = replace(tool, input_schema={"default": new})
    assert shared(of([tool]), of([other])).tools[0] is other


def test_a_schema_nested_beyond_reason_is_taken_as_it_was_listed() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"a": deep}
    tool = Tool(name="t", server="s", remote_name="t", input_schema=deep)
    other = replace(tool, input_schema={"a": deep["a"]})
    assert shared(of([tool]), of([other])).tools[0] is other


def test_everything_else_is_as_it_was_listed() -> None:
    tool = Tool(name="t", server="s", remote_name="t")
    got = shared(of([tool]), Snapshot(server="s", instructions="new", tools=(replace(tool),)))
    assert got.instructions == "new"
    assert got.tools[0] is tool


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ([], 0),
        ([1, 2, 3], 3),
        ({"a": 1, "b": [1, 2]}, 4),
        ([[], [[]]], 3),
        ("x" * CHARACTERS, 1),
        ({"a": "x" * (3 * CHARACTERS)}, 4),
    ],
)
def test_a_value_is_heavy_from_one_more_than_the_limit(value: Any, size: int) -> None:
    assert not heavy(value, size)
    assert size == 0 or heavy(value, size - 1)


def test_a_remembered_result_belongs_to_one_object_and_one_question() -> None:
    class Thing:
        pass

    def ask(_: Thing) -> str:
        return "answer"

    def other(_: Thing) -> str:
        return "other"

    thing, twin = Thing(), Thing()
    remember(ask, thing)
    assert recalled(ask, thing) == ("answer",)
    assert recalled(other, thing) is None
    assert recalled(ask, twin) is None
