"""Models that follow a script, so that the examples run without a key: one module per framework.

A script is a list of calls. The model makes one of them per turn, then says the answer, and writes down what
it was shown. In an example, put a real model in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Shown:
    """What the model was shown of one result."""

    text: str
    is_error: bool | None = None
    """None where the framework has no mark for it."""
    images: list[bytes] = field(default_factory=list)


@dataclass
class Script:
    """What a model does, and what it saw meanwhile."""

    calls: list[tuple[str, dict[str, Any]]]
    answer: str = "That is all."
    turns: list[list[str]] = field(default_factory=list)
    """The names of the tools that it was offered, turn by turn."""
    shown: list[Shown] = field(default_factory=list)

    def turn(self, tools: Iterable[str]) -> tuple[str, dict[str, Any]] | None:
        """The call to make in this turn; None when it is time for the answer."""
        self.turns.append(list(tools))
        number = len(self.turns) - 1
        return self.calls[number] if number < len(self.calls) else None
