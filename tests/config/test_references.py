"""References in text: syntax, resolution, and no second expansion of values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.references import MissingReferenceError, Reference, escape, expand, references, unknown

VALUES = {"A": "one", "EMPTY": "", "SPACED": "two words", "NESTED": "${A} and $${A}"}

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)  # never as long as PRESENT
plain = st.text().filter(lambda text: "$" not in text)


def from_values(reference: Reference) -> str | None:
    return VALUES.get(reference.name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no reference", "no reference"),
        ("${A}", "one"),
        ("${env:A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${MISSING:-fallback}", "fallback"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${A:-fallback}", "one"),
        ("${MISSING:-a:-b}", "a:-b"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A $ $$ {A}", "$A $ $$ {A}"),
    ],
)
def test_text_expands(text: str, expected: str) -> None:
    assert expand(text, from_values) == expected


def test_a_value_is_never_expanded_again() -> None:
    assert expand("${NESTED}", from_values) == "${A} and $${A}"


def test_references_tell_kind_name_and_default() -> None:
    text = "${A} ${B:-d} ${file:./a b.txt} ${keyring:svc} ${cmd:pass show x}"
    assert references(text) == (
        Reference(kind="env", name="A"),
        Reference(kind="env", name="B", default="d"),
        Reference(kind="file", name="./a b.txt"),
        Reference(kind="keyring", name="svc"),
        Reference(kind="cmd", name="pass show x"),
    )


@pytest.mark.parametrize(
    "text", ["${v%p}", "${v:=x}", "${}", "${1}", "${input:id}", "${A:-${B}}", "${open", "${cmd: }"]
)
def test_other_syntax_is_left_alone_and_reported(text: str) -> None:
    assert expand(text, from_values) == text
    assert references(text) == ()
    assert len(unknown(text)) == 1


def test_the_report_of_other_syntax_stops_before_what_may_be_a_secret() -> None:
    assert unknown("x ${TOKEN:=hunter2-secret} y") == ("${TOKEN…}",)


def test_all_missing_references_are_named_at_once_and_no_default_or_value_is() -> None:
    with pytest.raises(MissingReferenceError) as caught:
        expand("${A} ${X} ${file:y} ${X} ${Z:-hunter2-secret}", from_values)
    assert [str(reference) for reference in caught.value.references] == ["${X}", "${file:y}"]
    assert "${X}, ${file:y}" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "one" not in str(caught.value).split()


@given(plain)
def test_text_without_a_dollar_is_itself_and_asks_for_nothing(text: str) -> None:
    def forbidden(reference: Reference) -> str:
        raise AssertionError(reference)

    assert expand(text, forbidden) == text


@given(st.text(alphabet=st.sampled_from("${}:-aA_ \n")) | st.text())
def test_escaped_text_expands_to_itself(text: str) -> None:
    assert expand(escape(text), lambda _: "wrong") == text
    assert references(escape(text)) == ()


@given(plain, names, st.text(), plain)
def test_a_value_comes_in_as_it_is_in_one_piece(before: str, name: str, value: str, after: str) -> None:
    assert expand(f"{before}${{{name}}}{after}", lambda _: value) == before + value + after


@given(st.text(alphabet=st.sampled_from("${}:-aA_ %=\n")))
def test_only_the_references_are_ever_looked_up(text: str) -> None:
    asked: list[Reference] = []

    def lookup(reference: Reference) -> str:
        asked.append(reference)
        return "value"

    expand(text, lookup)
    assert tuple(asked) == references(text)


@given(st.lists(names, min_size=1, max_size=5, unique=True))
def test_an_error_never_holds_a_value(missing: list[str]) -> None:
    text = "${PRESENT}" + "".join(f"${{{name}}}" for name in missing)
    with pytest.raises(MissingReferenceError) as caught:
        expand(text, lambda r: "hunter2-secret" if r.name == "PRESENT" else None)
    assert "hunter2" not in repr(caught.value) + str(caught.value)
    assert [reference.name for reference in caught.value.references] == missing
