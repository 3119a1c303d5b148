"""What passes between us and the servers, for whoever listens: whole exchanges, which `mooring.testing`
keeps for later, and single messages, which `mooring doctor --trace` writes down.

Not loggers: what is told here must not end up in somebody's log. It holds secrets as they are; whoever
keeps it blots them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Way = Literal["sent", "received", "stdout", "stderr", "fault"]


class Exchange(NamedTuple):
    """One request and what the server answered."""

    server: str
    method: str
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None = None
    """What the server answered instead of a result."""


class Passing(NamedTuple):
    """One thing seen on a wire."""

    server: str
    way: Way
    said: Mapping[str, Any] | str
    """A message; of `stdout` and `stderr` a line, of `fault` a sentence."""


listeners: list[Callable[[Exchange], None]] = []
"""Of this process."""

taps: list[Callable[[Passing], None]] = []
"""Of this process; called within the exchange, so that none may wait or raise."""


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


def passing(server: str, way: Way, said: Mapping[str, Any] | str) -> None:
    """Tell of a message, if anybody listens."""
    if taps:
        seen = Passing(server, way, said)
        for tap in taps:
            tap(seen)
