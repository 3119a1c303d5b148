"""The gateway as a protected resource: the tokens it accepts, and its metadata."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.lab.certificates import Authority
from tests.lab.proxy import ProxyLab
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ISSUER, AUDIENCE = "https://issuer.example", "https://gateway.example/mcp"


def token(
    key: Any = KEY, algorithm: str = "ES256", headers: dict[str, Any] | None = None, **claims: Any
) -> str:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "exp": time.time() + 300, "scope": "tools"}
    said = {name: value for name, value in {**said, **claims}.items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers=headers)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "key.pem"
    file.write_bytes(PUBLIC)
    oauth = {"issuer": ISSUER, "key_file": str(file), "algorithms": ["ES256"]}
    profiles = {"admin": {"scopes": ["admin"]}}
    return {"oauth": oauth, "url": "https://gateway.example", "scopes": ["tools"], "profiles": profiles}


async def test_a_good_token_comes_in_under_its_own_name(serving: Any, settings: dict[str, Any]) -> None:
    async with serving(lab_server(), gateway=settings) as here:
        client = await here.caller(modern=False, token=token())
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert [c.principal.name for c in here.serving.gateway.registry] == [f"{ISSUER}#ana"]


FORGED = {
    "unsigned": lambda: token(None, "none"),
    "signed by somebody else": lambda: token(OTHER),
    "signed with the public key as a secret": lambda: _confused(),
    "for another audience": lambda: token(aud="https://other.example"),
    "for nobody": lambda: token(aud=None),
    "of another issuer": lambda: token(iss="https://issuer.example/"),
    "of no issuer": lambda: token(iss=None),
    "expired": lambda: token(exp=time.time() - 120),
    "without an end": lambda: token(exp=None),
    "not yet good": lambda: token(nbf=time.time() + 300),
    "of nobody": lambda: token(sub=None),
    "cut": lambda: token()[:-3],
    "no token": lambda: "a.b.c",
}


def _confused() -> str:
    """HS256 with the public key for a secret, as if both sides shared it."""
    import base64
    import hashlib
    import hmac

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "exp": time.time() + 300, "scope": "tools"}
    body = part(json.dumps(claims).encode())
    mark = part(hmac.new(PUBLIC, head + b"." + body, hashlib.sha256).digest())
    return b".".join((head, body, mark)).decode()


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_token_is_refused(serving: Any, settings: dict[str, Any], kind: str) -> None:
    async with serving(lab_server(), gateway=settings) as here:
        client = await here.caller(token=FORGED[kind]())
        reply = await client.ask("tools/list")
        assert reply.status == 401
        challenge = reply.headers["WWW-Authenticate"]
        assert 'error="invalid_token"' in challenge
        assert "https://gateway.example/.well-known/oauth-protected-resource/mcp" in challenge


async def test_a_token_without_the_scope_of_a_profile_is_rejected_with_the_missing_scope(
    serving: Any, settings: dict[str, Any]
) -> None:
    async with serving(lab_server(), gateway=settings) as here:
        client = await here.caller(token=token(), path="/mcp/admin")
        reply = await client.ask("tools/list")
        assert reply.status == 403
        assert 'error="insufficient_scope"' in reply.headers["WWW-Authenticate"]
        assert 'scope="tools admin"' in reply.headers["WWW-Authenticate"]
        better = await here.caller(token=token(scope="tools admin"), path="/mcp/admin")
        assert (await better.ask("tools/list")).status == 200


async def test_the_gateway_serves_protected_resource_metadata(serving: Any, settings: dict[str, Any]) -> None:
    async with serving(gateway=settings) as here:
        for path, resource in (("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/admin", "/mcp/admin")):
            url = here.base + "/.well-known/oauth-protected-resource" + path
            async with here.http.get(url) as response:
                said = await response.json()
            assert said["resource"] == "https://gateway.example" + resource
            assert said["authorization_servers"] == [ISSUER]
        async with here.http.get(here.base + "/.well-known/oauth-protected-resource/mcp/none") as response:
            assert response.status == 404


async def test_keys_are_fetched_once_and_again_when_a_new_one_appears(serving: Any) -> None:
    fetched = 0
    keys = {"one": KEY}

    async def jwks(request: web.Request) -> web.Response:
        nonlocal fetched
        fetched += 1
        known = [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "ES256"}
            for name, key in keys.items()
        ]
        return web.json_response({"keys": known})

    app = web.Application()
    app.router.add_get("/keys", jwks)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    oauth = {
        "issuer": ISSUER,
        "audience": [AUDIENCE],
        "jwks_url": f"http://127.0.0.1:{runner.addresses[0][1]}/keys",
        "algorithms": ["ES256"],
    }
    try:
        async with serving(lab_server(), gateway={"oauth": oauth}) as here:
            for _ in range(5):
                client = await here.caller(token=token(headers={"kid": "one"}))
                assert (await client.ask("tools/list")).status == 200
            assert fetched == 1
            unknown = await here.caller(token=token(OTHER, headers={"kid": "two"}))
            assert (await unknown.ask("tools/list")).status == 401
            assert fetched == 1  # not again so soon: a stranger could make us ask all day
    finally:
        await runner.cleanup()


async def test_keys_are_fetched_with_the_tls_and_proxy_settings_of_the_host(
    serving: Any, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    known = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key())), "kid": "one", "alg": "ES256"}

    async def jwks(request: web.Request) -> web.Response:
        return web.json_response({"keys": [known]})

    app = web.Application()
    app.router.add_get("/keys", jwks)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server("login.test")).start()
    oauth = {
        "issuer": ISSUER,
        "audience": [AUDIENCE],
        "jwks_url": f"https://login.test:{runner.addresses[0][1]}/keys",  # which the proxy alone can resolve
        "algorithms": ["ES256"],
    }
    try:
        async with ProxyLab() as proxy:
            proxy.names["login.test"] = "127.0.0.1"
            tls = {"ca": str(authority.file)}
            async with serving(lab_server(), gateway={"oauth": oauth}, tls=tls, proxy=proxy.url) as here:
                client = await here.caller(token=token(headers={"kid": "one"}))
                assert (await client.ask("tools/list")).status == 200
            assert proxy.asked[0][0] == "CONNECT"
    finally:
        await runner.cleanup()
