"""What all readers of text share: where something went wrong, and how deep is too deep."""

from __future__ import annotations

from typing import cast

from mooring.core.checks import shown

__all__ = ["DEPTH_LIMIT", "BadSyntaxError", "too_deep"]

DEPTH_LIMIT = 64


class BadSyntaxError(ValueError):
    """A text cannot be parsed; becomes a `ConfigError` once the file is known."""

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = None
        if line is not None:
            self.place = f"line {line}" if column is None else f"line {line}, column {column}"

    @classmethod
    def twice(cls, key: str, first: int, again: int) -> BadSyntaxError:
        """The same key stands twice in one mapping."""
        return cls(f"{shown(key)} stands twice, on line {first} and on line {again}; keep one", line=again)


def too_deep(data: object) -> bool:
    """Whether it nests deeper than a configuration may."""
    level = [data]
    for _ in range(DEPTH_LIMIT):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += cast("dict[str, object]", value).values()
            elif isinstance(value, list):
                deeper += cast("list[object]", value)
        if not deeper:
            return False
        level = deeper
    return True
