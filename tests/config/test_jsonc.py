"""The parser for JSON with comments."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.documents import BadSyntaxError, parse_jsonc

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_on_plain_json_it_agrees_with_json(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_jsonc(text) == json.loads(text)


REFUSED = object()


def json_or_refused(text: str) -> object:
    def once(items: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(items)) < len(items):
            raise ValueError("a key is defined twice")
        return dict(items)

    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError:
        return REFUSED


def parsed_or_refused(text: str) -> object:
    try:
        return parse_jsonc(text)
    except BadSyntaxError:
        return REFUSED


@given(st.text(alphabet=st.sampled_from('{}[]":\\ \n01-.eatrufnls')))
def test_without_comments_and_commas_it_accepts_what_json_accepts(text: str) -> None:
    assert parsed_or_refused(text) == json_or_refused(text)


def test_comments_and_trailing_commas_are_read_over() -> None:
    text = '// first\n{ /* a\n b */ "a": [1, 2,], // end\n "b": "// not, a /* comment */", }\n// last'
    assert parse_jsonc(text) == {"a": [1, 2], "b": "// not, a /* comment */"}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a": 1', "line 1, column 8", 'ends inside the "{" of line 1; add the missing "}"'),
        ('{\n"a": [1,\n', "line 3, column 1", 'ends inside the "[" of line 2; add the missing "]"'),
        ("{} trailing", "line 1, column 4", "more after the end"),
        ('{"a": 1\n"b": 2}', "line 2, column 1", 'expected "," or "}"'),
        ("{a: 1}", "line 1, column 2", "expected a name in double quotes"),
        ('{"a" 1}', "line 1, column 6", 'expected ":"'),
        ('{"a": yes}', "line 1, column 7", "expected a value"),
        ('{"a": NaN}', "line 1, column 7", "expected a value"),
        ('{"a": "x\n"}', "line 1, column 7", "not closed on its line"),
        ('{"a": "\\x"}', "line 1, column 7", "wrong escape"),
        ("/* never", "line 1, column 1", "never closed"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', "line 3", "'a' is defined twice, on line 1 and on line 3"),
        ("[" * 100_000, "line 1, column 65", "nested too deeply"),
        ("9" * 5000, "line 1, column 5001", "too long"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(BadSyntaxError) as caught:
        parse_jsonc(text)
    assert caught.value.place == place
    assert words in caught.value.problem
