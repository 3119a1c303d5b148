"""What was changed or lost, in words, each said once and naming its place."""

from __future__ import annotations

__all__ = ["Notes", "Path"]

Path = tuple[str, ...]
"""Names of members from the root; `*` for the items of an array or the undeclared members of an object."""

_MOST = 50


class Notes:
    """Collects notes, at most fifty."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}

    def add(self, at: Path, words: str) -> None:
        if len(self._notes) < _MOST:
            place = ".".join(name[:40] for name in at)
            self._notes[f"{place[:200]!r} {words}" if at else f"the schema {words}"] = None

    def all(self) -> tuple[str, ...]:
        return tuple(self._notes)
