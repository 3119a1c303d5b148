"""Tokens without a login in a browser: client credentials, workload identity, enterprise-managed
authorization and token exchange. Errors name the step that was refused."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from mooring.auth.flow import Found, auth_server, token_response
from mooring.auth.guarded_http import GuardedHttp, UnreachableError
from mooring.auth.metadata import AuthServer, Protected
from mooring.auth.token_store import Grant, OAuthClient, Tokens, client_form, known_client, read_tokens
from mooring.config.network import AuthConfig, ClientSettings, ExchangeSettings, TokenService
from mooring.core.addresses import RefusedAddressError
from mooring.core.types import EMPTY

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
_USABLE = (f"{_TOKEN_TYPE}access_token", f"{_TOKEN_TYPE}jwt")
ID_JAG = f"{_TOKEN_TYPE}id-jag"
ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
_ID_JAG_HEADER = "oauth-id-jag+jwt"
ASSERTION_LIFE = 60
"""Seconds for which a client assertion is valid."""
LEEWAY = 30.0
"""Tolerated clock difference in seconds."""
MAX_TOKEN = 65_536

Fresh = Callable[[], Awaitable[AuthConfig]]
"""Reads the references of `auth` again and returns the settings: files and programs may have newer tokens."""


async def by_credentials(http: GuardedHttp, auth: AuthConfig, found: Found, scopes: Sequence[str]) -> Grant:
    """Request a client credentials grant, by secret or by signed assertion.

    Raises:
        DeniedError: The authorization server refused.
        RefusedAddressError, UnreachableError: There is no usable answer.
    """
    form = {"grant_type": "client_credentials", "resource": found.protected.resource, **_scope(scopes)}
    full, headers = authenticated(auth, found.server, form)
    what = _step(f"the client credentials grant at {found.server.issuer}", found.server, "client_credentials")
    with _named(what):
        raw = await token_response(http, found.server.token_endpoint, full, headers, what)
        return _granted(auth, found, read_tokens(raw, time.time(), asked=scopes))


async def by_workload(
    http: GuardedHttp, auth: AuthConfig, found: Found, scopes: Sequence[str], fresh: Fresh
) -> Grant:
    """Present the JWT of the workload as a grant (RFC 7523); raises as `by_credentials` does."""
    issuer, endpoint = found.server.issuer, found.server.token_endpoint
    assertion = ((await fresh()).assertion or "").strip()
    _, claims = unverified(assertion, "the workload's JWT in `assertion`")
    # A server that names another authorization server must not get a JWT that is valid elsewhere.
    _expect(claims, "the workload's JWT in `assertion`", aud=(issuer, endpoint))
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": found.protected.resource}
    full, headers = authenticated(auth, found.server, {**form, **_scope(scopes)})
    what = _step(f"the workload's JWT at {issuer}", found.server, JWT_BEARER)
    with _named(what):
        raw = await token_response(http, endpoint, full, headers, what)
        return _granted(auth, found, read_tokens(raw, time.time(), asked=scopes))


async def by_enterprise(
    clients: tuple[GuardedHttp, GuardedHttp],
    auth: AuthConfig,
    found: Found,
    scopes: Sequence[str],
    subject: tuple[str, str],
    used: set[str],
) -> Grant:
    """Request an identity assertion from the identity provider, and present it to the authorization server.

    Args:
        clients: For requests to the authorization server, and to the identity provider.
        auth: The settings.
        found: The authorization server of the server.
        scopes: Scopes to request.
        subject: The user's token and its type.
        used: Ids of assertions that were presented before. The new one is added.

    Raises:
        DeniedError: A step was refused.
        RefusedAddressError, UnreachableError: There is no usable answer.
    """
    idp, server = auth.service, found.server
    assert idp is not None
    profiles = server.grant_profiles
    if profiles is not None and ID_JAG_PROFILE not in profiles:
        raise RefusedAddressError(
            f"the authorization server {server.issuer} does not support enterprise-managed authorization: "
            f"its metadata does not list {ID_JAG_PROFILE}"
        )
    http, idp_http = clients
    what = f"step 1 of 2, the token exchange at the identity provider {idp.issuer},"
    with _named(what):
        provider = await _service(idp_http, idp)
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "audience": server.issuer,
        "resource": found.protected.resource,
        "subject_token": subject[0],
        "subject_token_type": _TOKEN_TYPE + subject[1],
        **_scope(scopes),
    }
    full, headers = authenticated(idp, provider, form)
    with _named(what):
        raw = await token_response(idp_http, provider.token_endpoint, full, headers, what)
    assertion = _id_jag(raw)
    _check_id_jag(assertion, idp, auth, found, used)
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": found.protected.resource}
    full, headers = authenticated(auth, server, {**form, **_scope(scopes)})
    what = _step(
        f"step 2 of 2, the assertion at the authorization server {server.issuer},", server, JWT_BEARER
    )
    with _named(what):
        raw = await token_response(http, server.token_endpoint, full, headers, what)
        return _granted(auth, found, read_tokens(raw, time.time(), asked=scopes))


async def by_exchange(
    http: GuardedHttp,
    service: ExchangeSettings,
    url: str,
    more_scopes: Sequence[str],
    subject: tuple[str, str],
) -> Grant:
    """Exchange the token of a gateway client for one of the server (RFC 8693); raises as `by_credentials`."""
    what = f"the token exchange at {service.issuer or service.token_endpoint}"
    with _named(what):
        server = await _service(http, service)
    resource = url.partition("#")[0].partition("?")[0]
    scopes = tuple(dict.fromkeys((*service.scopes, *more_scopes)))
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": f"{_TOKEN_TYPE}access_token",
        "subject_token": subject[0],
        "subject_token_type": _TOKEN_TYPE + subject[1],
        **({"audience": service.audience} if service.audience else {"resource": resource}),
        **_scope(scopes),
    }
    full, headers = authenticated(service, server, form)
    with _named(what):
        raw = await token_response(http, server.token_endpoint, full, headers, what)
        tokens = read_tokens(raw, time.time(), asked=scopes)
    kind = cast("dict[str, Any]", raw).get("issued_token_type", _USABLE[0])
    if kind not in _USABLE:
        raise RefusedAddressError(
            f"{what} returned another kind of token: issued_token_type is not {_USABLE[0]}"
        )
    if subject[0] in (tokens.access, tokens.refresh):
        raise RefusedAddressError(f"{what} returned the caller's own token, which is not sent to servers")
    found = Found(protected=Protected(resource=resource, issuers=(server.issuer,)), server=server)
    return _granted(service, found, tokens)


def chain(principal: str, auth: AuthConfig, grant: Grant) -> tuple[str, ...]:
    """Return the identities of a request for the audit log: the client, who acts for it where, the target."""
    service = auth.service
    steps: list[str] = [principal]
    if service is not None:
        where = service.issuer or service.token_endpoint
        steps.append(f"{service.client_id or 'mooring'} at {where}")
    if auth.type == "enterprise":
        steps.append(f"{auth.client_id or auth.client_metadata_url} at {grant.issuer}")
    audience = service.audience if isinstance(service, ExchangeSettings) else None
    return (*steps, audience or grant.resource)


def authenticated(
    who: ClientSettings, server: AuthServer, form: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers with which a client authenticates at a token endpoint.

    Raises:
        RefusedAddressError: The private key cannot be used.
    """
    client_id = who.client_id or (who.client_metadata_url if isinstance(who, AuthConfig) else None)
    if client_id is None:
        return dict(form), {}
    if who.private_key is None:
        return client_form(known_client(client_id, who.client_secret, server), form)
    proof = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": _signed(who, client_id, server)}
    return {**form, "client_id": client_id, **proof}, {}


