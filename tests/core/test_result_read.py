"""`result_read` as a pure function: pieces that make up the whole, literal search, a strict path."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.builtin_tools import READ, ReadRequest, Unreadable, chosen, cut, found, request
from mooring.core.text import estimate

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


def pieces(whole: str, limit: int | None, budget: int) -> list[str]:
    offset: int | None = 0
    read: list[str] = []
    while offset is not None:
        piece = cut(whole[offset:], offset, len(whole), limit, budget)
        assert piece.text
        read.append(piece.text)
        offset = piece.next_offset
    return read


@given(st.text(min_size=1, max_size=3000), st.none() | st.integers(1, 500), st.integers(1, 90))
def test_pieces_make_up_the_whole_and_each_is_within_the_budget(
    whole: str, limit: int | None, budget: int
) -> None:
    read = pieces(whole, limit, budget)
    assert "".join(read) == whole
    assert all(estimate(piece) <= budget for piece in read)
    assert limit is None or all(len(piece) <= limit for piece in read)


def test_a_piece_ends_with_a_line_where_the_limit_is_ours() -> None:
    whole = "".join(f"line {number}\n" for number in range(200))
    assert all(piece.endswith("\n") for piece in pieces(whole, None, 40))


@given(st.text(alphabet="abA\n", max_size=200), st.text(alphabet="ab", min_size=1, max_size=3), st.booleans())
def test_a_search_finds_every_line_that_holds_the_text(whole: str, needle: str, ignore: bool) -> None:
    wanted = ReadRequest(handle="h", grep=needle, ignore_case=ignore)
    hits = found(whole, wanted, 0).text
    lines = [tuple(hit.split(": ", 1)) for hit in hits.splitlines()]
    same = str.lower if ignore else str
    expected = [line for line in whole.split("\n") if same(needle) in same(line)]
    assert [line for _, line in lines] == expected
    assert all(whole[int(start) :].startswith(line) for start, line in lines)


def test_a_search_goes_on_where_the_budget_ended_it() -> None:
    whole = "".join(f"hit {number}\nmiss\n" for number in range(500))
    offset: int | None = 0
    hits: list[str] = []
    while offset is not None:
        piece = found(whole, ReadRequest(handle="h", grep="hit", offset=offset), 50)
        assert estimate(piece.text) <= 50
        hits += [line.split(": ")[1] for line in piece.text.split("\n")]
        offset = piece.next_offset
    assert hits == [f"hit {number}" for number in range(500)]


def test_every_place_in_a_very_long_line_is_found_with_its_surroundings() -> None:
    whole = ("x" * 1000 + "needle") * 5
    hits = found(whole, ReadRequest(handle="h", grep="needle"), 0).text.split("\n")
    assert len(hits) == 5
    assert all(len(hit) < 420 for hit in hits)


def test_letters_that_grow_in_lower_case_do_not_move_a_place() -> None:
    assert (
        found("İİİ\nNEEDLE", ReadRequest(handle="h", grep="needle", ignore_case=True), 0).text == "4: NEEDLE"
    )


def test_TH25_a_search_is_literal_and_takes_linear_time() -> None:
    assert found("a" * 10**6 + "!", ReadRequest(handle="h", grep="(a+)+$"), 0).text == ""
    assert found("a" * 10**6, ReadRequest(handle="h", grep="a" * 400 + "b", ignore_case=True), 0).text == ""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", '{"items":[{"first name":"Ana","n":1}],"b-c":null}'),
        ("items[0].n", "1"),
        ("$.items[-1]['first name']", "Ana"),
        ('items[0]["first name"]', "Ana"),
        ("b-c", "null"),
        ("items", '[{"first name":"Ana","n":1}]'),
    ],
)
def test_a_path_of_names_and_numbers_leads_to_a_part(path: str, value: str) -> None:
    assert chosen('{"items": [{"first name": "Ana", "n": 1}], "b-c": null}', path) == value


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("itmes", "there is no 'itmes' at $; there is items"),
        ("items[3]", "there is no [3] at $['items']: it has 1 items"),
        ("items.n", "$['items'] is a list: 'n' does not exist there"),
        ("items[0].n.x", "is a single value"),
        ("items[?(@.n>1)]", "a chain of names and numbers"),
        ("__import__('os')", "a chain of names and numbers"),
        ("a" * 501, "a chain of names and numbers"),
        ("a" + ".a" * 64, "a chain of names and numbers"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ended(path: str, problem: str) -> None:
    with pytest.raises(Unreadable) as raised:
        chosen('{"items": [{"n": 1}]}', path)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["plain text", "[" * 100_000, "{"])
def test_a_path_into_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="is not JSON"):
        chosen(text, "a")


@given(JSON, st.text(max_size=20))
def test_no_path_into_any_json_ends_in_anything_but_a_part_or_a_refusal(value: Any, path: str) -> None:
    with suppress(Unreadable):
        assert isinstance(chosen(json.dumps(value), path), str)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "needs the 'handle'"),
        ({"handle": 7}, "'handle' of result_read must be text"),
        ({"handle": "h", "offset": -1}, "'offset' of result_read must be a whole number from 0 on"),
        ({"handle": "h", "limit": 0}, "'limit' of result_read must be a whole number from 1 on"),
        ({"handle": "h", "limit": True}, "'limit'"),
        ({"handle": "h", "grep": ""}, "1 to 500 characters"),
        ({"handle": "h", "grep": "a", "json_path": "b"}, "not both"),
        ({"handle": "h", "regex": "a"}, "takes no 'regex'"),
    ],
)
def test_a_request_that_is_not_clear_gets_a_correct_example(arguments: Any, problem: str) -> None:
    with pytest.raises(Unreadable) as raised:
        request(arguments)
    assert problem in str(raised.value)


def test_the_tool_says_how_it_is_called() -> None:
    assert request({"handle": "h", "offset": 3, "limit": None}) == ReadRequest(handle="h", offset=3)
    assert set(READ.input_schema["properties"]) == {
        "handle",
        "offset",
        "limit",
        "grep",
        "ignore_case",
        "json_path",
    }
