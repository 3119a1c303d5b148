"""Settings of one server's login, TLS and proxy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mooring.config.references import references
from mooring.config.validate import (
    Settings,
    kind,
    list_of_text,
    one_of,
    optional,
    sample_url,
    setting,
    some_text,
    whole,
    within,
)
from mooring.core.addresses import RefusedAddressError, check_url

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
"""Names of fields in other programs, lower case without underscores."""
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
            except RefusedAddressError as problem:
                raise ValueError(f"must be {what}: {problem}") from None
            if path and parts.path in ("", "/"):
                raise ValueError(f"must be {what} with a path")
        return text

    return read


class AuthConfig(Settings):
    """`auth` of one server. Texts may contain references, resolved when connecting."""

    type: Literal["oauth", "client_credentials", "none"] = setting(_type, default="oauth")
    """`oauth`: a person logs in once. `client_credentials`: no person is needed. `none`: no login."""
    client_id: str | None = setting(optional(some_text), default=None)
    """Id of a registered client; without it mooring registers itself."""
    client_secret: str | None = setting(optional(some_text), default=None)
    """Secret of that client, as a reference."""
    issuer: str | None = setting(optional(_address("the issuer's https address")), default=None)
    """The authorization server of the client. No other server receives its secret."""
    scopes: tuple[str, ...] = setting(_scopes, default=())
    """Scopes to ask for; those that the server names when left out."""
    client_metadata_url: str | None = setting(optional(_address("an https address", path=True)), default=None)
    """Where the application publishes its client metadata document."""
    callback_port: int | None = setting(optional(within(whole, least=1, most=65535)), default=None)
    """Port of the redirect address, for clients with a fixed one."""

    def _check(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("has a 'client_secret' and no 'client_id'; add it")
        if self.type == "client_credentials" and self.client_secret is None:
            raise ValueError("has type 'client_credentials', which needs 'client_id' and 'client_secret'")

    def __repr__(self) -> str:
        """Without secrets."""
        return f"AuthConfig(type={self.type!r}, issuer={self.issuer!r}, scopes={self.scopes!r})"


def read_auth(value: object) -> Mapping[str, Any] | None:
    """Return the given fields under our names; a text is the type.

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
    read = AuthConfig.from_fields(given)
    return MappingProxyType({name: getattr(read, name) for name in given})


def _own_name(name: str) -> str:
    return _ALIASES.get(name.replace("_", "").replace("-", "").lower(), name)


DIRECT = "none"
"""Value of `proxy` for no proxy, also if the environment or the host sets one."""
PATHS = ("ca", "cert", "key")
"""Fields of `tls` that name files."""
_VERIFY = r"(?i)(?:ssl|tls)?_?(?:no_?|skip_?)?(?:verify|insecure|reject_?unauthorized).*"
_VERIFY_HINT = "certificates are always verified; name the authority that signed it in 'ca'"


class TlsSettings(Settings):
    """`tls` of a server, or of all. Texts may contain references, resolved when connecting."""

    ca: str | None = setting(optional(some_text), default=None)
    """Certificate authorities beside those of the system: a PEM file or a directory."""
    cert: str | None = setting(optional(some_text), default=None)
    """Client certificate (PEM)."""
    key: str | None = setting(optional(some_text), default=None)
    """Private key (PEM), if it is not in the file of the certificate."""
    key_password: str | None = setting(optional(some_text), default=None)
    """Password of the private key, as a reference."""

    def _check(self) -> None:
        for name in ("key", "key_password"):
            if getattr(self, name) is not None and self.cert is None:
                raise ValueError(f"has a {name!r} and no 'cert'; add the certificate that it belongs to")


def read_tls(value: object) -> Mapping[str, str]:
    """Return the given fields.

    Raises:
        ValueError: one is wrong or unknown.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of 'ca', 'cert', 'key' and 'key_password', not {kind(value)}")
    given = {str(name): item for name, item in cast("Mapping[object, Any]", value).items()}
    for name in given:
        if re.fullmatch(_VERIFY, name):
            raise ValueError(f"{name[:40]!r} is not offered: {_VERIFY_HINT}")
    read = TlsSettings.from_fields(given)
    return MappingProxyType({name: text for name in given if (text := getattr(read, name)) is not None})


def read_proxy(value: object) -> str:
    """Return the address of a proxy, or `DIRECT`.

    Raises:
        ValueError: it is neither.
    """
    if value is False or value == DIRECT:
        return DIRECT
    if not isinstance(value, str):
        raise ValueError(f"must be the address of a proxy, or 'none', not {kind(value)}")
    check_proxy(sample_url(value))
    return value


def check_proxy(text: str) -> None:
    """Raise a ValueError without the value unless it is the address of a usable proxy."""
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise ValueError("must start with http:// or https://: other proxies, such as SOCKS, cannot be used")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("http://")
    odd = (
        re.search(r"[\s\x00-\x1f\x7f]", text) or parts.path not in ("", "/") or parts.query or parts.fragment
    )
    if not host or odd:
        raise ValueError(
            "must be of the form http://user:password@host:port; "
            "characters such as / and @ in a password are written as %2F and %40"
        )
