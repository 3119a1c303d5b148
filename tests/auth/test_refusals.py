"""Logins that must not happen: each is refused with a reason, before a secret is sent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from mooring import AuthNeeded, Host, Secret
from mooring.auth.flow import discover
from mooring.auth.guarded_http import GuardedHttp, UnreachableError
from mooring.auth.metadata import Challenge
from mooring.config.network import AuthConfig
from mooring.core.addresses import RefusedAddressError, realm
from tests.auth.test_login import CLIENT, log_in
from tests.core.test_addresses import INTERNAL_HOSTS
from tests.lab.oauth import METADATA, PROTECTED, AuthLab, browse

PUBLIC = "93.184.216.34"


class Names(AbstractResolver):
    """Knows the addresses of names, and answers with the next list each time; no other resolver is used."""

    def __init__(self, **known: list[list[str]]) -> None:
        self.known: dict[str, Iterator[list[str]]] = {
            name.replace("_", "."): iter(answers) for name, answers in known.items()
        }

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host not in self.known:
            raise OSError(None, f"no such name: {host}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in next(self.known[host])
        ]

    async def close(self) -> None:
        pass


class Watched(GuardedHttp):
    """Records the addresses that would be connected to, and connects to loopback only."""

    def __init__(self, server_url: str, resolver: Names) -> None:
        super().__init__(server_url, resolver=resolver)
        self.passed: list[str] = []

    def _socket(self, info: Any) -> socket.socket:
        made = super()._socket(info)
        self.passed.append(info[4][0])
        if realm(info[4][0]) != "loopback":
            made.close()
            raise ConnectionRefusedError("the test makes no connection")
        return made


@pytest.mark.parametrize("host", INTERNAL_HOSTS)
async def test_TH07_no_spelling_of_an_internal_address_is_asked(host: str) -> None:
    async with Watched("https://mcp.example/mcp", Names(mcp_example=[[PUBLIC]])) as http:
        for url in (f"https://{host}/.well-known/x", f"http://{host}:8080/"):
            with pytest.raises(RefusedAddressError):
                await http.get(url, "its metadata")
            with pytest.raises(RefusedAddressError):
                await http.post(url, "its token endpoint", form={"a": "b"})
        assert http.passed == []


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["::ffff:10.0.0.1"],
     ["100.64.0.1", "192.168.0.1"],
     ["fd00::1"], ["fe80::1"], ["64:ff9b::a00:1"], ["0.0.0.0"]],
)  # fmt: skip
async def test_TH07_a_name_that_stands_for_an_internal_address_is_not_connected_to(
    addresses: list[str],
) -> None:
    names = Names(mcp_example=[[PUBLIC]], as_example=[addresses] * 2)
    async with Watched("https://mcp.example/mcp", names) as http:
        with pytest.raises(RefusedAddressError, match=r"'as\.example'"):
            await http.get("https://as.example/metadata", "its metadata")
        assert http.passed == []


async def test_TH08_a_name_that_changes_its_address_after_the_check_gains_nothing() -> None:
    names = Names(mcp_example=[[PUBLIC]], as_example=[[PUBLIC], ["127.0.0.1"]])
    async with Watched("https://mcp.example/mcp", names) as http:
        with pytest.raises(UnreachableError):
            await http.get("https://as.example/metadata", "its metadata")
        with pytest.raises(RefusedAddressError):
            await http.post("https://as.example/token", "its token endpoint", form={"a": "b"})
        assert http.passed == [PUBLIC]


async def test_TH07_only_the_network_that_the_server_is_in_is_allowed() -> None:
    for own, allowed in (
        ([["10.1.1.1"]], {"private"}),
        ([["127.0.0.1"]], {"loopback"}),
        ([[PUBLIC]], {"public"}),
        ([[PUBLIC, "127.0.0.1"]], set()),
        ([["0.0.0.0"]], set()),
    ):
        async with Watched("https://mcp.example/mcp", Names(mcp_example=own)) as http:
            assert http.allowed == allowed
    async with Watched("https://unknown.example/mcp", Names()) as http:
        assert http.allowed == set()


async def test_a_server_without_tls_gets_no_token_wherever_its_metadata_is() -> None:
    challenge = Challenge(resource_metadata="https://as.example/metadata")
    async with Watched("http://mcp.example/mcp", Names(mcp_example=[[PUBLIC]])) as http:
        with pytest.raises(RefusedAddressError, match="its URL has no TLS"):
            await discover(http, AuthConfig(), challenge, None)
        assert http.passed == []


async def test_a_server_that_is_its_own_issuer_is_not_another_one_that_was_configured(hosting: Any) -> None:
    async with AuthLab(protected=None, hint=False, at_home=True) as auth:
        async with hosting(auth.config(auth={"issuer": auth.issuer})) as host:
            with pytest.raises(AuthNeeded, match="not the configured issuer"):
                await host.login("web")


INTERNAL = "https://169.254.169.254/latest"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"issuer": "https://evil.example"}}, "calls itself 'https://evil.example'"),
    ({"s256": False}, "S256"),
    ({"metadata": {"authorization_endpoint": INTERNAL}}, "authorization endpoint is on '169.254.169.254'"),
    ({"metadata": {"token_endpoint": INTERNAL}}, "a link-local address"),
    ({"metadata": {"registration_endpoint": "http://10.0.0.1/"}}, "an address of a private network"),
    ({"metadata": {"token_endpoint": None}}, "no token endpoint"),
    ({"metadata": {"authorization_endpoint": None}}, "no authorization endpoint"),
    ({"metadata": {"authorization_endpoint": "javascript:alert(1)"}}, "characters that are not allowed"),
    ({"metadata": {"authorization_endpoint": "http://127.0.0.1:1/a`id`"}}, "characters that are not allowed"),
    ({"protected": {"authorization_servers": ["http://192.168.0.1"]}}, "private network"),
    ({"protected": {"authorization_servers": ["http://as.example"]}}, "without TLS"),
    ({"protected": {"authorization_servers": []}}, "names no authorization server"),
    ({"protected": {"resource": "https://other.example/mcp"}}, "for another server"),
    ({"redirects": {METADATA: "http://localhost:1/x"}}, "redirects to another host"),
    (
        {"redirects": {METADATA: INTERNAL}},
        "the redirect target of the authorization server's metadata is on '169.254.169.254'",
    ),
    ({"redirects": {PROTECTED: INTERNAL}}, "the redirect target of its resource metadata"),
    ({"redirects": {METADATA: METADATA}}, "in a loop"),
    ({"redirects": {"/register": "/elsewhere"}}, "not followed"),
]


@pytest.mark.parametrize(("switches", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
async def test_TH07_TH08_TH11_TH12_a_login_that_is_not_safe_is_refused_with_its_reason(
    switches: dict[str, Any], reason: str, hosting: Any
) -> None:
    async with AuthLab(**switches) as auth, hosting(auth.config()) as host:
        assert host.status()[0].state == "needs-auth"
        with pytest.raises(AuthNeeded, match=reason):
            await host.login("web")
        result = await host.call("mcp_web_authenticate")
        assert result.is_error
        assert auth.count("/authorize") == auth.count("/token") == 0
        if "metadata" in switches:
            assert auth.count("/register") == 0


async def test_what_cannot_be_used_is_said_in_the_state_and_by_the_tool(hosting: Any) -> None:
    async with AuthLab(metadata={"token_endpoint": INTERNAL}) as auth, hosting(auth.config()) as host:
        assert "cannot be used" in (host.status()[0].error or "")
        assert "cannot be used" in (await host.call("mcp_web_authenticate")).text


@pytest.mark.parametrize("iss", ["https://evil.example", ""])
async def test_TH11_an_answer_of_another_issuer_ends_the_login(iss: str, hosting: Any) -> None:
    async with AuthLab(iss=iss) as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        assert (await browse(login.url))[0] == 400
        with pytest.raises(AuthNeeded, match="authorization server"):
            await login.done(5)
        assert auth.count("/token") == 0


async def test_a_code_that_the_authorization_server_does_not_take_is_a_failed_login(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        _, back = await browse(login.url, follow=False)
        auth.codes.clear()
        with pytest.raises(AuthNeeded, match="invalid_grant"):
            await login.complete(back)
        assert login.over
        assert host.status()[0].state == "needs-auth"


async def test_TH08_a_token_endpoint_that_redirects_gets_the_code_and_no_other_does(hosting: Any) -> None:
    async with AuthLab() as auth, AuthLab() as other, hosting(auth.config()) as host:
        auth.redirects["/token"] = f"{other.issuer}/token"
        login = await host.login("web")
        assert (await browse(login.url))[0] == 400
        with pytest.raises(AuthNeeded, match="not followed"):
            await login.done(5)
        assert other.requests == []


async def test_a_secret_is_sent_to_the_issuer_it_belongs_to_and_to_no_other(hosting: Any) -> None:
    async with AuthLab() as evil, AuthLab() as auth:
        for lab in (auth, evil):
            lab.clients["ours"] = {"client_secret": CLIENT["client_secret"], "redirect_uris": []}
        settings = {"type": "client_credentials", **CLIENT}
        async with hosting(auth.config(auth={**settings, "issuer": auth.issuer})) as host:
            assert host.status()[0].state == "connected"
        assert auth.protected is not None
        auth.protected["authorization_servers"] = [evil.issuer]
        auth.revoke_all()
        for bound in ({"issuer": auth.issuer}, {}):
            async with hosting(auth.config(auth={**settings, **bound})) as host:
                (status,) = host.status()
                assert status.state == "needs-auth"
                assert "issuer" in (status.error or "")
        assert evil.count("/token") == 0


@pytest.mark.parametrize("where", ["redirect", "issuer", "scope"])
async def test_the_documents_of_a_login_repeat_no_secret_of_the_server(where: str) -> None:
    secret = "planted-header-4711"
    async with AuthLab() as lab:
        if where == "redirect":
            lab.redirects[PROTECTED] = f"https://{secret}.example/"
        elif where == "issuer":
            lab.metadata["issuer"] = f"https://{secret}.example"
        else:
            lab.needs["echo"] = secret
        host = Host([lab.config(headers={"X-Key": Secret(secret)})])
        events = host.events()
        async with host:
            await host.ready()
            if where == "scope":
                await log_in(host)
                said = (await host.call("mcp_web_echo", {"text": "x"})).text
            else:
                said = (await host.call("mcp_web_authenticate", {})).text
                with pytest.raises(AuthNeeded, match=r"\*\*\*"):
                    await host.login("web")
            status = repr(host.status())
        told = [repr(event) async for event in events]
    assert "***" in said
    assert any("LoginNeeded" in text and "***" in text for text in told)
    assert secret not in f"{said} {status} {told}"


async def test_a_huge_or_endless_document_is_no_document(hosting: Any) -> None:
    async with AuthLab(metadata={"padding": "x" * 300_000}) as auth, hosting(auth.config()) as host:
        with pytest.raises(AuthNeeded, match="too large"):
            await host.login("web")


async def test_after_a_refusal_a_mended_server_can_be_logged_in_to(hosting: Any) -> None:
    async with AuthLab(s256=False) as auth, hosting(auth.config()) as host:
        with pytest.raises(AuthNeeded):
            await host.login("web")
        auth.s256 = True
        await asyncio.wait_for(log_in(host), 10)
        assert "mcp_web_echo" in host.catalog.tools
