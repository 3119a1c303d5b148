"""The parser for YAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.documents import BadSyntaxError, parse_yaml

values = st.recursive(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=20,
)


@given(values)
def test_what_was_written_as_yaml_is_read_back(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value, default_style='"', allow_unicode=True)) == value


def test_every_scalar_stays_text_and_only_an_unquoted_null_is_nothing() -> None:
    text = "a: no\nb: 1.10\nc: 22:22\nd: ~\ne: null\nf: ''\ng: 'null'\n"
    assert parse_yaml(text) == {
        "a": "no",
        "b": "1.10",
        "c": "22:22",
        "d": None,
        "e": None,
        "f": "",
        "g": "null",
    }
    assert parse_yaml("a:\nb: 1") == {"a": None, "b": "1"}


def test_aliases_and_merge_keys_work() -> None:
    text = (
        "base: &b {command: x, env: &e {A: 1}}\n"
        "one: {<<: *b, command: y}\n"
        "two: {<<: [{p: 1}, {p: 2, q: 3}], env: *e}"
    )
    assert parse_yaml(text) == {
        "base": {"command": "x", "env": {"A": "1"}},
        "one": {"command": "y", "env": {"A": "1"}},
        "two": {"p": "1", "q": "3", "env": {"A": "1"}},
    }


def test_two_angle_brackets_in_quotes_are_a_name_like_any_other() -> None:
    assert parse_yaml("a: {'<<': 5, b: <<}\n'<<': [x]") == {"a": {"<<": "5", "b": "<<"}, "<<": ["x"]}


def test_tags_are_read_over_and_make_nothing() -> None:
    assert parse_yaml("a: !!python/object/apply:os.system ['true']") == {"a": ["true"]}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{this}: &{this} [{','.join(['*' + before] * 10)}]"
    for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a:\n\tb: 1", "line 2, column 1", "indent with spaces, never with tabs"),
        ("a: [${A}]", "line 1, column 6", 'in double quotes, as in ["${NAME}"]'),
        ("a: {b: ${A}}", "line 1, column 9", "in double quotes"),
        ("a: b: c", "line 1, column 5", "check the indentation"),
        ('a: "x', "line 1, column 6", "unexpected end of stream"),
        ("a: 1\nb: 2\na: 3", "line 3", "'a' is defined twice, on line 1 and on line 3"),
        ("a: *b", "line 1", "'*b' is used before or inside its anchor"),
        ("a: &a [*a]", "line 1", "'*a' is used before or inside its anchor"),
        ("a: 1\n---\nb: 2", "line 2", "a second document"),
        ("? [a]\n: 1", "line 1", "a name in a mapping must be text"),
        ("a: {<<: 5}", "line 1", "'<<' must name a mapping"),
        ("[" * 100_000, "line 1", "nested too deeply"),
        (BOMB, "line 6", "too many values"),
        ("a: \0", None, "a character that YAML does not allow"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, place: str | None, words: str) -> None:
    with pytest.raises(BadSyntaxError) as caught:
        parse_yaml(text)
    assert caught.value.place == place
    assert words in caught.value.problem