def _signed(who: ClientSettings, client_id: str, server: AuthServer) -> str:
    """Return a client assertion for one authorization server (RFC 7523): no other accepts it."""
    import jwt

    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": server.issuer,
        "jti": secrets.token_urlsafe(16),
        "iat": now,
        "exp": now + ASSERTION_LIFE,
    }
    try:
        key, fitting, key_id = _private_key(who.private_key or "")
        name = who.key_id or key_id
        headers = None if name is None else {"kid": name}
        return jwt.encode(claims, key, algorithm=who.algorithm or fitting, headers=headers)
    except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
        # Messages of the libraries may quote the key.
        raise RefusedAddressError(
            "`private_key` in `auth` is not a usable private key: give an unencrypted PEM or JWK of type "
            "RSA, EC or Ed25519, and an `algorithm` that fits it"
        ) from None


def _private_key(text: str) -> tuple[Any, str, str | None]:
    """Return the key, its algorithm, and its id if it has one."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key_id: str | None = None
    if text.lstrip().startswith("{"):
        fields = cast("dict[str, Any]", json.loads(text))
        if "d" not in fields:
            raise ValueError("a public key")
        known = jwt.PyJWK(fields)
        key, key_id = known.key, known.key_id
    else:
        key = load_pem_private_key(text.encode(), password=None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key, {"secp384r1": "ES384", "secp521r1": "ES512"}.get(key.curve.name, "ES256"), key_id
    return key, "EdDSA" if isinstance(key, ed25519.Ed25519PrivateKey) else "RS256", key_id


def unverified(token: str, what: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return header and claims of a JWT, without a check of its signature: the recipient checks it.

    Raises:
        RefusedAddressError: It is not a JWT.
    """
    import jwt

    try:
        if len(token) > MAX_TOKEN:
            raise ValueError
        read: Any = jwt.decode_complete(token, options={"verify_signature": False})
        if not read["signature"] or str(read["header"].get("alg")).lower() == "none":
            raise ValueError
        return read["header"], read["payload"]
    except (jwt.PyJWTError, ValueError, TypeError):
        raise RefusedAddressError(f"{what} is not a signed JWT") from None


