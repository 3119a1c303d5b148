"""Questions of servers: parsing, warnings about secrets, and checks of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.elicitation import MOST_ADDRESSES, Elicitation, addresses_in, choices, problems_of, question

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number"},
        "ok": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1},
    },
    "required": ["name"],
}


def form(properties: dict[str, Any]) -> Any:
    return question("srv", {"message": "?", "requestedSchema": {"type": "object", "properties": properties}})


@pytest.mark.parametrize(
    "content",
    [
        {"name": "Ana"},
        {"name": "Ana", "mail": "a@b.c", "day": "2026-01-31", "age": 0, "height": 1.7, "ok": False},
        {"name": "Ana", "colour": "r", "size": "l", "tags": ["b"], "age": 3.0},
    ],
)
def test_what_fits_the_form_is_good(content: dict[str, Any]) -> None:
    assert problems_of(content, SCHEMA) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "'name' is missing"),
        ({"name": "A"}, "at least 2"),
        ({"name": "Anabel"}, "at most 5"),
        ({"name": 5}, "text"),
        ({"name": "Ana", "nick": "x"}, "'nick' was not asked for"),
        ({"name": "Ana", "mail": "nobody"}, "'email'"),
        ({"name": "Ana", "day": "soon"}, "'date'"),
        ({"name": "Ana", "age": True}, "number"),
        ({"name": "Ana", "age": 1.5}, "whole"),
        ({"name": "Ana", "age": 151}, "at most 150"),
        ({"name": "Ana", "height": float("nan")}, "finite"),
        ({"name": "Ana", "ok": "yes"}, "true or false"),
        ({"name": "Ana", "colour": "Red"}, "one of 'r', 'g'"),
        ({"name": "Ana", "tags": ["c"]}, "among 'a', 'b'"),
        ({"name": "Ana", "tags": ["a", "b"]}, "at most 1"),
        ({"name": "Ana", "tags": "a"}, "list"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(content: dict[str, Any], words: str) -> None:
    assert words in "; ".join(problems_of(content, SCHEMA))


def test_choices_have_titles() -> None:
    fields = SCHEMA["properties"]
    assert choices(fields["colour"]) == {"r": "Red", "g": "Green"}
    assert choices(fields["size"]) == {"s": "Small", "l": "l"}
    assert choices(fields["tags"]) == {"a": "a", "b": "b"}
    assert choices(fields["name"]) is None


@pytest.mark.parametrize(
    "field",
    [
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "object"}},
        {"type": "array"},
        {"$ref": "#/x"},
        "string",
        {},
    ],
)
def test_a_form_that_is_not_flat_is_refused(field: Any) -> None:
    with pytest.raises(ValueError, match="not flat"):
        form({"x": field})


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("password", {}),
        ("user_password", {}),
        ("apiKey", {"title": "API key"}),
        ("x", {"description": "Your one-time code"}),
        ("x", {"format": "password"}),
        ("card", {"title": "Card number"}),
        ("auth_token", {}),
        ("pin", {}),
    ],
)
def test_TH28_a_form_that_asks_for_a_secret_is_flagged(name: str, field: dict[str, Any]) -> None:
    asked = form({name: {"type": "string", **field}, "colour": {"type": "string"}})
    assert asked.sensitive == (name,)
    assert "secret" in asked.prompt


def test_TH28_every_prompt_names_the_server_and_hides_nothing() -> None:
    asked = question("files", {"message": "Hi\u202e\x1b[2J there", "requestedSchema": {"properties": {}}})
    assert asked.prompt.startswith("The server 'files' asks: ")
    assert asked.prompt.isascii()


def test_TH28_the_host_of_an_address_is_shown_in_letters_that_cannot_be_mistaken() -> None:
    asked = question("s", {"mode": "url", "message": "go", "url": "https://аpple.com:8443/x"})
    assert asked.host == "xn--pple-43d.com:8443"
    assert str(asked.host) in asked.prompt


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda x: (
                st.lists(x, max_size=2)
                | st.dictionaries(st.sampled_from(["type", "items", "enum", "oneOf", "x"]), x, max_size=3)
            ),
            max_leaves=6,
        ),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=3), max_size=3),
)
def test_any_form_is_refused_or_can_be_judged(properties: dict[str, Any], content: dict[str, Any]) -> None:
    try:
        asked = form(properties)
    except ValueError:
        return
    problems_of(content, asked.schema)


@pytest.mark.parametrize("items", [None, "text", {"mode": "url"}, []])
def test_an_error_without_a_list_of_addresses_has_none(items: object) -> None:
    assert addresses_in({"elicitations": items}) is None


def test_the_addresses_of_an_error_become_requests() -> None:
    item = {"mode": "url", "message": "Sign in", "url": "https://example.com/x", "elicitationId": "1"}
    assert addresses_in({"elicitations": [item, item]}) == {
        "address-1": {"method": "elicitation/create", "params": item},
        "address-2": {"method": "elicitation/create", "params": item},
    }
    assert addresses_in({"elicitations": [item] * MOST_ADDRESSES}) is not None
    assert addresses_in({"elicitations": [item] * (MOST_ADDRESSES + 1)}) is None
    assert addresses_in({"elicitations": [item, {"message": "Your name?"}]}) is None


def test_an_answer_to_a_form_must_fit_and_an_address_takes_no_values() -> None:
    asked = Elicitation(server="s", mode="form", message="Name?", schema=SCHEMA)
    assert asked.accept({"name": "Ana"}).content == {"name": "Ana"}
    with pytest.raises(ValueError, match="name"):
        asked.accept({"name": "A"})
    with pytest.raises(ValueError, match="name"):
        asked.accept()
    assert Elicitation(server="s", mode="form", message="OK?").accept().content == {}
    visit = Elicitation(server="s", mode="url", message="Go", url="https://a.example", schema=SCHEMA)
    assert (visit.accept({"name": 1}).action, visit.accept({"name": 1}).content) == ("accept", None)
