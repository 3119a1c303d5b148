"""TLS in front of the gateway: certificates from files and references, renewal, client certificates."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring import HostConfig
from mooring.config.sections import GatewaySettings
from mooring.errors import ConfigError
from mooring.gateway import tls as tls_module
from mooring.gateway.tls import Certificates
from tests.lab.caller import Caller
from tests.lab.certificates import Authority, encrypted
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def issue(authority: Authority, name: str = "site") -> tuple[Path, Path]:
    """Files of a server certificate for loopback, and its key."""
    leaf = authority.made.issue_cert("127.0.0.1", "localhost", common_name=name)
    cert, key = authority.folder / "site.pem", authority.folder / "site.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return cert, key


def client_of(authority: Authority, name: str) -> ssl.SSLContext:
    """What a client with a certificate of this common name uses."""
    leaf = authority.made.issue_cert(f"{name}@example.org", common_name=name)
    context = authority.trusting()
    leaf.configure_cert(context)
    return context


async def common_name(port: int, context: ssl.SSLContext) -> str:
    """The common name of the certificate that the gateway shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    about: Any = writer.get_extra_info("peercert")
    writer.close()
    return next(value for pairs in about["subject"] for key, value in pairs if key == "commonName")


async def called(url: str, context: ssl.SSLContext, token: str | None = None) -> tuple[int, Any]:
    """Status and answer of one call over TLS."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http:
        reply = await Caller(http, url, modern=True, headers=headers).call("echo", {"text": "over TLS"})
        return reply.status, reply.last


async def test_a_certificate_from_files_or_references_serves_both_eras(
    serving: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = issue(authority)
    monkeypatch.setenv("TLS_KEY_TEXT", key.read_text())
    for tls in (
        {"cert": str(cert), "key": str(key)},
        {"cert": f"${{file:{cert}}}", "key": f"${{file:{key}}}"},
        {"cert": str(cert), "key": "${TLS_KEY_TEXT}"},
    ):
        async with serving(lab_server(), gateway={"tls": tls}) as here:
            assert here.serving.url.startswith("https://127.0.0.1:")
            connector = aiohttp.TCPConnector(ssl=authority.trusting())
            async with aiohttp.ClientSession(connector=connector) as http:
                for modern in (True, False):
                    caller = Caller(http, here.serving.url, modern=modern)
                    await caller.begin()
                    assert (await caller.call("echo", {"text": "hi"})).text == "hi"


async def test_plain_http_and_old_tls_are_not_served(serving: Any, authority: Authority) -> None:
    cert, key = issue(authority)
    async with serving(lab_server(), gateway={"tls": {"cert": str(cert), "key": str(key)}}) as here:
        with pytest.raises(aiohttp.ClientError):
            await here.http.get(f"http://127.0.0.1:{here.serving.port}/health")
        old = authority.trusting()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", here.serving.port, ssl=old)


async def test_a_renewed_certificate_is_used_without_a_restart_and_open_connections_stay(
    serving: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "RECHECK", 0.05)
    cert, key = issue(authority, "first")
    tls = {"cert": str(cert), "key": str(key)}
    async with serving(lab_server(tools=["echo", "sleep"]), gateway={"tls": tls}) as here:
        port = here.serving.port
        connector = aiohttp.TCPConnector(ssl=authority.trusting(), limit=1)
        async with aiohttp.ClientSession(connector=connector) as http:
            caller = Caller(http, here.serving.url, modern=False)
            await caller.begin()
            assert await common_name(port, authority.trusting()) == "first"
            running = asyncio.create_task(caller.call("sleep", {"seconds": 1.0, "text": "kept"}))
            cert.write_text("half a file")  # a renewal that was interrupted
            await asyncio.sleep(0.3)
            assert await common_name(port, authority.trusting()) == "first"
            issue(authority, "second")
            async with asyncio.timeout(20):
                while await common_name(port, authority.trusting()) != "second":
                    await asyncio.sleep(0.05)
            assert (await running).text == "kept"
            assert (await caller.call("echo", {"text": "same session"})).text == "same session"


async def test_client_certificates_name_the_principal(
    serving: Any, authority: Authority, tmp_path: Path
) -> None:
    cert, key = issue(authority)
    settings = {
        "tls": {
            "cert": str(cert),
            "key": str(key),
            "client_ca": str(authority.file),
            "client_scopes": ["read"],
        },
        "profiles": {"reading": {"scopes": ["read"]}, "writing": {"scopes": ["write"]}},
        "access_log": str(tmp_path / "access.log"),
    }
    async with serving(lab_server(), gateway=settings) as here:
        base = here.serving.url
        ana = client_of(authority, "ana")
        assert (await called(base, ana))[0] == 200
        assert (await called(f"{base}/reading", ana))[0] == 200
        assert (await called(f"{base}/writing", ana))[0] == 403
        assert (await called(base, authority.trusting()))[0] == 401, "neither a certificate nor a token"
        assert (await called(base, ana, "not-a-token-of-mine"))[0] == 401, "a bad token is not ignored"
        other = client_of(Authority(tmp_path / "other"), "ana")
        authority.made.configure_trust(other)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await called(base, other)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ana)) as http:
            session = Caller(http, base, modern=False)
            await session.begin()
            bob_connector = aiohttp.TCPConnector(ssl=client_of(authority, "bob"))
            async with aiohttp.ClientSession(connector=bob_connector) as bob:
                thief = Caller(bob, base, modern=False)
                thief.session = session.session
                assert (await thief.call("echo", {"text": "x"})).status == 404
    log = (tmp_path / "access.log").read_text()
    assert '"principal": "cert:ana"' in log
    assert '"principal": "cert:bob"' in log


async def test_an_authority_that_is_removed_ends_what_its_certificates_opened(
    serving: Any, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over connections that are open, in new sessions and in streams."""
    monkeypatch.setattr(tls_module, "RECHECK", 0.05)
    cert, key = issue(authority)
    other = Authority(tmp_path / "other")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.file.read_bytes())
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(clients)}
    async with serving(lab_server(), gateway={"tls": tls}) as here:
        connector = aiohttp.TCPConnector(ssl=client_of(authority, "bob"))
        async with aiohttp.ClientSession(connector=connector) as http:
            caller = Caller(http, here.serving.url, modern=False)
            await caller.begin()
            stream = await http.get(
                here.serving.url,
                headers={"Accept": "text/event-stream", "Mcp-Session-Id": caller.session},
            )
            assert stream.status == 200
            clients.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
            await until(lambda: here.serving.service.certificates.seen[-1][2] == clients.stat().st_size)
            assert (await caller.call("echo", {"text": "both"})).text == "both"
            issue(authority, "renewed")
            async with asyncio.timeout(20):
                while await common_name(here.serving.port, authority.trusting()) != "renewed":
                    await asyncio.sleep(0.02)
            assert (await caller.call("echo", {"text": "still"})).text == "still"
            connections = len(connector._conns)  # pyright: ignore[reportPrivateUsage]
            assert connections == 1
            clients.write_bytes(other.file.read_bytes())
            async with asyncio.timeout(20):
                await stream.read()  # it ends
            again = Caller(http, here.serving.url, modern=True)
            assert (await again.call("echo", {"text": "no"})).status == 401


