"""As whom a conversation speaks to a server: HTTP headers of its own, which nobody else sends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from mooring.core.checks import check_headers, map_of_text
from mooring.core.config import Target
from mooring.core.values import replace
from mooring.errors import ConfigError

OwnHeaders = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Headers, or a function that is asked for them whenever a connection is made: tokens run out."""


def identity_of(headers: OwnHeaders | None) -> Hashable:
    """What tells one identity from another: never shown, only compared."""
    return headers if headers is None or callable(headers) else frozenset(headers.items())


def checked(headers: OwnHeaders) -> Mapping[str, str]:
    """The headers as they are now.

    Raises:
        ConfigError: they cannot be sent; no value is in the message.
    """
    try:
        return check_headers(map_of_text(headers() if callable(headers) else headers))
    except ValueError as problem:
        raise ConfigError(f"the headers of a session: {problem}") from None


def speaking_as(headers: OwnHeaders, target: Target) -> Target:
    """The target with these headers over the configured ones, each value a secret."""
    own = checked(headers)
    names = {name.lower() for name in own}
    others = {name: value for name, value in target.headers.items() if name.lower() not in names}
    return replace(target, headers={**others, **own}, secrets=(*_parts(own.values()), *target.secrets))


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    """What no message may repeat: each value whole, and without the scheme before it, the longest first."""
    parts = {part for value in values for part in (value, value.rpartition(" ")[2]) if len(part) > 3}
    return tuple(sorted(parts, key=len, reverse=True))
