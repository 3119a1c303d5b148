"""Steps of OAuth: discovery, registration, the authorization URL, and requests for tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mooring.auth.guarded_http import GuardedHttp, UnreachableError
from mooring.auth.metadata import (
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
from mooring.auth.token_store import (
    Grant,
    OAuthClient,
    Tokens,
    client_form,
    known_client,
    read_client,
    read_tokens,
    refusal_in,
    registration,
    word,
)
from mooring.config.network import AuthConfig
from mooring.core.addresses import RefusedAddressError, check_url, host_realm
from mooring.core.value import Value


class OtherLoginError(RefusedAddressError):
    """A redirect that belongs to no pending login. The pending login keeps waiting."""


def s256(verifier: str) -> str:
    """Return the PKCE challenge of a verifier (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check_fit(server: AuthServer) -> str:
    """Return the authorization endpoint.

    Raises:
        RefusedError: The authorization server has none, or an unsafe one.
    """
    if server.authorization_endpoint is None:
        raise RefusedAddressError("the authorization server has no authorization endpoint")
    if not server.s256:
        raise RefusedAddressError(
            "the authorization server does not declare PKCE with S256; without it, a stolen code "
            "would be enough to log in"
        )
    return server.authorization_endpoint


def authorization_url(
    server: AuthServer,
    *,
    client_id: str,
    redirect_uri: str,
    resource: str,
    scopes: Sequence[str],
    state: str,
    verifier: str,
) -> str:
    """Return the URL that the user opens to log in.

    Raises:
        RefusedError: The authorization server does not support it, or not safely.
    """
    page = check_fit(server)
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": s256(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    return f"{page}{'&' if '?' in page else '?'}{urlencode(query, quote_via=quote, safe='')}"


def read_callback(url: str, *, redirect_uri: str, state: str, server: AuthServer) -> str:
    """Return the code in the URL to which the browser was redirected.

    Raises:
        OtherLoginError: It does not belong to this login.
        RefusedError: The login was denied.
    """
    try:
        here, home = urlsplit(url), urlsplit(redirect_uri)
        pairs = parse_qsl(here.query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise OtherLoginError("that is not a URL") from None
    fields = dict(pairs)
    if (here.scheme, here.netloc, here.path) != (home.scheme, home.netloc, home.path):
        raise OtherLoginError(f"the address must begin with {redirect_uri}")
    if len(fields) != len(pairs) or not hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
        raise OtherLoginError("the address belongs to another login")
    issuer = fields.get("iss")
    if issuer is None and server.names_itself:
        raise RefusedAddressError("the response does not name its authorization server")
    if issuer is not None and issuer != server.issuer:
        raise RefusedAddressError("the response is from another authorization server")
    if error := fields.get("error"):
        raise RefusedAddressError(f"the authorization server refused: {word(error)}")
    code = fields.get("code")
    if not code:
        raise RefusedAddressError("the response has no code")
    return code


class NoOAuthError(RefusedAddressError):
    """The server names no authorization server."""


class DeniedError(RefusedAddressError):
    """The authorization server refused; `error` is its error code, such as `invalid_grant`."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


class Found(Value):
    """The authorization server of a server."""

    protected: Protected
    server: AuthServer
    resource_metadata: str | None = None

    def grant(self, client: OAuthClient, tokens: Tokens) -> Grant:
        """A pending login."""
        return Grant(
            issuer=self.server.issuer,
            resource=self.protected.resource,
            client=client,
            tokens=tokens,
            token_endpoint=self.server.token_endpoint,
            revocation_endpoint=self.server.revocation_endpoint,
            resource_metadata=self.resource_metadata,
        )


async def discover(
    http: GuardedHttp, auth: AuthConfig, challenge: Challenge | None, hint: str | None
) -> Found:
    """Return the authorization server of the server that `http` is for.

    Raises:
        NoOAuthError: It has no authorization server.
        RefusedError: There is one that must not be used.
        UnreachableError: One of the servers did not respond.
    """
    parts = urlsplit(http.server_url)
    if parts.scheme != "https" and host_realm(parts.hostname or "") != "loopback":
        raise RefusedAddressError("its URL has no TLS, so a token could be intercepted")
    announced = (challenge.resource_metadata if challenge else None) or hint
    protected = await _protected(http, announced)
    if protected is None:
        # Servers of 2025-03-26 have no metadata of their own: their origin is the authorization server, with
        # or without metadata.
        origin = origin_of(http.server_url)
        server = await auth_server(http, origin, {origin, f"{origin}/"})
        if server is None and await http.answers(f"{origin}/authorize", "its login page"):
            server = default_server(origin)
        resource = http.server_url.partition("#")[0].partition("?")[0]
        protected = Protected(resource=resource, issuers=(origin,))
    else:
        issuer = _issuer(protected, auth)
        server = await auth_server(http, issuer, {issuer})
    if server is None:
        raise NoOAuthError("no authorization server could be found for it")
    if auth.issuer is not None and server.issuer != auth.issuer:
        raise RefusedAddressError(f"its authorization server is {server.issuer!r}, not the configured issuer")
    return Found(protected=protected, server=server, resource_metadata=announced)


async def _protected(http: GuardedHttp, announced: str | None) -> Protected | None:
    for url in (announced,) if announced is not None else metadata_urls(http.server_url):
        document = await http.get(url, "its resource metadata")
        if document is not None:
            return read_resource(document, http.server_url)
    return None


def _issuer(protected: Protected, auth: AuthConfig) -> str:
    if auth.issuer is None:
        return protected.issuers[0]
    if auth.issuer not in protected.issuers:
        raise RefusedAddressError(
            "its metadata does not name the configured issuer as its authorization server"
        )
    return auth.issuer


async def auth_server(http: GuardedHttp, issuer: str, issuers: set[str]) -> AuthServer | None:
    """Return the metadata of an authorization server, checked; None if it has none."""
    check_url(issuer, "its authorization server", http.allowed)
    for url in issuer_urls(issuer):
        document = await http.get(url, "the authorization server's metadata")
        if document is not None:
            return read_auth_server(document, issuers, http.allowed)
    return None


async def client_for(
    http: GuardedHttp, auth: AuthConfig, server: AuthServer, redirect_uri: str, scopes: Sequence[str]
) -> OAuthClient:
    """Return the client: the configured one, our metadata document, or a new registration.

    Raises:
        RefusedError: It supports none of them.
        UnreachableError: It did not respond.
    """
    if auth.client_id is not None:
        return known_client(auth.client_id, auth.client_secret, server)
    if auth.client_metadata_url is not None and server.takes_documents:
        return OAuthClient(client_id=auth.client_metadata_url)
    if server.registration_endpoint is None:
        raise RefusedAddressError(
            "the authorization server has no dynamic registration; register one there and give its "
            "`client_id` in `auth`"
        )
    what = "its registration endpoint"
    document = registration(redirect_uri, scopes)
    status, raw = await http.post(server.registration_endpoint, what, document=document)
    if status not in (200, 201):
        raise _denied("the authorization server did not register mooring", status, raw)
    return read_client(raw)


async def tokens_for(
    http: GuardedHttp,
    endpoint: str,
    client: OAuthClient,
    form: Mapping[str, str],
    *,
    asked: Sequence[str] = (),
    old: Tokens | None = None,
) -> Tokens:
    """Request new tokens.

    Raises:
        DeniedError: The authorization server refused.
        RefusedError, UnreachableError: There is no usable response.
    """
    full, headers = client_form(client, form)
    raw = await token_response(http, endpoint, full, headers)
    return read_tokens(raw, time.time(), asked=asked, old=old)


async def token_response(
    http: GuardedHttp,
    endpoint: str,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    what: str | None = None,
) -> Any:
    """Return the JSON document in the response of a token endpoint; `what` names the step in errors.

    Raises:
        DeniedError: It refused.
        RefusedAddressError, UnreachableError: There is no usable answer.
    """
    status, raw = await http.post(endpoint, "its token endpoint", form=form, headers=headers)
    if status >= 500 or status == 429:
        raise UnreachableError(f"{what or 'its token endpoint'} answered HTTP {status}")
    if status != 200:
        if what is None:
            raise _denied("the authorization server returned no token", status, raw)
        raise _denied(f"{what} was refused", status, raw)
    return raw


async def refreshed(http: GuardedHttp, grant: Grant) -> Grant:
    """Return the grant with refreshed tokens; raises as `tokens_for` does."""
    form = {"grant_type": "refresh_token", "refresh_token": grant.tokens.refresh or ""}
    form["resource"] = grant.resource
    tokens = await tokens_for(http, grant.token_endpoint, grant.client, form, old=grant.tokens)
    return replace(grant, tokens=tokens)


async def revoke(http: GuardedHttp, grant: Grant) -> bool | None:
    """Revoke a login (RFC 7009). Return whether that succeeded; None if it is not supported."""
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
            status, _ = await http.post(grant.revocation_endpoint, what, form=form, headers=headers)
            done = done and status == 200
    return done


def _denied(problem: str, status: int, raw: Any) -> DeniedError:
    error = refusal_in(raw)
    return DeniedError(f"{problem} (HTTP {status}, {error})", error)
