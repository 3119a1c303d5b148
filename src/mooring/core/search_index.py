"""An inverted index over weighted terms: which documents hold a term, and how prominent it is there.

Immutable and shared: a changed index copies only what the change touches. Scores are whole numbers,
so that they come out the same in whatever order and by whatever updates the index was made.
"""

from __future__ import annotations

from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping
from itertools import repeat
from math import log
from operator import mul
from sys import byteorder
from typing import Any

__all__ = ["UNIT", "InvertedIndex"]

UNIT = 256
"""Weights of query terms are held in steps of 1/256."""

_ENOUGH = 800
"""Entries that one query walks through. Terms so common that they come after that are looked up only
for the documents that the rarer ones found."""
_KEPT = 250
"""How many of those go on, when there are many more: the rare terms have said the most by then."""
_TOO_COMMON = 0.35
"""A term that is in a larger share of the documents tells nothing beside others."""
_RARITY = 1.3
"""How steeply rare terms outweigh common ones; 1 is plain BM25."""

Postings = tuple["array[int]", bytearray]


class InvertedIndex:
    """Documents are numbered as they come. A removed one keeps its number and is never found."""

    __slots__ = ("_gone", "_postings", "_removed", "_tables", "_terms", "count")

    def __init__(self, documents: Iterable[Mapping[str, int]] = ()) -> None:
        self.count = 0
        """Number of documents, with the removed ones: the number of the next one."""
        self._postings: dict[str, Postings] = {}
        self._terms: list[tuple[str, ...]] | None = []
        """Of each document; None: not yet known, since only removing needs it."""
        self._removed: frozenset[int] = frozenset()
        self._gone: dict[str, int] = {}
        """How many of a term's documents are removed ones."""
        self._tables: dict[str, bytearray] = {}
        for document in documents:
            self._append(document, self._postings)

    @classmethod
    def from_rows(cls, rows: Any) -> InvertedIndex:
        """Return the index from the values of `rows`.

        Raises:
            ValueError, TypeError: they are not values of `rows`.
        """
        order, count, postings = rows
        if order != byteorder:
            raise ValueError("of another machine")
        new = cls()
        for term, packed, weights in postings:
            numbers = array("I")
            numbers.frombytes(a2b_base64(packed))
            new._postings[term] = numbers, bytearray(a2b_base64(weights))
            if len(numbers) != len(new._postings[term][1]) or max(numbers) >= count:
                raise ValueError("no such documents")
        new.count, new._terms = count, None
        return new

    def rows(self) -> list[Any]:
        """Return the index as JSON values that `from_rows` reads. Removed documents are included."""
        postings = [
            (term, _packed(numbers), _packed(weights)) for term, (numbers, weights) in self._postings.items()
        ]
        return [byteorder, self.count, postings]

    @property
    def size(self) -> int:
        """Number of documents, without the removed ones."""
        return self.count - len(self._removed)

    @property
    def removed(self) -> int:
        """Number of documents that are removed but still take room."""
        return len(self._removed)

    def changed(self, removed: Iterable[int], added: Iterable[Mapping[str, int]]) -> InvertedIndex:
        """Return another index without some documents and with new ones at the end."""
        new = InvertedIndex()
        new.count, new._terms = self.count, None if self._terms is None else self._terms.copy()
        new._removed = self._removed | frozenset(removed)
        new._gone = self._gone.copy()
        for number in new._removed - self._removed:
            for term in self._terms_of(number):
                new._gone[term] = new._gone.get(term, 0) + 1
        new._postings = self._postings.copy()
        fresh: dict[str, Postings] = {}
        for document in added:
            for term in document:
                if term not in fresh and (known := self._postings.get(term)) is not None:
                    fresh[term] = (known[0][:], known[1][:])
            new._append(document, fresh)
        new._postings |= fresh
        return new

    def scores(self, query: Mapping[str, float]) -> dict[int, int]:
        """Return the documents found, by number, and their scores."""
        total = self.size
        spreads = sorted((self._spread(term), term) for term in query if term in self._postings)
        scores: dict[int, int] = {}
        walked = 0
        for spread, term in spreads:
            if walked and spread > total * _TOO_COMMON:
                break
            factor = round(UNIT * query[term] * log(1 + (total - spread + 0.5) / (spread + 0.5)) ** _RARITY)
            if walked + spread <= _ENOUGH or not walked:
                numbers, weights = self._postings[term]
                gains = zip(numbers, map(mul, repeat(factor), weights), strict=False)
                if scores:
                    for number, gain in gains:
                        scores[number] = scores.get(number, 0) + gain
                else:
                    scores = dict(gains)
            else:
                table = self._table(term)
                scores = {number: score + factor * table[number] for number, score in _top(scores).items()}
            walked += spread
        for number in self._removed & scores.keys():
            del scores[number]
        return scores

    def _append(self, document: Mapping[str, int], postings: dict[str, Postings]) -> None:
        for term, weight in document.items():
            if term in postings:
                numbers, weights = postings[term]
            else:
                numbers, weights = postings[term] = (array("I"), bytearray())
            numbers.append(self.count)
            weights.append(weight)
        self.count += 1
        if self._terms is not None:
            self._terms.append(tuple(document))

    def _terms_of(self, number: int) -> tuple[str, ...]:
        if self._terms is None:
            found: list[list[str]] = [[] for _ in range(self.count)]
            for term, (numbers, _) in self._postings.items():
                for one in numbers:
                    found[one].append(term)
            self._terms = list(map(tuple, found))
        return self._terms[number]

    def _spread(self, term: str) -> int:
        """Return in how many documents a term is."""
        return len(self._postings[term][0]) - self._gone.get(term, 0)

    def _table(self, term: str) -> bytearray:
        """Return the weight of a common term by number of document; kept for next time."""
        table = self._tables.get(term)
        if table is None:
            table = self._tables[term] = bytearray(self.count)
            for number, weight in zip(*self._postings[term], strict=True):
                table[number] = weight
        return table


def _packed(numbers: array[int] | bytearray) -> str:
    return b2a_base64(numbers, newline=False).decode()


def _top(scores: dict[int, int]) -> dict[int, int]:
    """Return the documents that can still come out first, when there are too many to look at all."""
    if len(scores) <= 2 * _KEPT:
        return scores
    least = sorted(scores.values())[-_KEPT]
    return {number: score for number, score in scores.items() if score >= least}
