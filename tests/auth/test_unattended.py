"""Tokens without a browser: client credentials, workload identity, enterprise-managed authorization.

The identity provider and the authorization servers are real ones on loopback, which check signatures, times,
audiences and replays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from mooring import ServerConfig
from mooring.config.models import ConfigSource
from mooring.config.network import auth_extensions
from tests.lab.idp import IdpLab, new_key, pem, public, signed
from tests.lab.oauth import AuthLab
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

PREFIX = "io.modelcontextprotocol/"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@asynccontextmanager
async def company(**settings: Any) -> AsyncIterator[tuple[IdpLab, AuthLab]]:
    """An identity provider, and a server whose authorization server trusts it."""
    async with IdpLab(**settings) as idp, AuthLab(wants_typ="oauth-id-jag+jwt") as auth:
        idp.trusted_by(auth)
        auth.clients["mooring"] = {"client_secret": "s3cret-as"}
        yield idp, auth


def enterprise(idp: IdpLab, token: str, /, **more: Any) -> dict[str, Any]:
    provider = {"issuer": idp.issuer, "client_id": "host", "client_secret": "s3cret-idp"}
    own = {"client_id": "mooring", "client_secret": "s3cret-as", **more}
    return {"auth": {**own, "idp": {**provider, "subject_token": token}}}


async def error_of(host: Any) -> str:
    """Why the server refuses access."""
    await until(lambda: host.status()[0].state == "needs-auth")
    return str(host.status()[0].error)


# --- client credentials ---------------------------------------------------------------------------

KEYS = {
    "EC": new_key,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("kind", KEYS)
async def test_a_client_that_has_a_private_key_signs_an_assertion_for_this_authorization_server(
    kind: str, hosting: Any, tmp_path: Path
) -> None:
    key = KEYS[kind]()
    file = tmp_path / "client.pem"
    file.write_text(pem(key))
    async with AuthLab() as auth:
        auth.clients["robot"] = {"public_key": public(key)}
        settings = {"type": "client_credentials", "client_id": "robot", "private_key": f"${{file:{file}}}"}
        async with hosting(auth.config(auth=settings)) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            auth.revoke_all()
            assert (await host.call("mcp_web_echo", {"text": "y"})).text == "y"
        forms = [form for path, form in auth.requests if path == "/token"]
        assert len({form["client_assertion"] for form in forms}) == len(forms) == 2
        assert all("client_secret" not in form and form["resource"] == auth.lab.url for form in forms)


@pytest.mark.parametrize("text", ["no key at all", "", "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n"])
async def test_a_key_that_cannot_be_used_is_named_and_never_shown(
    text: str, hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBOT_KEY", text or "{}")
    async with AuthLab() as auth:
        settings = {"type": "client_credentials", "client_id": "robot", "private_key": "${ROBOT_KEY}"}
        async with hosting(auth.config(auth=settings)) as host:
            said = await error_of(host)
            assert "`private_key` in `auth` is not a usable private key" in said
            assert not text or text.splitlines()[-1] not in said
        assert auth.count("/token") == 0


async def test_a_key_of_another_client_is_refused_with_the_word_of_the_authorization_server(
    hosting: Any,
) -> None:
    async with AuthLab() as auth:
        auth.clients["robot"] = {"public_key": public(new_key())}
        settings = {"type": "client_credentials", "client_id": "robot", "private_key": pem(new_key())}
        async with hosting(auth.config(auth=settings)) as host:
            said = await error_of(host)
            assert (
                f"the client credentials grant at {auth.issuer} was refused (HTTP 401, invalid_client)"
                in said
            )


# --- workload identity ----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["file", "cmd"])
async def test_the_jwt_of_a_workload_is_read_again_for_each_token(
    source: str, hosting: Any, tmp_path: Path
) -> None:
    platform, file = new_key(), tmp_path / "token"
    async with AuthLab() as auth:
        auth.trusted["https://platform"] = public(platform)

        def rotate() -> None:
            claims = {"iss": "https://platform", "sub": "pod-1", "aud": auth.issuer}
            file.write_text(signed(platform, None, **claims) + "\n")

        rotate()
        reference = f"${{file:{file}}}" if source == "file" else f"${{cmd:cat {file}}}"
        written = ConfigSource(scope="explicit")
        async with hosting(auth.config(auth={"assertion": reference}, source=written)) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            auth.revoke_all()
            rotate()  # as a platform does
            assert (await host.call("mcp_web_echo", {"text": "y"})).text == "y"
            auth.revoke_all()  # the same JWT once more: this authorization server takes each once
            await host.call("mcp_web_echo", {"text": "z"})
            assert "the workload's JWT at" in await error_of(host)
        assert set(auth.refusals) == {"replay"}
        forms = [form for path, form in auth.requests if path == "/token"]
        assert forms[0]["grant_type"] == BEARER
        assert "client_id" not in forms[0]
        assert auth.count("/register") == auth.count("/authorize") == 0


WORKLOAD = {
    "aud": ({"aud": "https://other.example"}, "its aud is not"),
    "two audiences": ({"aud": ["HERE", "https://other.example"]}, "its aud is not"),
    "expired": ({"exp": int(time.time()) - 120}, "has expired"),
    "no end": ({"exp": None}, "has no exp"),
}


@pytest.mark.parametrize("case", WORKLOAD)
async def test_a_jwt_that_another_authorization_server_could_use_is_not_sent(case: str, hosting: Any) -> None:
    changes, reason = WORKLOAD[case]
    platform = new_key()
    async with AuthLab() as auth:
        auth.trusted["https://platform"] = public(platform)
        claims: dict[str, Any] = {"iss": "https://platform", "sub": "pod-1", "aud": auth.issuer, **changes}
        if case == "two audiences":
            claims["aud"] = [auth.issuer, "https://other.example"]
        async with hosting(auth.config(auth={"assertion": signed(platform, None, **claims)})) as host:
            assert reason in await error_of(host)
        assert auth.count("/token") == 0


async def test_a_hostile_server_does_not_get_the_jwt_of_another_ones_authorization_server(
    hosting: Any,
) -> None:
    platform = new_key()
    async with AuthLab() as good, AuthLab() as evil:
        token = signed(platform, None, iss="https://platform", sub="pod-1", aud=good.issuer)
        async with hosting(evil.config(auth={"assertion": token})) as host:
            assert f"its aud is not {evil.issuer!r}" in await error_of(host)
        assert all(token not in str(body) for _, body in evil.requests)


async def test_a_file_that_is_gone_is_named(hosting: Any, tmp_path: Path) -> None:
    async with AuthLab() as auth:
        settings = {"assertion": f"${{file:{tmp_path / 'gone'}}}"}
        async with hosting(auth.config(auth=settings)) as host:
            [status] = host.status()
            assert "gone" in str(status.error)
        assert auth.count("/token") == 0


# --- enterprise-managed authorization -------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_identity_provider_vouches_for_the_user_and_the_extension_is_declared(
    era: str, hosting: Any
) -> None:
    async with company() as (idp, auth):
        auth.lab.era = era
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        [asked] = idp.requests
        assert asked["audience"] == auth.issuer
        assert asked["resource"] == auth.lab.url
        [granted] = [form for path, form in auth.requests if path == "/token"]
        assert granted["grant_type"] == BEARER
        assert {issued.user for issued in auth.tokens.values()} == {"ana"}
        assert asked["subject_token"] not in str(auth.requests) + str(auth.lab.seen)
        opening = next(m for m in auth.lab.messages if m["method"] in ("initialize", "server/discover"))
        able = (
            opening["params"].get("capabilities") or opening["params"]["_meta"][f"{PREFIX}clientCapabilities"]
        )
        assert able["extensions"][f"{PREFIX}enterprise-managed-authorization"] == {}


async def test_fifty_calls_at_once_renew_once(hosting: Any) -> None:
    async with company(delay=0.05) as (idp, auth):
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            auth.revoke_all()
            calls = [host.call("mcp_web_echo", {"text": str(n)}) for n in range(50)]
            assert [result.text for result in await asyncio.gather(*calls)] == [str(n) for n in range(50)]
        assert len(idp.requests) == 2
        assert auth.count("/token") == 2


LIES = {
    "aud": ({"aud": "https://other.example"}, {}, "its aud is not"),
    "iss": ({"iss": "https://other.example"}, {}, "its iss is not"),
    "resource": ({"resource": "https://other.example/mcp"}, {}, "its resource is not"),
    "client": ({"client_id": "someone-else"}, {}, "its client_id is not"),
    "typ": ({}, {"typ": "JWT"}, "typ is not 'oauth-id-jag+jwt'"),
    "expired": ({"exp": int(time.time()) - 120}, {}, "has expired"),
    "not yet": ({"nbf": int(time.time()) + 3600}, {}, "is not valid yet"),
    "no jti": ({"jti": None}, {}, "has no jti"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_assertion_that_is_not_for_this_server_is_not_presented(lie: str, hosting: Any) -> None:
    claims, header, reason = LIES[lie]
    async with company(claims=claims) as (idp, auth):
        idp.header |= header
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            said = await error_of(host)
            assert "step 1 of 2: the identity provider's assertion" in said
            assert reason in said
        assert auth.count("/token") == 0


@pytest.mark.parametrize("said", ["x" * 300_000, "<html>", "[1]"], ids=["too large", "html", "a list"])
async def test_an_identity_provider_that_sends_something_else_is_named_with_its_step(
    said: str, hosting: Any
) -> None:
    async with company() as (idp, auth):
        idp.says = said
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            problem = await error_of(host)
            assert "step 1 of 2" in problem
            assert "identity provider" in problem
        assert auth.count("/token") == 0


async def test_an_assertion_without_a_signature_is_not_presented(hosting: Any) -> None:
    async with company() as (idp, auth):
        claims = {"iss": idp.issuer, "aud": auth.issuer, "client_id": "mooring", "jti": "x", "exp": 2**40}
        idp.answer["access_token"] = jwt.encode(claims, None, algorithm="none", headers=idp.header)
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert "assertion is not a signed JWT" in await error_of(host)
        assert auth.count("/token") == 0


async def test_a_token_that_is_not_usable_is_named_with_its_step(hosting: Any) -> None:
    async with company() as (idp, auth):
        auth.token_type = "DPoP"
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            problem = await error_of(host)
            assert f"step 2 of 2, the assertion at the authorization server {auth.issuer}: " in problem
            assert "'Bearer'" in problem


async def test_an_assertion_that_comes_a_second_time_is_refused_as_a_replay(hosting: Any) -> None:
    async with company(claims={"jti": "always the same"}) as (idp, auth):
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            auth.revoke_all()
            await host.call("mcp_web_echo", {"text": "y"})
            assert "replay" in await error_of(host)
        assert auth.count("/token") == 1


async def test_an_assertion_that_the_authorization_server_saw_before_is_refused_in_step_two(
    hosting: Any,
) -> None:
    async with company(claims={"jti": "used by a thief"}) as (idp, auth):
        auth.seen_assertions.add("used by a thief")
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            said = await error_of(host)
            assert f"step 2 of 2, the assertion at the authorization server {auth.issuer}," in said
            assert "(HTTP 400, invalid_grant)" in said
        assert auth.refusals == ["replay"]


async def test_an_assertion_that_the_identity_provider_did_not_sign_is_refused_in_step_two(
    hosting: Any,
) -> None:
    async with company(key=new_key()) as (idp, auth):
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert "step 2 of 2" in await error_of(host)
        assert auth.refusals == ["InvalidSignatureError"]


async def test_an_id_token_that_has_expired_is_refused_in_step_one(hosting: Any) -> None:
    async with company() as (idp, auth):
        token = idp.id_token("ana", exp=int(time.time()) - 60)
        async with hosting(auth.config(**enterprise(idp, token))) as host:
            said = await error_of(host)
            assert f"step 1 of 2, the token exchange at the identity provider {idp.issuer}," in said
            assert "invalid_grant" in said
            assert token not in said
        assert idp.refusals == ["subject_token: ExpiredSignatureError"]


async def test_two_servers_are_not_mixed_up_by_their_identity_provider(hosting: Any) -> None:
    async with company() as (idp, one), AuthLab() as two:
        idp.trusted_by(two)
        two.clients |= one.clients
        idp.claims = {"aud": two.issuer, "resource": two.lab.url}
        async with hosting(one.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert f"its aud is not {one.issuer!r}" in await error_of(host)
        assert one.count("/token") == two.count("/token") == 0


async def test_a_server_that_names_the_authorization_server_of_another_gets_no_token_of_it(
    hosting: Any,
) -> None:
    async with company() as (idp, good), AuthLab() as evil:
        evil.protected = {"authorization_servers": [good.issuer]}
        async with hosting(evil.config(**enterprise(idp, idp.id_token("ana"), issuer=evil.issuer))) as host:
            assert "does not name the configured issuer" in await error_of(host)
        # Without `issuer`, the authorization server sees that the assertion is for another resource.
        async with hosting(evil.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert "step 2 of 2" in await error_of(host)
        assert good.refusals == ["resource"]
        assert evil.seen_tokens == [None] * len(evil.seen_tokens)


async def test_an_authorization_server_that_does_not_list_the_profile_is_not_tried(hosting: Any) -> None:
    async with company() as (idp, auth):
        auth.metadata = {"authorization_grant_profiles_supported": ["urn:example:other"]}
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert "does not support enterprise-managed authorization" in await error_of(host)
        assert idp.requests == []


async def test_tokens_of_an_identity_provider_are_not_written_to_disk(hosting: Any, tmp_path: Path) -> None:
    async with company() as (idp, auth):
        async with hosting(auth.config(**enterprise(idp, idp.id_token("ana")))) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
    import os

    assert not list(Path(os.environ["MOORING_HOME"]).glob("oauth/*.json"))


# --- settings -------------------------------------------------------------------------------------


def test_each_extension_is_declared_only_where_it_is_configured() -> None:
    idp = {"issuer": "https://idp.example", "client_id": "a"}
    assert auth_extensions(None) == auth_extensions({}) == auth_extensions({"type": "oauth"}) == {}
    assert auth_extensions({"exchange": {"issuer": "https://sts.example"}}) == {}
    secret = {"type": "client_credentials", "client_id": "a", "client_secret": "b"}
    assert auth_extensions(secret) == {f"{PREFIX}oauth-client-credentials": {}}
    assert auth_extensions({"idp": idp, "client_id": "b"}) == {
        f"{PREFIX}enterprise-managed-authorization": {}
    }
    assert auth_extensions({"assertion": "${file:token}"}) == {f"{PREFIX}workload-identity-federation": {}}


WRONG = {
    "no proof": ({"type": "client_credentials", "client_id": "a"}, "'client_secret' or 'private_key'"),
    "both": ({"client_id": "a", "client_secret": "b", "private_key": "c"}, "keep the one"),
    "no idp": ({"type": "enterprise", "client_id": "a"}, "'idp' only together"),
    "no issuer": ({"idp": {"token_endpoint": "https://a.example/t"}, "client_id": "a"}, "needs 'issuer'"),
    "no service": ({"exchange": {"audience": "x"}}, "needs 'issuer' or 'token_endpoint'"),
    "unknown": ({"exchange": {"issuer": "https://a.example", "audiense": "x"}}, "did you mean 'audience'"),
    "shared key": ({"client_id": "a", "private_key": "k", "algorithm": "HS256"}, "algorithm"),
    "two kinds": ({"type": "oauth", "assertion": "x"}, "'assertion' only together"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_contradict_each_other_are_refused(case: str) -> None:
    auth, reason = WRONG[case]
    with pytest.raises(Exception, match=reason):
        ServerConfig(name="web", url="https://a.example/mcp", auth=auth)


def test_a_server_on_behalf_of_callers_has_a_connection_for_each_session() -> None:
    auth = {"exchange": {"issuer": "https://sts.example"}}
    assert ServerConfig(name="web", url="https://a.example/mcp", auth=auth).isolation == "session"
    with pytest.raises(Exception, match="isolation: session"):
        ServerConfig(name="web", url="https://a.example/mcp", auth=auth, isolation="shared")


def test_secrets_of_nested_settings_are_not_shown() -> None:
    auth = {
        "client_id": "a",
        "client_secret": "hush-one",
        "idp": {"issuer": "https://i.example", "client_id": "b", "client_secret": "hush-two"},
    }
    from mooring.config.network import AuthConfig
    from mooring.config.trust import describe

    config = ServerConfig(name="web", url="https://a.example/mcp", auth=auth)
    shown = (
        repr(config)
        + repr(AuthConfig(**auth))
        + repr(AuthConfig(**auth).service)
        + "\n".join(describe(config))
    )
    assert "hush" not in shown
