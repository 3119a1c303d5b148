"""What goes through a request that is made for somebody else: a gateway sets it in the task that calls.

A variable of the task and not a parameter: it must pass sessions and providers that need not know of
it, and what a server says on the stream of an HTTP answer is heard in that same task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mooring.core.types import EMPTY

__all__ = ["ABILITIES", "PASSAGE", "Passage", "Relay"]

ABILITIES: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Every client capability that a server may make its lists depend on. All commands declare them, and all
hosts do when they list a 2026 server, so that what was locked is what is listed."""


@dataclass(slots=True, kw_only=True, eq=False)
class Passage:
    """Whoever is behind a request, as far as the server may know."""

    client: object
    """Who it is: two passages of one client are as good as one."""
    session: str | None = None
    """Its conversation, by whose id the connections go that are its alone."""
    meta: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """What the client put into `_meta`; ours wins."""
    stamp: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """What stands in `_meta` instead of ours: the client's abilities, the log level it wants."""
    params: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Parameters beside those that we know, as the client sent them."""
    answers: bool = False
    """Whether the client answers an `input_required` itself: then it is a result like any other."""
    heard: Callable[[str, Mapping[str, Any]], None]
    """Takes notices that belong to this request."""
    asked: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Answers what the server asks meanwhile."""


PASSAGE: ContextVar[Passage | None] = ContextVar("passage", default=None)


class Relay:
    """The requests that are under way for somebody else, by server. A host that is given one tells servers
    that its clients can be asked, and takes what servers say to the client whom it concerns."""

    capabilities = ABILITIES

    def __init__(self) -> None:
        self._under_way: dict[str, list[Passage]] = {}

    @contextmanager
    def under_way(self, server: str, passage: Passage) -> Generator[None]:
        """While the block runs, what `server` says in answer belongs to `passage`."""
        passages = self._under_way.setdefault(server, [])
        passages.append(passage)
        token = PASSAGE.set(passage)
        try:
            yield
        finally:
            PASSAGE.reset(token)
            passages.remove(passage)

    def find(self, server: str, session: str | None = None) -> Passage | None:
        """Whom the server speaks to: whose stream it is, or else the only client that it works for on the
        connection that it speaks on, which may be one session's alone.

        A pipe does not say which request a notice belongs to. While several clients share it, nobody can
        tell, and then nobody is told: better than the wrong one. `isolation: session` avoids that.
        """
        passage = PASSAGE.get()
        if passage is not None:
            return passage
        passages = self._under_way.get(server, [])
        if session is not None:
            passages = [one for one in passages if one.session == session]
        if passages and all(one.client is passages[0].client for one in passages):
            return passages[-1]
        return None
