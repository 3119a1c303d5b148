"""`key=value` on the command line, read by the tool's schema."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli.arguments import parse_arguments
from mooring.cli.options import UsageError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "depth": {"type": "integer"},
        "ratio": {"type": "number"},
        "all": {"type": "boolean"},
        "tags": {"type": "array"},
        "where": {"type": "object"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "level": {"$ref": "#/$defs/Level"},
        "either": {"type": ["string", "integer"]},
        "free": {},
    },
    "$defs": {"Level": {"enum": [1, 2, 3]}},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("path=12", "12"),
        ("path=a=b", "a=b"),
        ("path=", ""),
        ("depth=12", 12),
        ("depth=-3", -3),
        ("ratio=2", 2),
        ("ratio=0.5", 0.5),
        ("all=true", True),
        ('tags=["a", "b"]', ["a", "b"]),
        ('where={"a": 1}', {"a": 1}),
        ("limit=5", 5),
        ("limit=null", None),
        ("level=2", 2),
        ("either=7", "7"),
        ("either:=7", 7),
        ("free=7", "7"),
        ("path:=null", None),
    ],
)
def test_a_value_has_the_type_that_the_schema_asks_for(word: str, value: object) -> None:
    assert list(parse_arguments([word], None, SCHEMA).values()) == [value]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("depth=deep", "depth: expected integer, not 'deep'."),
        ("depth=1.5", "depth: expected integer, not '1.5'."),
        ("all=1", "all: expected boolean, not '1'."),
        ("tags=a,b", "tags: expected array, not 'a,b'."),
        ("limit=many", "limit: expected integer or null, not 'many'."),
        ("ratio=NaN", "ratio: expected number, not 'NaN'."),
        ("path", "'path' is not an argument: write key=value, or key:=json for a JSON value."),
        ("=x", "'=x' is not an argument: write key=value, or key:=json for a JSON value."),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_was_expected(word: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments([word], None, SCHEMA)
    assert str(caught.value) == message


def test_words_are_laid_over_the_json_document() -> None:
    assert parse_arguments(["depth=2"], '{"depth": 1, "path": "."}', SCHEMA) == {"depth": 2, "path": "."}


@pytest.mark.parametrize("document", ["", "[1]", "{", "7", "[" * 100_000])
def test_a_document_that_is_no_object_is_refused(document: str) -> None:
    with pytest.raises(UsageError, match="--args"):
        parse_arguments([], document, SCHEMA)


def test_an_unknown_name_is_refused_with_the_nearest_and_all_valid_ones() -> None:
    schema = {"properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["path"]}
    with pytest.raises(UsageError) as caught:
        parse_arguments(["pth=x"], None, schema)
    assert str(caught.value) == (
        "The tool has no argument 'pth'. Did you mean 'path'? "
        "It takes: path (string, required), limit (integer)."
    )


def test_a_missing_name_is_refused_with_all_valid_ones() -> None:
    schema = {"properties": {"path": {"type": "string"}, "mode": {}}, "required": ["path"]}
    with pytest.raises(UsageError) as caught:
        parse_arguments(["mode=x"], None, schema)
    assert str(caught.value) == "Missing: path. It takes: path (string, required), mode (any)."


@pytest.mark.parametrize("schema", [{}, {"properties": {"a": {}}, "additionalProperties": True}])
def test_a_schema_that_takes_any_name_lets_any_name_through(schema: dict[str, Any]) -> None:
    assert parse_arguments(["new=1"], None, schema) == {"new": "1"}


def test_a_schema_that_refers_to_itself_is_read_once() -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/Loop"}] * 50 + [{"type": "integer"}]}
    schema = {"properties": {"n": {"$ref": "#/$defs/Loop"}}, "$defs": {"Loop": loop}}
    assert parse_arguments(["n=1"], None, schema) == {"n": 1}


@given(st.fixed_dictionaries({"properties": json_values, "required": json_values, "$defs": json_values}))
def test_no_schema_of_a_server_breaks_the_reading(schema: dict[str, Any]) -> None:
    with suppress(UsageError):
        parse_arguments(["key=value"], '{"other": 1}', schema)


def test_a_value_that_the_schema_does_not_list_is_refused_with_the_nearest_one() -> None:
    schema = {"properties": {"colour": {"enum": ["red", "green"]}, "size": {"enum": [1, 2]}}}
    with pytest.raises(UsageError) as caught:
        parse_arguments(["colour=gren"], None, schema)
    assert str(caught.value) == (
        "colour: 'gren' is not one of red, green. Did you mean 'green'? Write colour:=JSON to send it."
    )
    with pytest.raises(UsageError, match="size: '3' is not one of 1, 2"):
        parse_arguments(["size=3"], None, schema)
    assert parse_arguments(["colour=red", "size=2"], None, schema) == {"colour": "red", "size": 2}
    assert parse_arguments(['colour:="gren"'], None, schema) == {"colour": "gren"}
