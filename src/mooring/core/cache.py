"""What was read a moment ago: bounded, each entry until its own end. The clock comes in as a number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """The entries used last, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """The entry, unless it is too old or was never there."""
        found = self._entries.get(key)
        if found is None:
            return None
        until, value = found
        if now >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, until: float) -> None:
        """Keep the entry; the one that was not used for longest makes room for it."""
        self._entries[key] = (until, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        for key in [key for key in self._entries if unwanted(key)]:
            del self._entries[key]
