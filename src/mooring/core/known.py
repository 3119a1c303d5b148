"""What a server is known to offer before it has said a word."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from mooring.core.types import Snapshot

__all__ = ["Known"]


class Known:
    """A snapshot of an earlier time, made when somebody wants it: of a thousand tools that takes a while,
    and most servers have spoken for themselves before anybody looks."""

    def __init__(
        self, make: Callable[[], Snapshot], *, protocol: str | None, tools: int, templates: int, prompts: int
    ) -> None:
        self._make = make
        self.protocol = protocol
        self.tools, self.templates, self.prompts = tools, templates, prompts
        """How many."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Known:
        """Return a snapshot that is there already."""
        return cls(
            lambda: snapshot,
            protocol=snapshot.info.protocol,
            tools=len(snapshot.tools),
            templates=len(snapshot.templates),
            prompts=len(snapshot.prompts),
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        """Made on first use."""
        return self._make()
