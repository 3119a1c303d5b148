"""What all readers of text share: where something went wrong, and how deep is too deep."""

from __future__ import annotations

from mooring.core.checks import shown

__all__ = ["DEPTH_LIMIT", "BadSyntaxError"]

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
