"""The first lines of a child's stderr that tell of an error, kept although many lines follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = ["FirstErrors"]

MOST_KEPT = 5
MOST_READ = 1_000
"""Lines that are looked at: what a server prints after its start is not why it did not start."""
_LONGEST = 500
_ERROR = re.compile(
    rb"(?i)error|exception|fatal|panic|fail|usage:|required|missing|must be|not (?:set|found|defined|allowed)"
    rb"|denied|cannot|can't|unable|invalid|unknown (?:option|argument)|unrecognized|certificate|unexpected"
)


class FirstErrors:
    """Collects a few lines, each with its number, and never more."""

    __slots__ = ("_read", "kept")

    def __init__(self) -> None:
        self.kept: list[tuple[int, str]] = []
        """Number and text of each line."""
        self._read = 0

    def look(self, lines: Iterable[bytes], shown: Callable[[bytes], str]) -> None:
        """Take note of more lines; `shown` gives a line as text without secrets."""
        for line in lines:
            self._read += 1
            if self._read <= MOST_READ and len(self.kept) < MOST_KEPT and _ERROR.search(line[:_LONGEST]):
                self.kept.append((self._read, shown(line)[:_LONGEST]))

    def before(self, last: int) -> list[str]:
        """The kept lines that do not stand among the `last` ones."""
        return [text for number, text in self.kept if number <= self._read - last]
