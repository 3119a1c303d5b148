"""What a login gives: who we are to the authorization server, the tokens, and what is kept of both.

Pure: time comes in as a value.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from mooring.core.egress import RefusedError
from mooring.core.oauth import AuthServer, scopes_in
from mooring.core.types import EMPTY
from mooring.core.values import Value

__all__ = [
    "Client",
    "Grant",
    "Tokens",
    "client_form",
    "grant_from_json",
    "grant_to_json",
    "known_client",
    "read_client",
    "read_tokens",
    "refusal_in",
    "registration",
    "word",
]

EARLY = 60.0
"""Seconds before the end of its life from which on a token is renewed."""
_LONGEST_LIFE = 10 * 365 * 86_400.0
_HEADER_SAFE = re.compile(r"[!-~]{1,65536}")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Client(Value):
    """Who we are to an authorization server."""

    client_id: str
    client_secret: str | None = None
    secret_by: str = "none"
    """`none`, `client_secret_basic` or `client_secret_post`."""

    def __repr__(self) -> str:
        return f"Client({self.client_id!r}, secret_by={self.secret_by!r})"


class Tokens(Value):
    """What a login gave. Times are seconds since the epoch; infinite when the server did not say."""

    access: str
    refresh: str | None = None
    expires_at: float = math.inf
    renew_at: float = math.inf
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at!r}, scopes={self.scopes!r})"


class Grant(Value):
    """A login with all that is needed to renew and to end it: what is kept between runs."""

    issuer: str
    resource: str
    client: Client
    tokens: Tokens
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource_metadata: str | None = None
    """Where the server's metadata was found when its 401 said so."""


def registration(redirect_uri: str, scopes: Sequence[str]) -> dict[str, Any]:
    """What we tell an authorization server of ourselves (RFC 7591)."""
    document: dict[str, Any] = {
        "client_name": "mooring",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    return document | ({"scope": " ".join(scopes)} if scopes else {})


def read_client(raw: object) -> Client:
    """The client in the answer to a registration.

    Raises:
        RefusedError: there is none.
    """
    fields = _fields(raw)
    client_id, secret = fields.get("client_id"), fields.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise RefusedError("the authorization server registered us without telling our id")
    if not isinstance(secret, str) or not secret:
        return Client(client_id=client_id)
    method = fields.get("token_endpoint_auth_method")
    if method == "none":
        return Client(client_id=client_id)
    by = method if method == "client_secret_post" else "client_secret_basic"
    return Client(client_id=client_id, client_secret=secret, secret_by=by)


def known_client(client_id: str, secret: str | None, server: AuthServer) -> Client:
    """A client that was registered beforehand, as this server wants it to show its secret."""
    if secret is None:
        return Client(client_id=client_id)
    only_post = "client_secret_basic" not in server.secrets_by and "client_secret_post" in server.secrets_by
    by = "client_secret_post" if only_post else "client_secret_basic"
    return Client(client_id=client_id, client_secret=secret, secret_by=by)


def client_form(client: Client, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The form and the headers with which a client sends a request to its authorization server."""
    if client.secret_by == "client_secret_basic" and client.client_secret is not None:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        return dict(form), {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    full = {**form, "client_id": client.client_id}
    if client.client_secret is not None and client.secret_by == "client_secret_post":
        full["client_secret"] = client.client_secret
    return full, {}


def read_tokens(raw: object, now: float, *, asked: Sequence[str] = (), old: Tokens | None = None) -> Tokens:
    """The tokens in an answer; where it sends no new refresh token, the old one stays good.

    Raises:
        RefusedError: there is no usable token in it.
    """
    fields = _fields(raw)
    access, kind, refresh = fields.get("access_token"), fields.get("token_type"), fields.get("refresh_token")
    if not isinstance(access, str) or not _HEADER_SAFE.fullmatch(access):
        raise RefusedError("the authorization server gave no usable access token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise RefusedError("the authorization server gave a token of a kind that is not 'Bearer'")
    life = _life(fields.get("expires_in"))
    kept = old.refresh if old is not None else None
    before = old.scopes if old is not None else tuple(asked)
    return Tokens(
        access=access,
        refresh=refresh if isinstance(refresh, str) and refresh else kept,
        expires_at=now + life,
        renew_at=now + life - min(EARLY, life / 2) if life < math.inf else math.inf,
        scopes=scopes_in(fields.get("scope")) or before,
    )


def refusal_in(raw: object) -> str:
    """The error code in a refusal: a word of the standard, never free text."""
    fields = _fields(raw)
    return word(fields.get("error"))


def grant_to_json(grant: Grant) -> dict[str, Any]:
    """The grant as it is kept; secrets stand in `secrets` alone."""
    tokens, client = grant.tokens, grant.client
    return {
        "version": 1,
        "issuer": grant.issuer,
        "resource": grant.resource,
        "token_endpoint": grant.token_endpoint,
        "revocation_endpoint": grant.revocation_endpoint,
        "resource_metadata": grant.resource_metadata,
        "client_id": client.client_id,
        "secret_by": client.secret_by,
        "expires_at": tokens.expires_at if tokens.expires_at < math.inf else None,
        "renew_at": tokens.renew_at if tokens.renew_at < math.inf else None,
        "scopes": list(tokens.scopes),
        "secrets": {
            "access": tokens.access,
            "refresh": tokens.refresh,
            "client_secret": client.client_secret,
        },
    }


def grant_from_json(raw: object) -> Grant | None:
    """The grant that was kept; None when it is damaged or of another version."""
    fields = _fields(raw)
    secrets = _fields(fields.get("secrets"))
    needed = [fields.get(name) for name in ("issuer", "resource", "token_endpoint", "client_id", "secret_by")]
    access = secrets.get("access")
    if fields.get("version") != 1 or not all(isinstance(item, str) for item in (*needed, access)):
        return None
    return Grant(
        issuer=fields["issuer"],
        resource=fields["resource"],
        token_endpoint=fields["token_endpoint"],
        revocation_endpoint=_optional(fields, "revocation_endpoint"),
        resource_metadata=_optional(fields, "resource_metadata"),
        client=Client(
            client_id=fields["client_id"],
            client_secret=_optional(secrets, "client_secret"),
            secret_by=fields["secret_by"],
        ),
        tokens=Tokens(
            access=cast("str", access),
            refresh=_optional(secrets, "refresh"),
            expires_at=_time(fields.get("expires_at")),
            renew_at=_time(fields.get("renew_at")),
            scopes=scopes_in(fields.get("scopes")),
        ),
    )


def _fields(raw: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", raw) if isinstance(raw, dict) else EMPTY


def _life(value: object) -> float:
    """Seconds that a token lives; some servers send them as text."""
    try:
        life = float(value) if isinstance(value, int | float | str) else math.inf
    except (ValueError, OverflowError):
        return math.inf
    return life if 0 < life <= _LONGEST_LIFE else math.inf


def _time(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.inf


def _optional(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def word(value: object) -> str:
    """An error code of the standard; anything else is not shown."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else "an error without a known name"
