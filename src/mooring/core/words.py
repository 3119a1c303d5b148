"""Text to search terms: words split, stemmed, and put into classes of like meaning.

Every rule here is about language: how names are spelled, how words are inflected, which words stand
for the same thing. None is about a particular set of tools.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from mooring.core.lexicon import BOILERPLATE, NOUNS, STOP, VERBS

__all__ = ["query_weights", "runs", "stem", "terms_of"]

# Scripts written without spaces (Thai to Khmer, Japanese, Chinese, Korean) are cut into pairs of characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
_BLANKED = bytes(code if chr(code).isalnum() else ord(" ") for code in range(128)) + bytes(128)
"""Of each ASCII character: itself if it is part of a word, else a blank."""
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PATH = r"https?://\S+|(?:[A-Za-z]:)?[\w.~-]*(?:[/\\][\w.~-]+)+|\b[\w-]+\.[a-zA-Z]{2,4}\d?\b"

_LONGEST_RUN = 60
_CACHED = 16_384

# How much a word of a query counts, beside 1 for one that is in no class. That a synonym is rarely
# used does not make it tell more, so that words with a class leave some of their say to it.
_VERB = 0.9
_VERB_CLASS = 0.5
_NOUN = 0.8
_NOUN_CLASS = 0.9
_BOILERPLATE = 0.75
_JOINED = 0.75
# A path says what kind of thing is meant by its folders and ending; the name of the file is anybody's.
_FILE_NAME = 0.5
_IMPLIED_FILE = 0.9

# Suffix, how many letters must stay, what takes its place. Of several that fit, the longest is cut off.
_SUFFIXES: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("ations", "ation", "ators", "ator", "ating", "ated", "ates", "ate"), (3, "")),
    **dict.fromkeys(("itions", "ition", "ions", "ion"), (3, "")),
    **dict.fromkeys(("sions", "sion"), (3, "s")),
    **dict.fromkeys(("ments", "ment"), (4, "")),
    **dict.fromkeys(("ingly", "ings", "ing", "edly", "ed", "es", "s", "e"), (3, "")),
    **dict.fromkeys(("ies", "ied"), (2, "i")),
    **{ending: (2, ending[:-2]) for ending in ("sses", "xes", "ches", "shes")},
}
_LONGEST_FIRST = range(-max(map(len, _SUFFIXES)), 0)
_LAST = frozenset(ending[-1] for ending in _SUFFIXES)


@cache
def _run() -> re.Pattern[str]:
    """Compiled on first use: classes so wide take milliseconds, and many hosts never see such a text."""
    return re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")


@cache
def _unspaced_start() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def runs(text: str) -> list[str]:
    """Return the words of a text as they are written, each of one kind of script."""
    # Most texts are plain ASCII, and an expression takes three times as long.
    if text.isascii():
        return text.encode().translate(_BLANKED).decode().split()
    return _run().findall(text)


class _Terms(dict[str, tuple[str, ...]]):
    """Written words and their terms, worked out on first sight. `lru_cache` would take twice as long."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        if len(self) >= _CACHED:
            self.clear()
        found: list[str] = []
        for word in _words(run):
            if word not in _SILENT:
                base = stem(word)
                found.append(base)
                found += _CLASSES[base]
        self[run] = terms = tuple(found)
        return terms


terms_of = _Terms().__getitem__
"""Return the search terms of one written word: its stems, each followed by its classes."""


def stem(word: str) -> str:
    """Return a lower-case English word without its inflection, near enough for matching."""
    if len(word) < 4 or not word.isascii() or word.endswith(("ss", "us", "is")) or word == "news":
        return word
    if word[-1] in _LAST:
        for start in _LONGEST_FIRST:
            rule = _SUFFIXES.get(word[start:])
            if rule is not None and len(word) + start >= rule[0]:
                word = word[:start] + rule[1]
                break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]  # stopped, stopp, stop
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "i"  # query, as queries
    return word


def query_weights(text: str) -> dict[str, float]:
    """Return the search terms of a query and how much each counts."""
    weights: dict[str, float] = {}
    for path in re.findall(_PATH, text) if any(mark in text for mark in "/\\.") else ():
        if "://" not in path:
            text = text.replace(path, " ", 1)
            folders, name, ending = _parts_of_path(path)
            _count(weights, _all_words(folders), 1.0)
            _count(weights, _all_words(name), _FILE_NAME)
            _count(weights, [ending], 1.0)
            _count(weights, ["file"], _IMPLIED_FILE)
    words = _all_words(text)
    _count(weights, words, 1.0)
    for one, two in pairwise(words):  # "mind map" finds a mindmap
        if one not in _SILENT and two not in _SILENT:
            weights.setdefault(stem(one + two), _JOINED)
    return weights


def _count(weights: dict[str, float], words: list[str], weight: float) -> None:
    """Add words and their classes, each at its highest weight."""
    for word in words:
        if word in _SILENT:
            continue
        base = stem(word)
        weights[base] = max(weights.get(base, 0.0), weight * _worth(base))
        for name in _CLASSES[base]:
            share = weight * (_VERB_CLASS if name.startswith("=v") else _NOUN_CLASS)
            weights[name] = max(weights.get(name, 0.0), share)


def _worth(base: str) -> float:
    if base in _DULL:
        return _BOILERPLATE
    classes = _CLASSES[base]
    if not classes:
        return 1.0
    return _VERB if classes[0].startswith("=v") else _NOUN


def _parts_of_path(path: str) -> tuple[str, str, str]:
    folders, _, leaf = path.replace("\\", "/").rpartition("/")
    name, dot, ending = leaf.rpartition(".")
    return (folders, name, ending.lower()) if dot else (folders, leaf, "")


def _all_words(text: str) -> list[str]:
    return [word for run in runs(text) for word in _words(run)]


def _words(run: str) -> list[str]:
    """Return the lower-case words in one written word: parts of camelCase, pairs of unspaced characters."""
    run = run[:_LONGEST_RUN]
    if not run.isascii():
        if _unspaced_start().match(run):
            return [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        from unicodedata import combining, normalize  # many hosts never see such a text

        folded = normalize("NFKD", run.casefold())
        return ["".join(letter for letter in folded if not combining(letter)) or run]
    if run.isdigit():
        return []  # a number in a query is an argument, not a purpose
    whole = run.lower()
    if run == whole and run.isalpha():
        return [whole]
    parts = [part.lower() for part in _PART.findall(run)]
    if len(parts) < 2:
        return [whole]
    return [*(part for part in parts if len(part) > 1 and part.isalpha()), whole]


class _Classes(dict[str, tuple[str, ...]]):
    """Stems and the classes they are in. Words are stemmed when one that begins like them is looked for:
    for a small catalog that is a few of a thousand."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, str]]] = {}
        """By their first two letters, which no stem loses."""
        for kind, text in (("v", VERBS), ("n", NOUNS)):
            for number, line in enumerate(text.strip().splitlines()):
                name = f"={kind}{number}"
                for word in line.split():
                    self._waiting.setdefault(word[:2], []).append((word, name))

    def __missing__(self, base: str) -> tuple[str, ...]:
        found: dict[str, tuple[str, ...]] = {}
        for word, name in self._waiting.get(base[:2], ()):
            known = found.get(stem(word), ())
            found[stem(word)] = known if name in known else (*known, name)
        # In this order: another thread that looks for one of them meanwhile finds it too.
        self.update(found)
        self._waiting.pop(base[:2], None)
        return self.get(base, ())


_CLASSES = _Classes()
_SILENT = frozenset(STOP.split())
_DULL = frozenset(stem(word) for word in BOILERPLATE.split())
