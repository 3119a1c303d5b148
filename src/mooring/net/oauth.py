"""The steps of OAuth over the wire: find the authorization server, register, get, renew and revoke tokens.

Our own few requests, not the SDK's provider: that one is made for another HTTP client, holds one lock over
every request, forgets its refresh token at a restart, and costs a second to import.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from mooring.core.authconfig import AuthConfig
from mooring.core.egress import RefusedError, check_url, host_realm
from mooring.core.grants import (
    Client,
    Grant,
    Tokens,
    client_form,
    known_client,
    read_client,
    read_tokens,
    refusal_in,
    registration,
)
from mooring.core.oauth import (
    AuthServer,
    Challenge,
    Protected,
    default_server,
    issuer_urls,
    metadata_urls,
    origin_of,
    read_auth_server,
    read_resource,
)
from mooring.core.values import Value
from mooring.net.egress import UnreachableError, Visit


class NoOAuthError(RefusedError):
    """The server says nothing of an authorization server."""


class DeniedError(RefusedError):
    """The authorization server refused; `error` is its word for it, such as `invalid_grant`."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


class Found(Value):
    """Where one logs in to a server."""

    protected: Protected
    server: AuthServer
    resource_metadata: str | None = None

    def grant(self, client: Client, tokens: Tokens) -> Grant:
        """What is kept of a login here."""
        return Grant(
            issuer=self.server.issuer,
            resource=self.protected.resource,
            client=client,
            tokens=tokens,
            token_endpoint=self.server.token_endpoint,
            revocation_endpoint=self.server.revocation_endpoint,
            resource_metadata=self.resource_metadata,
        )


async def discover(visit: Visit, auth: AuthConfig, challenge: Challenge | None, hint: str | None) -> Found:
    """The authorization server of the server that `visit` is for.

    Raises:
        NoOAuthError: there is none.
        RefusedError: there is one that must not be used.
        UnreachableError: one of them gave no answer.
    """
    parts = urlsplit(visit.server_url)
    if parts.scheme != "https" and host_realm(parts.hostname or "") != "loopback":
        raise RefusedError("its own address is without TLS: a token could be read on its way")
    told = (challenge.resource_metadata if challenge else None) or hint
    protected = await _protected(visit, told)
    if protected is None:
        # Servers of 2025-03-26 have no metadata of their own: their origin is the authorization server, with
        # or without metadata.
        origin = origin_of(visit.server_url)
        server = await _auth_server(visit, origin, {origin, f"{origin}/"})
        if server is None and await visit.answers(f"{origin}/authorize", "its login page"):
            server = default_server(origin)
        resource = visit.server_url.partition("#")[0].partition("?")[0]
        protected = Protected(resource=resource, issuers=(origin,))
    else:
        issuer = _issuer(protected, auth)
        server = await _auth_server(visit, issuer, {issuer})
    if server is None:
        raise NoOAuthError("no authorization server could be found for it")
    if auth.issuer is not None and server.issuer != auth.issuer:
        raise RefusedError(f"its authorization server is {server.issuer!r}, not the configured issuer")
    return Found(protected=protected, server=server, resource_metadata=told)


async def _protected(visit: Visit, told: str | None) -> Protected | None:
    for url in (told,) if told is not None else metadata_urls(visit.server_url):
        document = await visit.get(url, "its resource metadata")
        if document is not None:
            return read_resource(document, visit.server_url)
    return None


def _issuer(protected: Protected, auth: AuthConfig) -> str:
    if auth.issuer is None:
        return protected.issuers[0]
    if auth.issuer not in protected.issuers:
        raise RefusedError("its metadata does not name the configured issuer as its authorization server")
    return auth.issuer


async def _auth_server(visit: Visit, issuer: str, issuers: set[str]) -> AuthServer | None:
    check_url(issuer, "its authorization server", visit.allowed)
    for url in issuer_urls(issuer):
        document = await visit.get(url, "the authorization server's metadata")
        if document is not None:
            return read_auth_server(document, issuers, visit.allowed)
    return None


async def client_for(
    visit: Visit, auth: AuthConfig, server: AuthServer, redirect_uri: str, scopes: Sequence[str]
) -> Client:
    """Who we are to this authorization server: the configured client, our document, or a new registration.

    Raises:
        RefusedError: it knows no way.
        UnreachableError: it gave no answer.
    """
    if auth.client_id is not None:
        return known_client(auth.client_id, auth.client_secret, server)
    if auth.client_metadata_url is not None and server.takes_documents:
        return Client(client_id=auth.client_metadata_url)
    if server.registration_endpoint is None:
        raise RefusedError(
            "the authorization server takes no new clients by itself; register one there and give its "
            "`client_id` in `auth`"
        )
    what = "its registration endpoint"
    document = registration(redirect_uri, scopes)
    status, raw = await visit.post(server.registration_endpoint, what, document=document)
    if status not in (200, 201):
        raise _denied("the authorization server did not register us", status, raw)
    return read_client(raw)


async def tokens_for(
    visit: Visit,
    endpoint: str,
    client: Client,
    form: Mapping[str, str],
    *,
    asked: Sequence[str] = (),
    old: Tokens | None = None,
) -> Tokens:
    """New tokens.

    Raises:
        DeniedError: the authorization server said no.
        RefusedError, UnreachableError: there is no usable answer.
    """
    full, headers = client_form(client, form)
    status, raw = await visit.post(endpoint, "its token endpoint", form=full, headers=headers)
    if status >= 500 or status == 429:
        raise UnreachableError(f"its token endpoint answered HTTP {status}")
    if status != 200:
        raise _denied("the authorization server gave no token", status, raw)
    return read_tokens(raw, time.time(), asked=asked, old=old)


async def refreshed(visit: Visit, grant: Grant) -> Grant:
    """The grant with new tokens; raises as `tokens_for` does."""
    form = {"grant_type": "refresh_token", "refresh_token": grant.tokens.refresh or ""}
    form["resource"] = grant.resource
    tokens = await tokens_for(visit, grant.token_endpoint, grant.client, form, old=grant.tokens)
    return replace(grant, tokens=tokens)


async def by_credentials(visit: Visit, auth: AuthConfig, found: Found, scopes: Sequence[str]) -> Grant:
    """A grant that needs nobody: the client speaks for itself; raises as `tokens_for` does."""
    client = known_client(auth.client_id or "", auth.client_secret, found.server)
    form = {"grant_type": "client_credentials", "resource": found.protected.resource}
    if scopes:
        form["scope"] = " ".join(scopes)
    tokens = await tokens_for(visit, found.server.token_endpoint, client, form, asked=scopes)
    return found.grant(client, tokens)


async def revoke(visit: Visit, grant: Grant) -> bool | None:
    """Tell the authorization server to forget a login (RFC 7009): whether it did; None where it cannot."""
    if grant.revocation_endpoint is None:
        return None
    done = True
    for token, hint in (
        (grant.tokens.refresh, "refresh_token"),
        (grant.tokens.access, "access_token"),
    ):
        if token is not None:
            form, headers = client_form(grant.client, {"token": token, "token_type_hint": hint})
            what = "its revocation endpoint"
            status, _ = await visit.post(grant.revocation_endpoint, what, form=form, headers=headers)
            done = done and status == 200
    return done


def _denied(problem: str, status: int, raw: Any) -> DeniedError:
    error = refusal_in(raw)
    return DeniedError(f"{problem} (HTTP {status}, {error})", error)
