"""The estimate of tokens, and JSON that never fails."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mooring.core.text import dumps, estimate, tool_cost
from mooring.core.types import EMPTY, Tool


def test_four_ascii_characters_or_one_other_make_a_token() -> None:
    assert estimate("a" * 40) == 10
    assert estimate("天气预报") == 4
    assert estimate("abcd天") == 2
    assert estimate("") == 0


@given(st.text(), st.text())
def test_more_text_never_costs_less(one: str, two: str) -> None:
    assert estimate(one + two) >= max(estimate(one), estimate(two))


def test_a_tool_costs_its_definition_as_json() -> None:
    tool = Tool(name="go", server="s", remote_name="go", description="Go.", input_schema={"type": "object"})
    text = '{"name":"go","description":"Go.","input_schema":{"type":"object"}}'
    assert tool_cost(tool) == estimate(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(json_values)
def test_json_can_be_read_back_and_encoded(value) -> None:
    text = dumps(value)
    text.encode()
    json.loads(text)


def test_what_is_not_json_is_named_and_not_raised_over() -> None:
    cycle: list = []
    cycle.append(cycle)
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert json.loads(dumps({"a": EMPTY, "b": object()})) == {"a": {}, "b": "<object>"}
    for value in (cycle, deep, {1: 2, (3,): 4}):
        assert "error" in json.loads(dumps(value))
    assert json.loads(dumps("\ud800")) == "?"
