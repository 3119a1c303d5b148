"""Settings of one server's login, TLS and proxy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mooring.config.references import references
from mooring.config.sections import SAFE_ALGORITHMS
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

_IMPLIED: Mapping[str, AuthType] = {"assertion": "workload", "idp": "enterprise", "exchange": "exchange"}
"""Fields that belong to one type, which may then be left out."""
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
    "privatekey": "private_key",
    "keyid": "key_id",
    "kid": "key_id",
    "signingalgorithm": "algorithm",
    "tokenendpoint": "token_endpoint",
    "subjecttoken": "subject_token",
    "subjecttokentype": "subject_token_type",
}
"""Names of fields in other programs, lower case without underscores."""
_TYPES = {
    "authorization_code": "oauth",
    "oauth2": "oauth",
    "bearer": "none",
    "off": "none",
    "false": "none",
    "enterprise_managed": "enterprise",
    "id-jag": "enterprise",
    "wif": "workload",
}

AuthType = Literal["oauth", "client_credentials", "enterprise", "workload", "exchange", "none"]


def _scopes(value: object) -> tuple[str, ...]:
    words = tuple(value.split()) if isinstance(value, str) else list_of_text(value)
    if not all(word.isascii() and word.isprintable() and word and " " not in word for word in words):
        raise ValueError("must be a list of scopes, each one word")
    return words


_one_type = one_of("oauth", "client_credentials", "enterprise", "workload", "exchange", "none")
_algorithm = one_of(*SAFE_ALGORITHMS)
_token_type = one_of("id_token", "access_token", "jwt", "refresh_token", "saml2")


def _type(value: object) -> AuthType:
    word = some_text(value).lower()
    return _one_type(_TYPES.get(word, word))


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


class ClientSettings(Settings):
    """A client of an authorization server, and how it authenticates."""

    client_id: str | None = setting(optional(some_text), default=None)
    """Id of a registered client; without it mooring registers itself."""
    client_secret: str | None = setting(optional(some_text), default=None)
    """Secret of that client, as a reference."""
    private_key: str | None = setting(optional(some_text), default=None)
    """Private key (PEM or JWK) that signs client assertions (`private_key_jwt`), instead of a secret."""
    key_id: str | None = setting(optional(some_text), default=None)
    """`kid` of the key, if the authorization server needs it."""
    algorithm: str | None = setting(optional(_algorithm), default=None)
    """Signature algorithm; by default the one that fits the key."""

    def _check(self) -> None:
        for name in ("client_secret", "private_key"):
            if getattr(self, name) is not None and self.client_id is None:
                raise ValueError(f"has a {name!r} and no 'client_id'; add it")
        if self.client_secret is not None and self.private_key is not None:
            raise ValueError("has 'client_secret' and 'private_key'; keep the one that is registered")

    def __repr__(self) -> str:
        """Without secrets."""
        return f"{type(self).__name__}(client_id={self.client_id!r})"


class TokenService(ClientSettings):
    """A token endpoint that exchanges a token of the user for another one (RFC 8693)."""

    issuer: str | None = setting(optional(_address("the issuer's https address")), default=None)
    """Its metadata names the token endpoint, unless `token_endpoint` does."""
    token_endpoint: str | None = setting(optional(_address("an https address")), default=None)
    """Where tokens are exchanged."""
    subject_token: str | None = setting(optional(some_text), default=None)
    """The operator's own token: one reference, read again for each exchange. Gateway clients have theirs."""
    subject_token_type: str | None = setting(optional(_token_type), default=None)
    """Type of that token: `id_token`, `access_token`, `jwt`, `refresh_token` or `saml2`."""


class IdentityProvider(TokenService):
    """`idp` of `auth`: issues identity assertions (ID-JAG) for the authorization servers of others."""

    def _check(self) -> None:
        super()._check()
        if self.issuer is None:
            raise ValueError("needs 'issuer', the identity provider's address: its assertions are checked")


class ExchangeSettings(TokenService):
    """`exchange` of `auth`: the token of a gateway client is exchanged for one that the server accepts."""

    audience: str | None = setting(optional(some_text), default=None)
    """Audience of the new token; without it the server's address is sent as `resource`."""
    scopes: tuple[str, ...] = setting(_scopes, default=())
    """Scopes of the new token."""

    def _check(self) -> None:
        super()._check()
        if self.issuer is None and self.token_endpoint is None:
            raise ValueError("needs 'issuer' or 'token_endpoint', where tokens are exchanged")