def _id_jag(raw: object) -> str:
    fields = cast("dict[str, Any]", raw) if isinstance(raw, dict) else EMPTY
    token = fields.get("access_token")
    if fields.get("issued_token_type") != ID_JAG or not isinstance(token, str):
        raise RefusedAddressError(
            "step 1 of 2: the identity provider returned no identity assertion "
            "(issued_token_type is not id-jag)"
        )
    return token


def _check_id_jag(token: str, idp: TokenService, auth: AuthConfig, found: Found, used: set[str]) -> None:
    """Refuse an assertion that is for another server, client or time, before it is presented."""
    what = "step 1 of 2: the identity provider's assertion"
    header, claims = unverified(token, what)
    if str(header.get("typ", "")).lower().removeprefix("application/") != _ID_JAG_HEADER:
        raise RefusedAddressError(f"{what} is of another type: typ is not {_ID_JAG_HEADER!r}")
    _expect(
        claims,
        what,
        iss=(idp.issuer or "",),
        aud=(found.server.issuer,),
        client_id=(auth.client_id or auth.client_metadata_url or "",),
    )
    if "resource" in claims:
        _expect(claims, what, resource=(found.protected.resource,))
    jti = claims.get("jti")
    if not isinstance(jti, str) or not jti or len(jti) > 1024:
        raise RefusedAddressError(f"{what} has no jti")
    if jti in used:
        raise RefusedAddressError(f"{what} was presented before (the same jti): replay")
    if len(used) >= 1024:
        used.clear()  # assertions live for minutes
    used.add(jti)


def _expect(claims: Mapping[str, Any], what: str, **wanted: tuple[str, ...]) -> None:
    """Refuse claims that differ, or a JWT that has expired. Only configured values are shown."""
    for name, allowed in wanted.items():
        said: object = claims.get(name)
        values = cast("list[object]", said) if isinstance(said, list) else [said]
        # Several audiences: the other recipients could present it as well.
        if len(values) != 1 or values[0] not in allowed:
            raise RefusedAddressError(f"{what} cannot be used: its {name} is not {allowed[0]!r}")
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or expires + LEEWAY < time.time():
        raise RefusedAddressError(f"{what} has expired, or has no exp")
    begins = claims.get("nbf", 0)
    if not isinstance(begins, int | float) or begins - LEEWAY > time.time():
        raise RefusedAddressError(f"{what} is not valid yet: its nbf is in the future")


async def _service(http: GuardedHttp, service: TokenService) -> AuthServer:
    """Return the token endpoint of an identity provider or token service, from settings or metadata."""
    if service.token_endpoint is not None:
        return AuthServer(
            issuer=service.issuer or service.token_endpoint,
            authorization_endpoint=None,
            token_endpoint=service.token_endpoint,
        )
    assert service.issuer is not None
    server = await auth_server(http, service.issuer, {service.issuer})
    if server is None:
        raise RefusedAddressError(
            f"{service.issuer} has no metadata; give its `token_endpoint` beside `issuer` in `auth`"
        )
    return server


@contextmanager
def _named(step: str) -> Generator[None]:
    """Name the step in errors that do not name it."""
    try:
        yield
    except (RefusedAddressError, UnreachableError) as problem:
        if not str(problem).startswith(step):
            problem.args = (f"{step.rstrip(',')}: {problem}",)
        raise


def _step(what: str, server: AuthServer, grant_type: str) -> str:
    if server.grant_types and grant_type not in server.grant_types:
        return f"{what} (whose metadata does not list the grant {grant_type})"
    return what


def _scope(scopes: Sequence[str]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}


def _granted(who: ClientSettings, found: Found, tokens: Tokens) -> Grant:
    # These grants prove the identity each time; a refresh token would outlive that proof.
    lasting = Tokens(
        access=tokens.access, expires_at=tokens.expires_at, renew_at=tokens.renew_at, scopes=tokens.scopes
    )
    if who.private_key is not None or who.client_id is None:
        return found.grant(OAuthClient(client_id=who.client_id or ""), lasting)
    return found.grant(known_client(who.client_id, who.client_secret, found.server), lasting)
