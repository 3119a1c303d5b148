"""The gateway client for which a request is made, and its identities at each server."""

from __future__ import annotations

import time
from contextvars import ContextVar
from hashlib import sha256


class Subject:
    """A gateway client with its verified token. The token is sent to token services, never to servers."""

    __slots__ = ("chains", "expires_at", "principal", "token")

    def __init__(self, principal: str, token: str, expires_at: float) -> None:
        self.principal, self.token, self.expires_at = principal, token, expires_at
        self.chains: dict[str, tuple[str, ...]] = {}
        """By server: the identities under which the request was made, beginning with the client."""

    def __repr__(self) -> str:
        return f"Subject({self.principal!r})"

    @property
    def digest(self) -> bytes:
        return sha256(self.token.encode("utf-8", "surrogateescape")).digest()

    @property
    def valid(self) -> bool:
        """Whether the token has not expired."""
        return time.time() < self.expires_at


SUBJECT: ContextVar[Subject | None] = ContextVar("mooring_subject", default=None)
"""The client of the current request; None for clients without a signed token."""


def subject_of(principal: str | None, known: Subject | None = None) -> Subject | None:
    """Return the valid token of a principal: of the current request, or else `known`."""
    for one in (SUBJECT.get(), known):
        if one is not None and one.principal == principal and one.valid:
            return one
    return None
