"""Search terms: names split, words stemmed, synonyms in classes, every script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.search_index import query_weights, runs, stem, terms_of


def stems(text: str) -> set[str]:
    return {term for run in runs(text) for term in terms_of(run) if not term.startswith("=")}


def classes(text: str) -> set[str]:
    return {term for run in runs(text) for term in terms_of(run) if term.startswith("=")}


@pytest.mark.parametrize("name", ["read_file", "readFile", "read-file", "read.file", "ReadFile", "READ FILE"])
def test_every_spelling_of_a_name_has_the_same_parts(name: str) -> None:
    assert {stem("read"), stem("file")} <= stems(name)


@pytest.mark.parametrize(
    ("name", "part"),
    [("getHTTPStatus", "http"), ("s3Upload", "upload"), ("mp3", "mp3"), ("base64", "base64")],
)
def test_acronyms_and_digits_are_found(name: str, part: str) -> None:
    assert stem(part) in stems(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("files", "file"),
        ("searching", "search"),
        ("created", "creating"),
        ("queries", "query"),
        ("stopped", "stop"),
        ("conversion", "conversions"),
        ("calculate", "calculation"),
        ("deployment", "deploys"),
        ("plays", "play"),
        ("boxes", "box"),
    ],
)
def test_inflections_share_a_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("status", "state"), ("address", "add"), ("bus", "bu")]
)
def test_words_that_only_look_inflected_keep_their_own_stem(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("fetch", "retrieve"), ("delete", "remove"), ("picture", "image"), ("天气", "weather")]
)
def test_words_of_like_meaning_share_a_class(one: str, other: str) -> None:
    assert classes(one) & classes(other)


@given(st.text(st.sampled_from("abceghilmnoprstuxy"), min_size=2, max_size=12))
def test_no_stem_loses_the_first_two_letters_of_its_word(word: str) -> None:
    assert stem(word)[:2] == word[:2]


def test_unspaced_scripts_are_cut_into_pairs() -> None:
    assert stems("东京天气") == {"东京", "京天", "天气"}
    assert stems("使用Excel") >= {"使用", stem("excel")}


def test_other_scripts_are_taken_by_word_and_without_accents() -> None:
    assert stems("погода сегодня") == {"погода", "сегодня"}
    assert stems("Café") == {stem("cafe")}


def test_numbers_and_words_without_content_do_not_count() -> None:
    assert query_weights("can you please show me the 10") == query_weights("show")


@given(st.text())
def test_any_text_has_terms(text: str) -> None:
    weights = query_weights(text)
    assert all(0 < weight <= 1 for weight in weights.values())
    assert all(isinstance(term, str) for run in runs(text) for term in terms_of(run))
