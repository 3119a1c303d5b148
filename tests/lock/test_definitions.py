"""Canonical form, hash and visible text of pinned definitions, at their limits."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from mooring.core.types import Prompt, Resource, ResourceTemplate, Tool
from mooring.lock.definitions import (
    DEPTH_LIMIT,
    HASH,
    LARGEST,
    canonical,
    condensed,
    definition,
    digest,
    first_of_each,
    is_pinnable,
    key_of,
    pinnable,
    visible_text,
    words,
)


def nested(levels: int) -> dict[str, Any]:
    """An object with `levels` levels of containers and a number inside."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def tool(**fields: Any) -> Tool:
    return Tool(**{"name": "n", "server": "s", "remote_name": "read", "input_schema": {}, **fields})


def test_the_canonical_text_sorts_keys_and_distinguishes_numbers_and_booleans() -> None:
    assert canonical({"b": 1, "a": [True, 1.0, None]}) == '{"a":[true,1.0,null],"b":1}'
    assert canonical("é") == '"\\u00e9"'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": object()}])
def test_a_value_that_is_not_json_has_no_canonical_text(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|Out of range"):
        canonical(value)


def test_a_definition_may_nest_to_the_limit_and_no_deeper() -> None:
    assert pinnable(nested(DEPTH_LIMIT)).count("{") == DEPTH_LIMIT
    with pytest.raises(ValueError, match=f"deeper than {DEPTH_LIMIT}"):
        pinnable(nested(DEPTH_LIMIT + 1))


def test_arrays_count_as_levels_too() -> None:
    value: Any = 1
    for _ in range(DEPTH_LIMIT - 1):
        value = [value]
    assert pinnable({"a": value}).count("[") == DEPTH_LIMIT - 1
    with pytest.raises(ValueError, match=f"deeper than {DEPTH_LIMIT}"):
        pinnable({"a": [value]})


def test_many_brackets_are_no_depth() -> None:
    assert pinnable({"a": [[] for _ in range(DEPTH_LIMIT * 3)]})
    assert is_pinnable(tool(input_schema={"enum": [[] for _ in range(DEPTH_LIMIT * 3)]}))


def test_a_tool_can_be_pinned_to_the_same_depth() -> None:
    assert is_pinnable(tool(input_schema=nested(DEPTH_LIMIT - 1)))
    assert not is_pinnable(tool(input_schema=nested(DEPTH_LIMIT)))


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), 10**5000, {1: 2}, {"a": {None: 1}}, {1, 2}], ids=type
)
def test_a_tool_with_a_value_that_is_not_json_cannot_be_pinned(value: Any) -> None:
    assert not is_pinnable(tool(input_schema={"default": value}))


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1, (2, 3)], {"a": [{}]}])
def test_a_tool_with_plain_json_can_be_pinned(value: Any) -> None:
    assert is_pinnable(tool(input_schema={"default": value}))


def test_the_hash_is_that_of_the_canonical_text() -> None:
    counted = definition(tool(title="T"))
    assert digest(counted) == sha256(canonical(counted).encode()).hexdigest()


def test_a_field_above_the_size_limit_is_replaced_by_its_hash() -> None:
    fits, large = "x" * (LARGEST - 2), "x" * (LARGEST - 1)  # with two quotes
    found = condensed({"a": fits, "b": large, "c": 7, "d": None, "e": True})
    hashed = sha256(json.dumps(large).encode()).hexdigest()
    assert found == {"a": fits, "b": {HASH: hashed}, "c": 7, "d": None, "e": True}


def test_a_field_that_is_not_json_is_left_as_it_is() -> None:
    assert condensed({"a": [float("nan")]})["a"] != {}
    assert HASH not in str(condensed({"a": [float("nan")]}))


def test_meta_and_unknown_fields_count_only_where_there_are_some() -> None:
    assert {"meta", "more"} & definition(tool()).keys() == set()
    counted = definition(tool(meta={"m": 1}, extra={"icons": []}))
    assert (counted["meta"], counted["more"]) == ({"m": 1}, {"icons": []})


def test_words_are_sorted_and_come_from_names_and_values_at_any_depth() -> None:
    assert words({"b": ["two one", {"c": 3}], "a": None}) == ["3", "a", "b", "c", "null", "one", "two"]


def test_each_kind_of_entry_has_its_own_key() -> None:
    resource = Resource(server="s", uri="a:b", name="r")
    template = ResourceTemplate(server="s", uri_template="a:{x}", name="t")
    prompt = Prompt(server="s", name="p")
    assert [key_of(one) for one in (tool(), resource, template, prompt)] == ["read", "a:b", "a:{x}", "p"]
    assert definition(resource)["uri"] == "a:b"
    assert definition(template)["uri"] == "a:{x}"


def test_of_several_entries_with_one_key_the_first_counts_and_keys_are_sorted() -> None:
    first, second, other = tool(title="1"), tool(title="2"), tool(remote_name="a")
    found = first_of_each([first, second, other])
    assert list(found) == ["a", "read"]
    assert found["read"] is first


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ~ text", "plain ~ text"),
        ("a\nb", "a\\u000ab"),
        ("\x7f", "\\u007f"),
        ("é", "é"),
        ("\u202e", "\\u202e"),
        ("\ufe00", "\\ufe00"),
        ("\ufe0f", "\\ufe0f"),
        ("\ufe10", "\ufe10"),
        ("\U00010000", "\U00010000"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\U000e0100", "\\udb40\\udd00"),
        ("\U000e01ef", "\\udb40\\uddef"),
        ("\U0010ffff", "\\udbff\\udfff"),
        ("\uffff", "\\uffff"),
    ],
)
def test_characters_that_cannot_be_seen_are_escaped(text: str, shown: str) -> None:
    assert visible_text(text) == shown


def test_an_integer_of_more_than_14000_bits_cannot_be_pinned() -> None:
    def pinned(number: int) -> bool:
        schema = {"type": "object", "default": [[number]] * 200}
        return is_pinnable(Tool(name="t", server="s", remote_name="t", input_schema=schema))

    assert pinned(2**14_000 - 1)
    assert not pinned(2**14_000)