async def test_required_client_certificates_end_the_handshake_without_one(
    serving: Any, authority: Authority
) -> None:
    cert, key = issue(authority)
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(authority.file), "client": "required"}
    async with serving(lab_server(), gateway={"tls": tls}) as here:
        assert (await called(here.serving.url, client_of(authority, "ana")))[0] == 200
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await called(here.serving.url, authority.trusting())


async def test_bad_certificates_name_the_setting_and_show_no_key(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = issue(authority)
    locked = encrypted(key, "a long password")
    monkeypatch.setenv("TLS_PASSWORD", "another password")
    for settings in (
        {"cert": str(tmp_path / "missing.pem"), "key": str(key)},
        {"cert": str(cert), "key": "${NO_SUCH_KEY}"},
        {"cert": str(key), "key": str(key)},
        {"cert": str(cert), "key": str(cert)},
        {"cert": str(cert), "key": str(locked), "key_password": "${TLS_PASSWORD}"},
        {"cert": str(cert), "key": str(locked)},
        {"cert": str(cert), "key": str(key), "client_ca": str(key)},
    ):
        made = GatewaySettings(tls=settings).tls
        assert made is not None
        with pytest.raises(ConfigError) as raised:
            Certificates(made).context()
        text = str(raised.value)
        assert "gateway.tls" in text
        assert "PRIVATE KEY" not in text
        assert "password" not in text.replace("key_password", "").replace("wrong password", "")
    monkeypatch.setenv("TLS_PASSWORD", "a long password")
    good = GatewaySettings(tls={"cert": str(cert), "key": str(locked), "key_password": "${TLS_PASSWORD}"}).tls
    assert good is not None
    assert Certificates(good).context().minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_reload_with_a_bad_certificate_is_rejected_and_the_old_one_stays(
    serving: Any, authority: Authority, tmp_path: Path
) -> None:
    cert, key = issue(authority, "first")
    async with serving(lab_server(), gateway={"tls": {"cert": str(cert), "key": str(key)}}) as here:
        (tmp_path / "bad.pem").write_text("nothing")
        for tls in ({"cert": str(tmp_path / "bad.pem"), "key": str(key)}, None):
            worse = HostConfig(
                servers=here.host.config.servers, style="raw", gateway=GatewaySettings(tls=tls)
            )
            with pytest.raises(ConfigError, match=r"gateway\.tls"):
                await here.host.apply(worse)
        assert await common_name(here.serving.port, authority.trusting()) == "first"
