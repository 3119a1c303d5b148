"""Every exchange with a server, for whoever listens: `mooring.testing` keeps them for later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Exchange(NamedTuple):
    """One request and what the server answered."""

    server: str
    method: str
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None = None
    """What the server answered instead of a result."""


listeners: list[Callable[[Exchange], None]] = []
"""Of this process. Not a logger: what an exchange holds must not end up in somebody's log."""


def note(
    server: str,
    method: str,
    params: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    error: Mapping[str, Any] | None = None,
) -> None:
    """Tell of an exchange, if anybody listens."""
    if listeners:
        exchange = Exchange(server, method, params, result, error)
        for listener in listeners:
            listener(exchange)
