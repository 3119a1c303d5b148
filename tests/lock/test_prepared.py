"""The cached form of a lock: equal to the lock in every respect."""

from __future__ import annotations

import json
from hashlib import sha256
from sys import byteorder

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core import search_index
from mooring.core.catalog import Filter, merge
from mooring.core.search import RULES, TOOL, Index, tool_texts, weigh
from mooring.core.types import Snapshot
from mooring.lock import Lock
from mooring.lock.cache import read_prepared, write_prepared
from mooring.lock.compare import build
from tests.lab.offers import FILES, PRINT, quick, snapshots, tool

offers = st.lists(snapshots, max_size=3, unique_by=lambda one: one.server)
queries = st.sampled_from(["read", "a file", "write the text", "list", "no such thing"])


def locked(offered: list[Snapshot]) -> Lock:
    return build(offered, {one.server: PRINT for one in offered})


@quick
@given(offers)
def test_what_is_written_is_read_again(offered: list[Snapshot]) -> None:
    lock = locked(offered)
    again = read_prepared(write_prepared(lock))
    assert again == lock
    assert again.words is not None
    assert again.words.count == len(list(lock.tools))


@quick
@given(offers, queries, st.booleans(), st.booleans())
def test_a_prepared_lock_gives_the_same_answers_as_one_that_is_not(
    offered: list[Snapshot], query: str, narrowed: bool, prefixed: bool
) -> None:
    lock = read_prepared(write_prepared(locked(offered)))
    catalog = merge(
        [pin.snapshot for pin in lock.servers.values()],
        filters={name: Filter(deny=("r*",)) for name in lock.servers} if narrowed else {},
        description_prefix="of {server}: " if prefixed else "",
        static=[Snapshot(server="own", tools=(tool("read_own", "Read what is mine"),))],
    )
    plain = Index.build(catalog.tools, catalog.groups)
    prepared = Index.of(catalog, lock)
    assert prepared.search(query) == plain.search(query)
    fewer = merge([pin.snapshot for pin in list(lock.servers.values())[1:]])
    assert prepared.updated(fewer).search(query) == plain.updated(fewer).search(query)
    assert Index.of(catalog, None).search(query) == plain.search(query)


def test_what_a_server_says_now_is_read_and_not_what_the_lock_says() -> None:
    lock = read_prepared(write_prepared(locked([FILES])))
    now = merge([Snapshot(server=FILES.server, tools=(tool("read", "Fly to the moon"),))])
    (found,) = Index.of(now, lock).search("moon")
    assert found.tool.remote_name == "read"


@pytest.mark.parametrize("change", [[0, 1], {"form": 1}, None])
def test_what_another_mooring_wrote_is_refused(change: object) -> None:
    form, pins, words = json.loads(write_prepared(locked([FILES])))
    assert form != change
    with pytest.raises(ValueError, match="another form"):
        read_prepared(json.dumps([change, pins, words]).encode())


ONE, TWO = "AAAAAA==", "AAAAAAEAAAA="
"""The numbers 0, and 0 and 1, as four bytes each."""


@pytest.mark.parametrize(
    "words",
    [
        [],
        [byteorder, 1, [["a", TWO, "AAA="]]],  # of a second document, of which there is none
        [byteorder, 2, [["a", TWO, "AA=="]]],  # two documents, one weight
        [byteorder, 1, [["a", "", ""]]],
        [byteorder, 1, [["a", "AAA=", "AA=="]]],  # half a number
        [byteorder, 1, [["a", 0, "AA=="]]],
        ["sideways", 1, [["a", ONE, "AA=="]]],
    ],
)
def test_words_that_fit_no_document_are_refused(words: object) -> None:
    form, pins, _ = json.loads(write_prepared(locked([FILES])))
    with pytest.raises((ValueError, TypeError)):
        read_prepared(json.dumps([form, pins, words]).encode())
    assert (
        read_prepared(json.dumps([form, pins, [byteorder, 1, [["a", ONE, "AA=="]]]]).encode()).words
        is not None
    )


def test_another_weighing_of_words_raises_the_number_of_the_rules() -> None:
    parameters = {
        "path": {"description": "Where it lies", "enum": ["newest", "oldest"]},
        "options": {"type": "object", "properties": {"maxDepth": {"description": "How deep, at most"}}},
    }
    lines = " ".join((search_index.VERBS, search_index.NOUNS, search_index.STOP)).split()
    texts = [" ".join(lines[start : start + 300]) for start in range(0, len(lines), 300)]
    weights = [
        weigh(
            TOOL, tool_texts(tool("readFile_2", text, title="APIs", input_schema={"properties": parameters}))
        )
        for text in [*texts, "天气预报 Überblick http://x/y.txt"]
    ]
    # Indexes that an earlier mooring kept would stay as they are: raise RULES, then note the new digest.
    digest = sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()[:16]
    assert (RULES, digest) == (1, "8df84b6961908f6d")
