"""The caller of a tool, for transforms, rules and guards."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import sha256

from mooring.core.types import EMPTY
from mooring.core.value import Value

SCRIPT: ContextVar[str | None] = ContextVar("mooring_script", default=None)
"""Id of the run of the script that makes the calls of this task."""
CALL: ContextVar[int] = ContextVar("mooring_call", default=0)
"""Number of the call that this task makes, if something observes it."""


class CallContext(Value):
    """The caller of a tool."""

    session: str = ""
    """Id of the session."""
    secret_session: bool = False
    """Whether the id gives access to the session, as that of a gateway client does."""
    agent: str | None = None
    principal: str | None = None
    """Authenticated user; None for anonymous clients and sessions without one."""
    profile: str | None = None
    """Profile of the gateway; None outside of a gateway."""
    headers: Mapping[str, str] = EMPTY
    """HTTP headers of the gateway client's request, by lower-case name."""

    @property
    def shown_session(self) -> str:
        """The id for servers, guards and `decide`; a hash of an id that is secret."""
        if not self.secret_session:
            return self.session
        return sha256(self.session.encode()).hexdigest()[:32]

    def __repr__(self) -> str:
        """Show the names of the headers only."""
        return f"CallContext(principal={self.principal!r}, headers={sorted(self.headers)})"


def call_context(
    session: str,
    agent: str | None,
    principal: str | None,
    *,
    secret_session: bool = False,
    profile: str | None = None,
    headers: Mapping[str, str] = EMPTY,
) -> CallContext:
    """Return the caller of a tool. Faster than the class itself, for every call."""
    return CallContext.holding(
        {
            "session": session,
            "secret_session": secret_session,
            "agent": agent,
            "principal": principal,
            "profile": profile,
            "headers": headers,
        }
    )
