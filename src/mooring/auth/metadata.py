"""The documents of OAuth as values: challenges, resource metadata, authorization server metadata.

Pure: headers and JSON in, checked values out. The input is untrusted: a document that violates its
specification is rejected with the reason, never corrected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from mooring.core.addresses import Realm, RefusedAddressError, check_url
from mooring.core.value import Value

__all__ = [
    "AuthServer",
    "Challenge",
    "Protected",
    "default_server",
    "issuer_urls",
    "metadata_urls",
    "origin_of",
    "read_auth_server",
    "read_challenge",
    "read_resource",
    "scopes_in",
]

_PARAMETER = re.compile(r'([A-Za-z0-9_-]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_BEARER = re.compile(r"(?:^|,\s*|\s)Bearer(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_SCOPE = re.compile(r"[!#-\[\]-~]{1,256}")
_LONGEST_HEADER = 8_192
_MOST_SCOPES = 64
PROTECTED = "/.well-known/oauth-protected-resource"
AUTHORIZATION = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


class Challenge(Value):
    """The challenge of a 401 or 403 response."""

    error: str | None = None
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None

    @property
    def wants_more(self) -> bool:
        """Whether the login is valid but has too few scopes."""
        return self.error == "insufficient_scope"


class Protected(Value):
    """Protected resource metadata of a server (RFC 9728)."""

    resource: str
    """The resource that tokens are requested for (RFC 8707)."""
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()


class AuthServer(Value):
    """Authorization server metadata (RFC 8414): the fields that were checked."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    s256: bool = False
    names_itself: bool = False
    """Whether it adds `iss` to its redirects (RFC 9207)."""
    takes_documents: bool = False
    """Whether it supports client metadata documents."""
    secrets_by: tuple[str, ...] = ("client_secret_basic",)
    scopes: tuple[str, ...] = ()
    grant_types: tuple[str, ...] = ()
    """The grants it lists; empty if it does not list any."""
    grant_profiles: tuple[str, ...] | None = None
    """The grant profiles it lists; None if it does not list any."""


def read_challenge(header: str | None) -> Challenge | None:
    """Return the `Bearer` challenge of a `WWW-Authenticate` header; None when it has none."""
    found = _BEARER.search((header or "")[:_LONGEST_HEADER])
    if found is None:
        return None
    fields: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(found[1] or ""):
        fields.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return Challenge(
        error=fields.get("error"),
        scopes=scopes_in(fields.get("scope")),
        resource_metadata=fields.get("resource_metadata"),
    )


def scopes_in(value: object) -> tuple[str, ...]:
    """Return the scopes in a text or list, each once, without invalid ones."""
    words: Sequence[object] = value.split() if isinstance(value, str) else _list(value)
    good = (word for word in words if isinstance(word, str) and _SCOPE.fullmatch(word))
    return tuple(dict.fromkeys(good))[:_MOST_SCOPES]


def metadata_urls(server_url: str) -> tuple[str, ...]:
    """Return the URLs of a server's metadata: for its path, then for its origin."""
    origin, path = _split(server_url)
    return tuple(dict.fromkeys((f"{origin}{PROTECTED}{path}", f"{origin}{PROTECTED}")))


def issuer_urls(issuer: str) -> tuple[str, ...]:
    """Return the URLs of the metadata of an authorization server, in order."""
    origin, path = _split(issuer)
    inserted = (f"{origin}{AUTHORIZATION}{path}", f"{origin}{OPENID}{path}")
    return tuple(dict.fromkeys((*inserted, f"{origin}{path}{OPENID}")))


def origin_of(url: str) -> str:
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")


def read_resource(raw: object, server_url: str) -> Protected:
    """Return the metadata of a server, if it is for this server.

    Raises:
        RefusedError: It is for another server, or names no authorization server.
    """
    fields = _object(raw, "its resource metadata")
    resource = _text(fields, "resource")
    if resource is None or not _covers(resource, server_url):
        raise RefusedAddressError("its resource metadata is for another server")
    issuers = tuple(item for item in _list(fields.get("authorization_servers")) if isinstance(item, str))
    if not issuers:
        raise RefusedAddressError("its resource metadata names no authorization server")
    return Protected(resource=resource, issuers=issuers[:8], scopes=scopes_in(fields.get("scopes_supported")))


def _covers(resource: str, server_url: str) -> bool:
    """Whether the server is the resource itself, or lies under it."""
    try:
        theirs, ours = urlsplit(resource), urlsplit(server_url)
        same = (theirs.scheme.lower(), theirs.hostname, _port(theirs)) == (
            ours.scheme.lower(),
            ours.hostname,
            _port(ours),
        )
    except ValueError:
        return False
    base = theirs.path.rstrip("/")
    return same and not theirs.fragment and (ours.path.rstrip("/") + "/").startswith(base + "/")


def _port(parts: Any) -> int:
    return parts.port or (443 if parts.scheme.lower() == "https" else 80)


def read_auth_server(raw: object, issuers: Collection[str], allowed: Collection[Realm]) -> AuthServer:
    """Return the metadata of an authorization server, with every URL checked.

    Args:
        raw: The document.
        issuers: The allowed issuers, compared as text.
        allowed: Networks that its addresses may be in besides the public one.

    Raises:
        RefusedError: It has another issuer, lacks a field, or has a URL that is not allowed.
    """
    fields = _object(raw, "the authorization server's metadata")
    issuer = _text(fields, "issuer")
    if issuer not in issuers:
        raise RefusedAddressError(
            f"the authorization server calls itself {str(issuer)[:200]!r}, not {min(issuers)!r} as announced"
        )

    def endpoint(name: str) -> str | None:
        url = _text(fields, name)
        if url is not None:
            check_url(url, f"its {name.replace('_', ' ')}", allowed)
        return url

    token = endpoint("token_endpoint")
    if token is None:
        raise RefusedAddressError("the authorization server names no token endpoint")
    methods = _list(fields.get("token_endpoint_auth_methods_supported"))
    profiles = fields.get("authorization_grant_profiles_supported")
    return AuthServer(
        issuer=issuer or "",
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=token,
        registration_endpoint=endpoint("registration_endpoint"),
        revocation_endpoint=endpoint("revocation_endpoint"),
        s256="S256" in _list(fields.get("code_challenge_methods_supported")),
        names_itself=fields.get("authorization_response_iss_parameter_supported") is True,
        takes_documents=fields.get("client_id_metadata_document_supported") is True,
        secrets_by=_texts(methods) or ("client_secret_basic",),
        scopes=scopes_in(fields.get("scopes_supported")),
        grant_types=_texts(fields.get("grant_types_supported")),
        grant_profiles=None if profiles is None else _texts(profiles),
    )


def default_server(origin: str) -> AuthServer:
    """The authorization server of a server without metadata: the default endpoints of 2025-03-26, which
    requires PKCE."""
    return AuthServer(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
        s256=True,
    )


def _object(raw: object, what: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise RefusedAddressError(f"{what} is not a JSON object")
    return cast("dict[str, Any]", raw)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in _list(value) if isinstance(item, str))


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