def _nested(of: Callable[[Mapping[str, Any]], TokenService]) -> Callable[[object], Mapping[str, Any]]:
    def read(value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of settings, not {kind(value)}")
        items = cast("Mapping[object, Any]", value).items()
        given = {_own_name(str(name)): item for name, item in items}
        known = of(given)
        return MappingProxyType({name: getattr(known, name) for name in given})

    return read


class AuthConfig(ClientSettings):
    """`auth` of one server. Texts may contain references, resolved when connecting."""

    type: AuthType = setting(_type, default="oauth")
    """`oauth`: a person logs in once. `client_credentials`: the client has a secret or a key. `enterprise`:
    an identity provider asserts who the user is. `workload`: the platform asserts what the program is.
    `exchange`:
    tokens of gateway clients are exchanged. `none`: no login."""
    issuer: str | None = setting(optional(_address("the issuer's https address")), default=None)
    """The authorization server of the client. No other server receives its secret."""
    scopes: tuple[str, ...] = setting(_scopes, default=())
    """Scopes to ask for; those that the server names when left out."""
    client_metadata_url: str | None = setting(optional(_address("an https address", path=True)), default=None)
    """Where the application publishes its client metadata document."""
    callback_port: int | None = setting(optional(within(whole, least=1, most=65535)), default=None)
    """Port of the redirect address, for clients with a fixed one."""
    assertion: str | None = setting(optional(some_text), default=None)
    """The JWT of the workload: one reference, such as `${file:…}`, read again for each token."""
    idp: Mapping[str, Any] | None = setting(optional(_nested(IdentityProvider.from_fields)), default=None)
    """Identity provider of `enterprise`: fields of `IdentityProvider`."""
    exchange: Mapping[str, Any] | None = setting(
        optional(_nested(ExchangeSettings.from_fields)), default=None
    )
    """Token service of `exchange`: fields of `ExchangeSettings`."""

    @classmethod
    def _completed(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        if given.get("type") is None:
            for field, kind_of_login in _IMPLIED.items():
                if given.get(field) is not None:
                    return {**given, "type": kind_of_login}
        return given

    def _check(self) -> None:
        super()._check()
        if self.type == "client_credentials" and self.client_secret is None and self.private_key is None:
            raise ValueError(
                "has type 'client_credentials', which needs 'client_id' and 'client_secret' or 'private_key'"
            )
        if self.type == "enterprise" and self.client_id is None and self.client_metadata_url is None:
            raise ValueError("has type 'enterprise', which needs the 'client_id' at the authorization server")
        for field, kind_of_login in _IMPLIED.items():
            if (self.type == kind_of_login) != (getattr(self, field) is not None):
                raise ValueError(f"has {field!r} only together with type {kind_of_login!r}; use both or none")

    @property
    def service(self) -> TokenService | None:
        """Where tokens of users are exchanged: the identity provider or the token service."""
        if self.idp is not None:
            return IdentityProvider(**self.idp)
        return None if self.exchange is None else ExchangeSettings(**self.exchange)

    @property
    def unattended(self) -> bool:
        """Whether tokens are obtained without a login in a browser."""
        return self.type in ("client_credentials", "enterprise", "workload", "exchange")

    @property
    def personal(self) -> bool:
        """Whether each gateway client has an identity of its own at the server."""
        return self.type in ("oauth", "enterprise", "exchange")

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


_EXTENSIONS: Mapping[str, str] = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "enterprise": "io.modelcontextprotocol/enterprise-managed-authorization",
    # mooring's own choice: the draft defines no identifier. The others are defined in their specifications.
    "workload": "io.modelcontextprotocol/workload-identity-federation",
}


def auth_extensions(auth: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the extensions that the `auth` of a server uses, as client capabilities declare them."""
    name = _EXTENSIONS.get(AuthConfig(**auth).type) if auth else None
    return {} if name is None else {name: {}}


def needs_caller(auth: Mapping[str, Any] | None) -> bool:
    """Whether the `auth` of a server works on behalf of gateway clients only."""
    if not auth:
        return False
    service = AuthConfig(**auth).service
    return service is not None and (auth.get("exchange") is not None or service.subject_token is None)


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
            raise ValueError(f"{name[:40]!r} is not supported: {_VERIFY_HINT}")
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
