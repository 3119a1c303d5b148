"""A real authorization server on loopback, in front of the HTTP lab: its checks and its misbehaviour
are configured. `browse` acts as the user with the browser.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import aiohttp
import jwt
from aiohttp import web

from tests.lab.http import HttpLab

PROTECTED = "/.well-known/oauth-protected-resource"
METADATA = "/.well-known/oauth-authorization-server"


@dataclass
class Issued:
    scopes: set[str]
    expires_at: float
    resource: str | None
    user: str | None = None
    actor: str | None = None


@dataclass
class AuthLab:
    """The switches are plain attributes: turn them at any time."""

    lab: HttpLab = field(default_factory=HttpLab)
    s256: bool = True
    registers: bool = True
    documents: bool = False
    rotates: bool = True
    gives_refresh: bool = True
    revokes: bool = True
    life: int = 3600
    token_type: str = "Bearer"
    token_delay: float = 0.0
    names_itself: bool = True
    iss: str | None = None
    """What stands in `iss` instead of the issuer; "" leaves it out."""
    denies: str | None = None
    hint: bool = True
    """The 401 says where the metadata is and which scopes are wanted."""
    scope: str = "mcp"
    metadata: dict[str, Any] = field(default_factory=dict)
    """Laid over the authorization server's metadata."""
    protected: dict[str, Any] | None = field(default_factory=dict)
    """Laid over the server's own metadata; None: it has none."""
    at_home: bool = False
    """The guarded server's own origin is the issuer, as in 2025-03-26."""
    bare: bool = False
    """The guarded server's own origin has the default endpoints of 2025-03-26, and there is no metadata."""
    bare_status: int = 400
    """What `/authorize` answers there to a request without parameters; 0: it ends the connection."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Path -> where it redirects to."""
    needs: dict[str, str] = field(default_factory=dict)
    """Tool -> the scope that a call of it needs."""
    page: bool = False
    """`/authorize` is a page with a link to agree, as a person sees it."""
    trusted: dict[str, str] = field(default_factory=dict)
    """Issuer -> the public key of the assertions that it takes as a grant (RFC 7523)."""
    wants_typ: str | None = None
    """The `typ` of these assertions."""

    def __post_init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, Issued] = {}
        self.refresh: dict[str, set[str]] = {}
        self.clients: dict[str, dict[str, Any]] = {}
        self.seen_tokens: list[str | None] = []
        self.seen_assertions: set[str] = set()
        self.refusals: list[str] = []
        """Why assertions were refused."""
        self._runner: web.AppRunner | None = None
        self.issuer = ""
        self.ssl_context: ssl.SSLContext | None = None
        self.host = "127.0.0.1"

    async def __aenter__(self) -> AuthLab:
        app = web.Application(middlewares=[self._note])
        app.router.add_get(METADATA, self._metadata)
        app.router.add_post("/register", self._register)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/revoke", self._revoke)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.ssl_context).start()
        scheme = "https" if self.ssl_context else "http"
        self.issuer = f"{scheme}://{self.host}:{self._runner.addresses[0][1]}"
        self.lab.middlewares.append(self._guard)
        await self.lab.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.lab.__aexit__()
        assert self._runner is not None
        await self._runner.cleanup()

    def config(self, name: str = "web", /, **settings: Any) -> Any:
        return self.lab.config(name, **settings)

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self.lab.origin if self.at_home or self.bare else self.issuer

    def count(self, path: str, **fields: str) -> int:
        """How many requests with these fields came to a path."""
        return sum(
            1 for p, body in self.requests if p == path and all(body.get(k) == v for k, v in fields.items())
        )

    def refreshes(self) -> int:
        return self.count("/token", grant_type="refresh_token")

    def revoke_all(self) -> None:
        """Every token is worth nothing from now on; refresh tokens stay good."""
        self.tokens.clear()

    # --- the server that is guarded -------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith(PROTECTED):
            return self._protected(request)
        if self.at_home and request.path == METADATA:
            return await self._metadata(request)
        if self.bare and request.path == "/register":
            return await self._register(request)
        if self.bare and request.path == "/authorize":
            if not self.bare_status and not request.query and request.transport is not None:
                request.transport.close()  # as a handler that crashes
            return (
                await self._authorize(request)
                if request.query
                else web.Response(status=self.bare_status or 500)
            )
        if self.bare and request.path == "/token":
            return await self._token(request)
        sent = request.headers.get("Authorization")
        token = sent.removeprefix("Bearer ") if sent else None
        self.seen_tokens.append(token)
        issued = self.tokens.get(token or "")
        if issued is None or issued.expires_at < time.time():
            return self._challenge(401, self.scope, "invalid_token" if token else None)
        if request.method == "POST":
            message = await request.json()
            tool = message.get("params", {}).get("name") if message.get("method") == "tools/call" else None
            if tool in self.needs and self.needs[tool] not in issued.scopes:
                return self._challenge(403, self.needs[tool], "insufficient_scope")
        return await handler(request)

    def _challenge(self, status: int, scope: str, error: str | None) -> web.Response:
        said = f', error="{error}"' if error else ""
        if self.hint or status == 403:
            where = f"{self.lab.origin}{PROTECTED}/mcp"
            said += f', scope="{scope}", resource_metadata="{where}"'
        return web.Response(status=status, headers={"WWW-Authenticate": f'Bearer realm="lab"{said}'})

    def _protected(self, request: web.Request) -> web.Response:
        self.requests.append((PROTECTED, {}))
        if self.protected is None:
            return web.Response(status=404)
        if target := self.redirects.get(PROTECTED):
            return web.Response(status=302, headers={"Location": target})
        return web.json_response(
            {
                "resource": self.lab.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": ["mcp", "offline_access"],
                **self.protected,
            }
        )

    # --- the authorization server ---------------------------------------------------------------

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path == "/register":
            body: dict[str, Any] = await request.json()
        else:
            body = {**dict(request.query), **dict(await request.post())}
        self.requests.append((request.path, body))
        if target := self.redirects.get(request.path):
            return web.Response(status=307, headers={"Location": target})
        return await handler(request)

    async def _metadata(self, request: web.Request) -> web.Response:
        document: dict[str, Any] = {
            "issuer": self.name,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "authorization_response_iss_parameter_supported": self.names_itself,
            "client_id_metadata_document_supported": self.documents,
        }
        if self.s256:
            document["code_challenge_methods_supported"] = ["S256"]
        if self.registers:
            document["registration_endpoint"] = f"{self.issuer}/register"
        if self.revokes:
            document["revocation_endpoint"] = f"{self.issuer}/revoke"
        return web.json_response({**document, **self.metadata})

    async def _register(self, request: web.Request) -> web.Response:
        document = await request.json()
        client_id = f"client-{len(self.clients) + 1}"
        self.clients[client_id] = document
        return web.json_response({**document, "client_id": client_id}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = request.query
        client = self.clients.get(asked["client_id"], {})
        if not self.documents and asked["redirect_uri"] not in client.get("redirect_uris", []):
            return web.Response(status=400, text="redirect_uri")
        if asked.get("code_challenge_method") != "S256" or asked["response_type"] != "code":
            return web.Response(status=400, text="pkce")
        if self.page and "agreed" not in asked:
            href = f"/authorize?{urlencode({**asked, 'agreed': 'yes'})}".replace("&", "&amp;")
            text = f'<!doctype html><title>Lab login</title><a id="agree" href="{href}">Log in</a>'
            return web.Response(text=text, content_type="text/html")
        back = {"state": asked["state"]}
        if self.iss != "":
            back["iss"] = self.iss or self.name
        if self.denies:
            back["error"] = self.denies
        else:
            back["code"] = secrets.token_urlsafe(12)
            self.codes[back["code"]] = dict(asked)
        return web.Response(status=302, headers={"Location": f"{asked['redirect_uri']}?{urlencode(back)}"})

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        await asyncio.sleep(self.token_delay)
        client_id = str(form.get("client_id", ""))
        confidential = "Authorization" in request.headers or "client_assertion" in form
        if confidential:
            known = verified_client(request, form, self.clients, self.name, self.seen_assertions)
            if known is None:
                return _error("invalid_client", 401)
            client_id = known
        user = None
        match form.get("grant_type"):
            case "authorization_code":
                asked = self.codes.pop(str(form["code"]), None)
                if asked is None or asked["client_id"] != client_id or not _proven(asked, form):
                    return _error("invalid_grant")
                if form["resource"] != asked["resource"] or form["redirect_uri"] != asked["redirect_uri"]:
                    return _error("invalid_target")
                scopes = set(asked.get("scope", "").split())
            case "refresh_token":
                known = self.refresh.get(str(form["refresh_token"]))
                if known is None:
                    return _error("invalid_grant")
                scopes = known
                if self.rotates:
                    del self.refresh[str(form["refresh_token"])]
            case "client_credentials":
                if not confidential:
                    return _error("invalid_client", 401)
                scopes = set(str(form.get("scope", "")).split())
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                user, problem = self._asserted(form, client_id)
                if problem is not None:
                    self.refusals.append(problem)
                    return _error("invalid_grant")
                scopes = set(str(form.get("scope", "")).split())
            case _:
                return _error("unsupported_grant_type")
        return self._issue(scopes, str(form.get("resource")), form["grant_type"] == "refresh_token", user)

    def _asserted(self, form: dict[str, Any], client_id: str) -> tuple[str | None, str | None]:
        """The user of an assertion, or why it is refused."""
        token = str(form.get("assertion"))
        try:
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss", "")
            said = jwt.decode(
                token,
                self.trusted.get(issuer) or next(iter(self.trusted.values())),
                algorithms=["ES256"],
                audience=self.name,
                issuer=list(self.trusted),
                options={"require": ["exp", "sub", "jti"]},
            )
        except jwt.PyJWTError as problem:
            return None, type(problem).__name__
        if self.wants_typ and jwt.get_unverified_header(token).get("typ") != self.wants_typ:
            return None, "typ"
        if said.get("resource", self.lab.url) != self.lab.url or form.get("resource") != self.lab.url:
            return None, "resource"
        if "client_id" in said and said["client_id"] != client_id:
            return None, "client_id"
        if said["jti"] in self.seen_assertions:
            return None, "replay"
        self.seen_assertions.add(said["jti"])
        return said["sub"], None

    def grant(self, scopes: set[str], life: int, *, user: str, actor: str) -> str:
        """A token that a token service issues for the guarded server."""
        access = f"exchanged-{secrets.token_urlsafe(12)}"
        self.tokens[access] = Issued(scopes, time.time() + life, self.lab.url, user, actor)
        return access

    def _issue(self, scopes: set[str], resource: str, again: bool, user: str | None = None) -> web.Response:
        access = f"access-{secrets.token_urlsafe(12)}"
        self.tokens[access] = Issued(scopes, time.time() + self.life, resource, user)
        answer = {"access_token": access, "token_type": self.token_type, "expires_in": self.life}
        if scopes:
            answer["scope"] = " ".join(sorted(scopes))
        if self.gives_refresh and (self.rotates or not again):
            answer["refresh_token"] = f"refresh-{secrets.token_urlsafe(12)}"
            self.refresh[answer["refresh_token"]] = scopes
        return web.json_response(answer)

    async def _revoke(self, request: web.Request) -> web.Response:
        token = str((await request.post())["token"])
        self.tokens.pop(token, None)
        self.refresh.pop(token, None)
        return web.Response(status=200)


async def browse(url: str, *, follow: bool = True, trusted: ssl.SSLContext | bool = True) -> tuple[int, str]:
    """Open a login page, say yes, and come back: the status and the text of the last page; without
    `follow`, the address that the browser was sent to."""
    async with aiohttp.ClientSession() as session:
        async with session.get(url, allow_redirects=False, ssl=trusted) as answer:
            assert answer.status == 302, await answer.text()
            back = answer.headers["Location"]
        if not follow:
            return 302, back
        async with session.get(back, allow_redirects=False) as page:
            return page.status, await page.text()


def verified_client(
    request: web.Request,
    form: dict[str, Any],
    clients: dict[str, dict[str, Any]],
    issuer: str,
    seen: set[str],
) -> str | None:
    """The client that has proved its identity, by a secret or by a signed assertion for this issuer."""
    if sent := request.headers.get("Authorization"):
        client_id, _, secret = base64.b64decode(sent.removeprefix("Basic ")).decode().partition(":")
        known = clients.get(unquote(client_id), {}).get("client_secret")
        return unquote(client_id) if known is not None and known == unquote(secret) else None
    client_id = str(form.get("client_id"))
    client = clients.get(client_id, {})
    if "client_assertion" not in form:
        known = client.get("client_secret")
        return client_id if known is not None and known == form.get("client_secret") else None
    try:
        said = jwt.decode(
            str(form["client_assertion"]),
            client.get("public_key", ""),
            algorithms=["ES256", "RS256", "EdDSA"],
            audience=issuer,
            issuer=client_id,
            options={"require": ["exp", "sub", "jti", "iat"]},
        )
    except (jwt.PyJWTError, ValueError):
        return None
    if said["sub"] != client_id or said["jti"] in seen or said["exp"] - said["iat"] > 300:
        return None
    seen.add(said["jti"])
    return client_id


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def _proven(asked: dict[str, str], form: dict[str, Any]) -> bool:
    digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]


def _error(code: str, status: int = 400) -> web.Response:
    return web.json_response({"error": code, "error_description": "as the lab is configured"}, status=status)
