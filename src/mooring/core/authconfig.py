"""How a server wants to be logged in to: the field `auth` of its entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

from mooring.core.checks import list_of_text
from mooring.core.durations import kind
from mooring.core.egress import RefusedError, check_url
from mooring.core.expand import references
from mooring.core.settings import Settings, one_of, optional, setting, some_text, whole, within

__all__ = ["AuthConfig", "read_auth"]

_ALIASES = {
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "clientmetadataurl": "client_metadata_url",
    "scope": "scopes",
    "granttype": "type",
    "grant": "type",
    "callbackport": "callback_port",
    "redirectport": "callback_port",
    "authorizationserver": "issuer",
}
"""What other programs call our fields, without their underscores and capitals."""
_TYPES = {"authorization_code": "oauth", "oauth2": "oauth", "bearer": "none", "off": "none", "false": "none"}


def _scopes(value: object) -> tuple[str, ...]:
    words = tuple(value.split()) if isinstance(value, str) else list_of_text(value)
    if not all(word.isascii() and word.isprintable() and word and " " not in word for word in words):
        raise ValueError("must be a list of scopes, each one word")
    return words


def _type(value: object) -> Literal["oauth", "client_credentials", "none"]:
    word = some_text(value).lower()
    return one_of("oauth", "client_credentials", "none")(_TYPES.get(word, word))


def _address(what: str, *, path: bool = False) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = some_text(value)
        if not references(text):
            try:
                parts = check_url(text, "it", allowed=("loopback", "private"))
            except RefusedError as problem:
                raise ValueError(f"must be {what}: {problem}") from None
            if path and parts.path in ("", "/"):
                raise ValueError(f"must be {what} with a path")
        return text

    return read


class AuthConfig(Settings):
    """`auth` of one server. Texts may hold references until the moment of connecting."""

    type: Literal["oauth", "client_credentials", "none"] = setting(_type, default="oauth")
    """`oauth` asks a person, once; `client_credentials` asks nobody; `none` never logs in."""
    client_id: str | None = setting(optional(some_text), default=None)
    """A client that was registered beforehand; else mooring registers itself."""
    client_secret: str | None = setting(optional(some_text), default=None)
    issuer: str | None = setting(optional(_address("the issuer's https address")), default=None)
    """The authorization server to which the client belongs: no other one is told its secret."""
    scopes: tuple[str, ...] = setting(_scopes, default=())
    client_metadata_url: str | None = setting(optional(_address("an https address", path=True)), default=None)
    """Where the application publishes its client metadata document."""
    callback_port: int | None = setting(optional(within(whole, least=1, most=65535)), default=None)
    """For a client whose registration allows one redirect address only."""

    def _check(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("has a 'client_secret' and no 'client_id'; add it")
        if self.type == "client_credentials" and self.client_secret is None:
            raise ValueError("has type 'client_credentials', which needs 'client_id' and 'client_secret'")

    def __repr__(self) -> str:
        """Nothing that could be a secret."""
        return f"AuthConfig(type={self.type!r}, issuer={self.issuer!r}, scopes={self.scopes!r})"


def read_auth(value: object) -> Mapping[str, Any] | None:
    """The fields that are given, under our own names; a mere word stands for the type.

    Raises:
        ValueError: it is neither, or a field is wrong or unknown.
    """
    if value is None:
        return None
    if isinstance(value, str):
        given: dict[str, Any] = {"type": value}
    elif isinstance(value, Mapping):
        items = cast("Mapping[object, Any]", value).items()
        given = {_own_name(str(name)): item for name, item in items}
    else:
        raise ValueError(f"must be a mapping of settings or a text such as 'oauth', not {kind(value)}")
    read = AuthConfig(**given)
    return MappingProxyType({name: getattr(read, name) for name in given})


def _own_name(name: str) -> str:
    return _ALIASES.get(name.replace("_", "").replace("-", "").lower(), name)
