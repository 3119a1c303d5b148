"""The advice for a text that changed only in the order of its words."""

from __future__ import annotations

import pytest

from mooring.core.types import Snapshot, Tool
from mooring.lock.diff import changes_between, describe


def described(before: str, after: str) -> str:
    one, two = (
        Snapshot(server="s", tools=(Tool(name="t", server="s", remote_name="t", description=text),))
        for text in (before, after)
    )
    (change,) = changes_between(one, two)
    return describe(change)


def test_a_text_with_the_same_words_in_another_order_gets_its_own_advice() -> None:
    assert "order of the words" in described("reads a note", "a note reads")


@pytest.mark.parametrize("after", ["reads a memo", "reads a note twice", ""])
def test_a_text_with_other_words_does_not(after: str) -> None:
    assert "order of the words" not in described("reads a note", after)
