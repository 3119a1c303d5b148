"""The cache of resources: what is cached, for how long, and what is dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.resources import Cache


def test_an_entry_is_there_until_its_end() -> None:
    cache: Cache[str, int] = Cache(2)
    cache.put("a", 1, until=10)
    assert (cache.get("a", 9.9), cache.get("a", 10), len(cache)) == (1, None, 0)


def test_the_entry_used_longest_ago_makes_room() -> None:
    cache: Cache[str, int] = Cache(2)
    for key in "ab":
        cache.put(key, 1, until=10)
    cache.get("a", 0)
    cache.put("c", 1, until=10)
    assert [cache.get(key, 0) for key in "abc"] == [1, None, 1]


steps = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 20), st.booleans()), max_size=60)


@given(steps, st.integers(1, 4))
def test_it_never_holds_more_than_it_may_and_never_what_is_too_old(
    steps: list[tuple[str, int, bool]], most: int
) -> None:
    cache: Cache[str, tuple[str, int]] = Cache(most)
    ends: dict[str, int] = {}
    for now, (key, until, write) in enumerate(steps):
        if write:
            cache.put(key, (key, until), until)
            ends[key] = until
        elif (found := cache.get(key, now)) is not None:
            assert found == (key, ends[key])
            assert now < ends[key]
        assert len(cache) <= most


def test_what_is_unwanted_goes() -> None:
    cache: Cache[tuple[str, str], int] = Cache(9)
    for server in "ab":
        cache.put((server, "x"), 1, until=9)
    cache.drop(lambda key: key[0] == "a")
    assert (cache.get(("a", "x"), 0), cache.get(("b", "x"), 0)) == (None, 1)
