"""Requests that a host makes for clients of a gateway, and the client that a message of a server concerns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mooring.core.types import EMPTY

if TYPE_CHECKING:
    from mooring.core.types import Era

__all__ = ["ABILITIES", "FORWARDED", "ClientBridge", "ForwardedRequest"]

ABILITIES: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Every client capability that a server's lists may depend on. All commands declare them, and all hosts do
when they list a 2026 server, so that listings match the lock."""


@dataclass(slots=True, kw_only=True, eq=False)
class ForwardedRequest:
    """A request made for a client of a gateway."""

    client: object
    """Identity of the client."""
    era: Era | None = None
    """The era to use with a server that supports both; None: either."""
    meta: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """The client's `_meta`; keys that mooring sets win."""
    stamp: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Keys of `_meta` that replace mooring's: the client's capabilities and log level."""
    params: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Further parameters, as the client sent them."""
    answers: bool = False
    """Whether the client answers `input_required` itself, so that it is passed on as a result."""
    opens_addresses: bool = False
    """Whether the client supports elicitation by URL."""
    heard: Callable[[str, Mapping[str, Any]], None]
    """Receives notifications that belong to this request."""
    asked: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Answers requests that the server sends during this one."""
    waiting: int = 0
    """Requests of the server that the client has not answered yet."""


FORWARDED: ContextVar[ForwardedRequest | None] = ContextVar("forwarded", default=None)


class ClientBridge:
    """Connects servers to the clients of a gateway.

    A host with a bridge declares the clients' capabilities to servers, and passes notifications and requests
    of a server to the client that they concern.
    """

    def __init__(self, *, asks: bool = True) -> None:
        """Create a bridge; without `asks` no capabilities are declared."""
        self.capabilities: Mapping[str, Any] = ABILITIES if asks else {}

    @contextmanager
    def under_way(self, forwarded: ForwardedRequest) -> Generator[None]:
        """Make the requests of this task in the block for `forwarded`."""
        token = FORWARDED.set(forwarded)
        try:
            yield
        finally:
            FORWARDED.reset(token)

    def find(
        self, forwarded_requests: Sequence[ForwardedRequest], *, question: bool
    ) -> ForwardedRequest | None:
        """Return the request that a message of a server belongs to, or None.

        That is the request of this task, or else the last one of the only client with pending
        `forwarded_requests` on the connection. Messages over stdio do not name the request they belong to:
        with several clients the answer is None, which `isolation: session` avoids. For a question, requests
        that wait for an answer of their client do not count: the server waits, too, and the client may never
        answer. For a notification they count: a log line can come from a call that waits.
        """
        forwarded = FORWARDED.get()
        if forwarded is not None:
            return forwarded
        candidates = forwarded_requests
        if question:
            candidates = [one for one in forwarded_requests if not one.waiting] or forwarded_requests
        if candidates and all(one.client is candidates[0].client for one in candidates):
            return candidates[-1]
        return None
