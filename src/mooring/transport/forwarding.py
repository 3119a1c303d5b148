"""Requests made for a client of a gateway: progress, log lines and questions forwarded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mooring.core.types import EMPTY

if TYPE_CHECKING:
    from mooring.core.types import Era

__all__ = ["ABILITIES", "PASSAGE", "ClientBridge", "ForwardedRequest"]

ABILITIES: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Every client capability that a server may make its lists depend on. All commands declare them, and all
hosts do when they list a 2026 server, so that what was locked is what is listed."""


@dataclass(slots=True, kw_only=True, eq=False)
class ForwardedRequest:
    """Whoever is behind a request, as far as the server may know."""

    client: object
    """Who it is: two passages of one client are as good as one."""
    era: Era | None = None
    """The era in which a server that speaks both is to be asked; None: either."""
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
    waiting: int = 0
    """Questions of the server that the client has not answered yet."""


PASSAGE: ContextVar[ForwardedRequest | None] = ContextVar("passage", default=None)


class ClientBridge:
    """Marks requests that are made for a client of a gateway. A host that is given one tells servers that its
    clients can be asked, and passes what a server says or asks to the client that it concerns."""

    def __init__(self, *, asks: bool = True) -> None:
        """Make a relay; without `asks` servers are told that clients answer no questions."""
        self.capabilities: Mapping[str, Any] = ABILITIES if asks else {}

    @contextmanager
    def under_way(self, passage: ForwardedRequest) -> Generator[None]:
        """While the block runs, requests of this task are made for `passage`."""
        token = PASSAGE.set(passage)
        try:
            yield
        finally:
            PASSAGE.reset(token)

    def find(self, passages: Sequence[ForwardedRequest]) -> ForwardedRequest | None:
        """The client that a server speaks to: the one of this task, or else the only one that has requests
        under way (`passages`) on the wire that the server speaks on.

        A pipe does not say which request a message belongs to. While it works for several clients, the
        message is for none of them; `isolation: session` avoids that. A request that waits for its client's
        answer does not count: what works on it is waiting, too, and the client may never come back.
        """
        passage = PASSAGE.get()
        if passage is not None:
            return passage
        passages = [one for one in passages if not one.waiting] or passages
        if passages and all(one.client is passages[0].client for one in passages):
            return passages[-1]
        return None
