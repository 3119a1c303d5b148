"""Values so large that looking through them would hold up everything else: how to tell them, and what was
found out about them in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import ref

__all__ = ["heavy", "recalled", "remember"]

T = TypeVar("T")
R = TypeVar("R")

MOST = 20_000
"""Values within it: looking at so many takes a few milliseconds."""
CHARACTERS = 100
"""So many characters of a text count as one value."""


def heavy(value: Any, most: int = MOST) -> bool:
    """Whether `value` holds more than `most` values. Stops looking when it is certain."""
    waiting: list[Any] = [value]
    while waiting:
        one: Any = waiting.pop()
        if isinstance(one, str):
            most -= len(one) // CHARACTERS
        elif isinstance(one, dict | list | tuple):
            items = cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
            most -= len(items)
            if most >= 0:
                waiting.extend(items)
        if most < 0:
            return True
    return False


_kept: dict[tuple[Callable[[Any], Any], int], tuple[ref[Any], tuple[Any]]] = {}
"""Answers by question and object, for as long as the object lives."""


def remember(ask: Callable[[T], object], value: T) -> None:
    """Answer now, so that `ask`, which looks with `recalled` first, answers at once later."""
    key = (ask, id(value))
    answer = (ask(value),)
    _kept[key] = (ref(value, lambda _: _kept.pop(key, None)), answer)


def recalled(ask: Callable[[T], R], value: T) -> tuple[R] | None:
    """What `remember` found out, if it was asked about this very object."""
    found = _kept.get((ask, id(value)))
    return cast("tuple[R]", found[1]) if found is not None and found[0]() is value else None
