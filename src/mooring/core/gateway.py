"""Settings of the gateway: who may come in, what each profile shows, and what one client may use up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from mooring.core.checks import list_of_text, shown
from mooring.core.durations import kind, seconds, size
from mooring.core.expand import is_reference
from mooring.core.names import STYLES, Style
from mooring.core.settings import (
    Settings,
    flag,
    one_of,
    optional,
    section,
    setting,
    some_text,
    whole,
    within,
)
from mooring.core.types import EMPTY

if TYPE_CHECKING:
    from mooring.core.audit import AuditSettings

__all__ = ["GatewaySettings", "OAuthSettings", "ProfileSettings", "TokenSettings"]

SAFE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures whose key may be public. A shared secret must not be taken for one, nor `none` for any."""

_duration = within(seconds, above=0)
_name_letters = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class ProfileSettings(Settings):
    """A named part of the catalog, served at `/mcp/<name>`."""

    servers: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of server names."""
    allow: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of `server/tool`, by the servers' own names of their tools."""
    deny: tuple[str, ...] = setting(list_of_text, default=())
    style: Style | None = setting(optional(one_of(*STYLES)), default=None)
    """How tools and prompts are named; as everywhere when left out."""
    discovery: Literal["auto", "always", "never"] = setting(
        one_of("auto", "always", "never"), default="never"
    )
    resources: bool = setting(flag, default=True)
    prompts: bool = setting(flag, default=True)
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be good for."""
    call_timeout: float | None = setting(optional(_duration), default=None)


class TokenSettings(Settings):
    """A fixed token and whose it is. The token itself is one reference, such as `${GATEWAY_TOKEN}`."""

    name: str = setting(some_text)
    token: str = setting(some_text)
    scopes: tuple[str, ...] = setting(list_of_text, default=())

    def _check(self) -> None:
        if not is_reference(self.token):
            raise ValueError(
                f"the token of {shown(self.name)} must be one reference without a default, such as ${{VAR}}"
            )

    def __repr__(self) -> str:
        return f"TokenSettings(name={self.name!r}, scopes={self.scopes!r})"


class OAuthSettings(Settings):
    """Whose signed tokens are taken: the gateway is a protected resource and issues none itself."""

    issuer: str = setting(some_text)
    audience: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be made for; the gateway's own `url` when left out."""
    jwks_url: str | None = setting(optional(some_text), default=None)
    key_file: str | None = setting(optional(some_text), default=None)
    """A public key (PEM) or a key set (JSON)."""
    algorithms: tuple[str, ...] = setting(list_of_text, default=("RS256", "ES256"))

    def _check(self) -> None:
        if (self.jwks_url is None) == (self.key_file is None):
            raise ValueError("needs one of 'jwks_url' and 'key_file'")
        for name in self.algorithms:
            if name not in SAFE_ALGORITHMS:
                raise ValueError(f"'algorithms' holds {shown(name)}; take {', '.join(SAFE_ALGORITHMS)}")


def _profiles(value: object) -> Mapping[str, ProfileSettings]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to profiles, not {kind(value)}")
    read = section(ProfileSettings)
    found: dict[str, ProfileSettings] = {}
    for name, item in cast("Mapping[object, object]", value).items():
        text = str(name)
        if not text or not _name_letters.issuperset(text):
            raise ValueError(f"{shown(text)} is no name for a path; use letters, digits, '-' and '_'")
        found[text] = read({} if item is None else item)
    return MappingProxyType(found)


def _tokens(value: object) -> tuple[TokenSettings, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of 'name' and 'token', not {kind(value)}")
    read = section(TokenSettings)
    return tuple(read(item) for item in cast("list[object]", value))


def _audit(value: object) -> AuditSettings | None:
    if value is None:
        return None
    from mooring.core.audit import read_audit  # few gateways have one of their own

    return read_audit(value)


class GatewaySettings(Settings):
    """How `mooring serve` meets its clients."""

    profiles: Mapping[str, ProfileSettings] = setting(_profiles, default=EMPTY)
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be good for at `/mcp` itself."""
    tokens: tuple[TokenSettings, ...] = setting(_tokens, default=())
    oauth: OAuthSettings | None = setting(optional(section(OAuthSettings)), default=None)
    url: str | None = setting(optional(some_text), default=None)
    """The address under which clients reach the gateway, when that is not the one it listens on."""
    allowed_hosts: tuple[str, ...] = setting(list_of_text, default=())
    """Names in the `Host` header beside addresses and `localhost`."""
    allowed_origins: tuple[str, ...] = setting(list_of_text, default=())
    max_body: int = setting(within(size, least=1024), default=4 * 2**20)
    body_timeout: float = setting(_duration, default=10.0)
    """Seconds within which a request must have arrived whole."""
    rate: float | None = setting(optional(within(seconds, above=0)), default=None)
    """Requests per second of one client; no limit when left out."""
    burst: int = setting(within(whole, least=1), default=64)
    concurrency: int = setting(within(whole, least=1), default=256)
    """Requests of one client that may be under way."""
    max_sessions: int = setting(within(whole, least=1), default=10_000)
    client_sessions: int = setting(within(whole, least=1), default=2_000)
    """Sessions of one client: of one principal, or of one address where no token is asked for. At the limit
    a new session ends the client's own session that has been idle for longest."""
    max_connections: int = setting(within(whole, least=1), default=20_000)
    audit: AuditSettings | None = setting(_audit, default=None)
    """The audit log while it serves, in place of the host's."""
    drain: float = setting(seconds, default=10.0)
    """Seconds that calls under way are given when the gateway is told to end."""
