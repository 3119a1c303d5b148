"""Untrusted text on a terminal: no control character has an effect, and no character is hidden."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.text import (
    clean,
    clean_for_model,
    clean_json,
    clean_line,
    line,
    misspelt_arguments,
    nearest,
)

nasty = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b\x9b\r\n\t\u202e\u2066\u200b\U000e0041\ufe0f"))
)


@given(nasty)
def test_clean_text_holds_no_control_format_or_surrogate_character(text: str) -> None:
    kept = [c for c in clean(text) if c not in "\n\t"]
    # Number marks of some scripts are format characters that are seen: they may stay.
    seen = {
        c
        for c in kept
        if unicodedata.category(c) == "Cf" and unicodedata.bidirectional(c) in ("AN", "AL", "L")
    }
    assert not [
        c for c in kept if c not in seen and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


@given(nasty)
def test_clean_text_can_always_be_written_as_utf_8(text: str) -> None:
    clean(text).encode()


@given(nasty)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(
    st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\u115f\u1160\u3164\uffa0"))
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@given(nasty)
def test_a_clean_line_is_one_line(text: str) -> None:
    assert not set("\n\r\t\x0b\x0c\x85\u2028\u2029") & set(clean_line(text))


@given(st.recursive(nasty, lambda inner: st.lists(inner) | st.dictionaries(nasty, inner)))
def test_clean_json_means_the_same_and_hides_nothing(value: object) -> None:
    document = clean_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(document) == value
    assert clean(document) == document.replace("\u200d", "").replace("\ufe0f", "")
    document.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("safe\rrm -rf", r"safe\x0drm -rf"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("a\u200bb", r"a\u200bb"),
        ("\U000e0068\U000e0069", r"\U000e0068\U000e0069"),
        ("two\r\nlines", "two\nlines"),
        ("⚠\ufe0f careful, 👩\u200d💻", "⚠ careful, 👩💻"),
    ],
)
def test_hidden_characters_are_written_out(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_a_misspelt_argument_is_named_with_the_one_that_was_meant() -> None:
    schema = {"type": "object", "properties": {"timezone": {}, "limit": {}}}
    note = misspelt_arguments(schema, {"timezon": "UTC", "limit": 3})
    assert note == "[mooring: there is no argument 'timezon', did you mean 'timezone'?]"


def test_a_misspelt_value_of_an_enumeration_gets_the_nearest_one() -> None:
    schema = {
        "properties": {"kind": {"enum": ["error", "success", 3]}, "free": {"type": "string"}, "odd": True}
    }
    note = misspelt_arguments(schema, {"kind": "eror", "free": "eror", "odd": "eror"})
    assert note == "[mooring: 'kind' cannot be 'eror', did you mean 'error'?]"
    for value in ("error", "other", 3, None, ["eror"]):
        assert misspelt_arguments(schema, {"kind": value}) is None


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"timezone": {}}}, {"timezone": "UTC"}),
        ({"properties": {"timezone": {}}}, {"quite_other": 1}),
        ({"properties": {"timezone": {}}}, {"timezone": "UTC", "timezon": "UTC"}),
        ({"properties": ["timezone"]}, {"timezon": 1}),
        ({}, {"timezon": 1}),
    ],
)
def test_arguments_that_are_not_misspelt_are_not_mentioned(schema: dict, arguments: dict) -> None:
    assert misspelt_arguments(schema, arguments) is None


def test_a_suggestion_that_only_shares_a_prefix_is_not_shown_beside_a_misspelling() -> None:
    assert nearest("mcp_shop_prise", ["mcp_shop_order", "mcp_shop_price"]) == ("mcp_shop_price",)


def test_a_text_as_long_as_the_limit_is_not_cut() -> None:
    for cut in (line, clean_for_model):
        assert cut("a" * 20, 20) == "a" * 20
        assert cut("a" * 21, 20) == "a" * 19 + "…"
        assert cut("a" + " " * 60 + "b", 20) == "a b"
