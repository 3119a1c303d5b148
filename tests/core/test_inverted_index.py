"""The inverted index: scores, removed documents, and the rows that are stored."""

from __future__ import annotations

from binascii import b2a_base64
from sys import byteorder
from typing import Any

import pytest

from mooring.core.search_index import InvertedIndex, query_weights, runs, stem, terms_of


def test_a_rare_term_counts_more_than_a_common_one() -> None:
    index = InvertedIndex(
        [{"rare": 9, "x": 1}, {"often": 9}, *({"often": 9} for _ in range(2)), {"y": 1}] * 3
    )
    scores = index.scores({"rare": 1.0})
    often = index.scores({"often": 1.0})
    assert scores[0] > often[1] > 0


def test_a_score_grows_with_the_weight_in_the_document_and_in_the_query() -> None:
    index = InvertedIndex([{"a": 1}, {"a": 2}, {"b": 1}, {"c": 1}])
    scores = index.scores({"a": 1.0})
    assert scores[1] == 2 * scores[0]
    assert index.scores({"a": 0.5})[0] == pytest.approx(scores[0] / 2, abs=1)


def test_terms_add_up() -> None:
    index = InvertedIndex([{"a": 1, "b": 1}, {"a": 1}, {"b": 1}, *({"z": 1} for _ in range(9))])
    alone = index.scores({"a": 1.0})[0] + index.scores({"b": 1.0})[0]
    assert index.scores({"a": 1.0, "b": 1.0})[0] == alone
    assert set(index.scores({"a": 1.0, "b": 1.0, "none": 1.0})) == {0, 1, 2}


def test_a_term_of_most_documents_counts_only_alone() -> None:
    index = InvertedIndex([{"rare": 1, "all": 1}, *({"all": 1} for _ in range(9))])
    assert set(index.scores({"rare": 1.0, "all": 1.0})) == {0}
    assert len(index.scores({"all": 1.0})) == 10
    third = InvertedIndex([{"rare": 1}, *({"third": 1} for _ in range(35)), *({"z": 1} for _ in range(64))])
    assert len(third.scores({"rare": 1.0, "third": 1.0})) == 36


def test_a_removed_document_is_never_found_and_makes_terms_rarer() -> None:
    documents = [{"a": 1}, {"a": 1}, {"b": 1}, {"c": 1}]
    index = InvertedIndex(documents)
    less = index.changed([1], [])
    assert set(less.scores({"a": 1.0})) == {0}
    assert (less.size, less.removed, less.count) == (3, 1, 4)
    assert less.scores({"a": 1.0})[0] == InvertedIndex([{"a": 1}, {"b": 1}, {"c": 1}]).scores({"a": 1.0})[0]
    assert set(index.scores({"a": 1.0})) == {0, 1}
    again = less.changed([1, 0], [{"a": 2}])
    assert set(again.scores({"a": 1.0})) == {4}
    assert (again.size, again.removed) == (3, 2)


def test_stored_rows_give_the_same_answers_and_can_be_changed() -> None:
    index = InvertedIndex([{"a": 1, "b": 2}, {"a": 1}, {"c": 1}])
    read = InvertedIndex.from_rows(index.rows())
    assert read.scores({"a": 1.0, "b": 1.0}) == index.scores({"a": 1.0, "b": 1.0})
    later = [one.changed([0], [{"a": 1}]) for one in (index, read)]
    assert later[0].scores({"a": 1.0}) == later[1].scores({"a": 1.0})
    assert set(later[1].scores({"a": 1.0})) == {1, 3}


def packed(*numbers: int, width: int = 4) -> str:
    return b2a_base64(
        b"".join(number.to_bytes(width, byteorder) for number in numbers), newline=False
    ).decode()


@pytest.mark.parametrize(
    "rows",
    [
        ["other", 1, []],
        [byteorder, 1, [("a", packed(1), packed(1, width=1))]],
        [byteorder, 2, [("a", packed(0, 1), packed(1, width=1))]],
        [byteorder, 1, [("a", "%", "%")]],
        [byteorder, 1],
        None,
    ],
)
def test_rows_that_do_not_fit_together_are_refused(rows: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        InvertedIndex.from_rows(rows)
    last = InvertedIndex.from_rows([byteorder, 2, [("a", packed(1), packed(1, width=1))]])
    assert set(last.scores({"a": 1.0})) == {1}


def test_a_common_term_is_looked_up_only_for_what_rarer_terms_found() -> None:
    documents: list[dict[str, int]] = [{"mid": 1 + number % 2} for number in range(700)]
    documents += [{"many": 3} for _ in range(800)] + [{"z": 1} for _ in range(2500)]
    for number in (0, 1):
        documents[number]["many"] = 5
    index = InvertedIndex(documents)
    found = index.scores({"mid": 1.0, "many": 1.0})
    # Only documents with `mid` are left, and of these at most the better half.
    assert set(found) == {number for number in range(700) if number % 2}
    alone = index.scores({"mid": 1.0})
    assert found[3] == alone[3]
    assert found[1] > alone[1]
    assert index.scores({"mid": 1.0, "many": 1.0}) == found


def test_few_documents_all_go_on_to_a_common_term() -> None:
    documents: list[dict[str, int]] = [{"mid": 1 + number % 2} for number in range(500)]
    documents += [{"many": 3} for _ in range(800)] + [{"z": 1} for _ in range(2500)]
    index = InvertedIndex(documents)
    assert set(index.scores({"mid": 1.0, "many": 1.0})) == set(range(500))


# --- words


@pytest.mark.parametrize(
    ("word", "base"),
    [
        ("as", "as"), ("ate", "ate"), ("news", "news"), ("glass", "glass"), ("files", "fil"),
        ("running", "run"), ("tell", "tell"), ("pass", "pass"), ("query", "queri"), ("play", "play"),
        ("cities", "citi"), ("tied", "tied"), ("added", "add"), ("sees", "see"),
    ],
)  # fmt: skip
def test_a_stem_is_the_word_without_its_inflection(word: str, base: str) -> None:
    assert stem(word) == base


def test_words_of_plain_and_other_texts_are_split_alike() -> None:
    assert runs("read_file, the 2nd-one!") == ["read", "file", "the", "2nd", "one"]
    assert runs("lire_le fichier é") == ["lire", "le", "fichier", "é"]
    assert runs("天气today") == ["天气", "today"]


def test_parts_of_a_written_word_come_before_the_whole() -> None:
    assert [term for term in terms_of("readMyXFile") if not term.startswith("=")] == [
        stem("read"), stem("file"), stem("readmyxfile"),
    ]  # fmt: skip
    assert terms_of("123") == ()
    assert terms_of("the") == ()
    assert terms_of("天") == ("天",)
    assert terms_of("天气好")[0] == "天气"
    assert "气好" in terms_of("天气好")


def test_a_word_with_synonyms_shares_its_weight_with_them_and_silent_ones_count_nothing() -> None:
    weights = query_weights("read picture zebra the")
    assert 0 < weights[stem("picture")] < weights[stem("read")] < weights["zebra"] == 1.0
    assert set(terms_of("photo")) - {stem("photo")} <= weights.keys()
    assert "the" not in weights
