"""What goes through a request that is made for somebody else: a gateway sets it in the task that calls.

A variable of the task and not a parameter: it must pass sessions and providers that need not know of
it, and what a server says on the stream of an HTTP answer is heard in that same task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mooring.core.types import EMPTY

__all__ = ["PASSAGE", "Passage"]


@dataclass(slots=True, kw_only=True, eq=False)
class Passage:
    """Whoever is behind a request, as far as the server may know."""

    meta: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """What the client put into `_meta`; ours wins."""
    stamp: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """What stands in `_meta` instead of ours: the client's abilities, the log level it wants."""
    params: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Parameters beside those that we know, as the client sent them."""
    answers: bool = False
    """Whether the client answers an `input_required` itself: then it is a result like any other."""
    heard: Callable[[str, Mapping[str, Any]], None] | None = None
    """Takes notices that belong to this request."""
    asked: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]] | None = None
    """Answers what the server asks meanwhile."""


PASSAGE: ContextVar[Passage | None] = ContextVar("passage", default=None)
