"""A real identity provider and token service on loopback: it signs, checks and exchanges tokens.

`claims` and `header` change what it signs, `key` with what: an identity provider that errs or lies.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.lab.oauth import METADATA, AuthLab, verified_client

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:"


def new_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def public(key: Any) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def pem(key: Any) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def signed(key: Any, header: dict[str, Any] | None = None, /, **claims: Any) -> str:
    now = int(time.time())
    said = {"iat": now, "exp": now + 300, "jti": secrets.token_hex(8), **claims}
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm="ES256", headers=header)


@dataclass
class IdpLab:
    clients: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"host": {"client_secret": "s3cret-idp"}}
    )
    claims: dict[str, Any] = field(default_factory=dict)
    """Laid over the claims of assertions; None leaves one out."""
    header: dict[str, Any] = field(default_factory=lambda: {"typ": "oauth-id-jag+jwt"})
    answer: dict[str, Any] = field(default_factory=dict)
    """Laid over its answers."""
    audiences: dict[str, AuthLab] = field(default_factory=dict)
    """Audience or resource -> the server for which it issues access tokens."""
    key: Any = None
    """Signs instead of its own key."""
    says: str | None = None
    """Answered instead of a token, as it is."""
    delay: float = 0.0
    denies: str | None = None
    life: int = 300

    def __post_init__(self) -> None:
        self.own_key = new_key()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.seen: set[str] = set()
        self.issuer = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> IdpLab:
        app = web.Application()
        app.router.add_get(METADATA, self._metadata)
        app.router.add_post("/token", self._token)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.issuer = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def id_token(self, user: str, **claims: Any) -> str:
        """What single sign-on gives to the client `host`."""
        return signed(self.own_key, None, **{"iss": self.issuer, "sub": user, "aud": "host", **claims})

    def trusted_by(self, *servers: AuthLab) -> None:
        for server in servers:
            server.trusted[self.issuer] = public(self.own_key)

    async def _metadata(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.issuer, "token_endpoint": f"{self.issuer}/token"})

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(form)
        await asyncio.sleep(self.delay)
        if self.says is not None:
            return web.Response(text=self.says, content_type="application/json")
        client = verified_client(request, form, self.clients, self.issuer, self.seen)
        if client is None:
            return self._no("invalid_client", "client authentication")
        if form.get("grant_type") != EXCHANGE:
            return self._no("unsupported_grant_type", "grant_type")
        if self.denies:
            return self._no(self.denies, "as the lab is configured")
        try:
            who = jwt.decode(
                form["subject_token"],
                public(self.own_key),
                algorithms=["ES256"],
                issuer=self.issuer,
                options={"require": ["exp", "sub"], "verify_aud": False},
            )
        except jwt.PyJWTError as problem:
            return self._no("invalid_grant", f"subject_token: {type(problem).__name__}")
        if form["requested_token_type"] == f"{TYPE}id-jag":
            return self._assertion(form, who["sub"])
        return self._access(form, client, who["sub"])

    def _assertion(self, form: dict[str, str], user: str) -> web.Response:
        if form.get("subject_token_type") != f"{TYPE}id_token":
            return self._no("invalid_request", "subject_token_type")
        said: dict[str, Any] = {
            "iss": self.issuer,
            "sub": user,
            "aud": form["audience"],
            "resource": form["resource"],
            "client_id": "mooring",
            "scope": form.get("scope", ""),
        }
        token = signed(self.key or self.own_key, self.header, **{**said, **self.claims})
        answer = {"issued_token_type": f"{TYPE}id-jag", "access_token": token, "token_type": "N_A"}
        return web.json_response({**answer, "expires_in": 300, **self.answer})

    def _access(self, form: dict[str, str], client: str, user: str) -> web.Response:
        target = self.audiences.get(form.get("audience") or form.get("resource", ""))
        if target is None:
            return self._no("invalid_target", "audience")
        scopes = set(form.get("scope", "").split())
        token = target.grant(scopes, self.life, user=user, actor=client)
        answer = {"issued_token_type": f"{TYPE}access_token", "access_token": token, "token_type": "Bearer"}
        return web.json_response(
            {**answer, "expires_in": self.life, "scope": " ".join(scopes), **self.answer}
        )

    def _no(self, error: str, reason: str) -> web.Response:
        self.refusals.append(reason)
        return web.json_response({"error": error, "error_description": reason}, status=400)
