"""Private authorities, client certificates and proxies, for the server and for logins to it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from mooring import ConfigError, Host, HostConfig, ServerConfig
from mooring.cli import main
from mooring.servers.diagnosis import diagnose
from tests.lab.certificates import Authority, encrypted
from tests.lab.http import HttpLab
from tests.lab.oauth import AuthLab, browse
from tests.lab.proxy import ProxyLab

pytestmark = pytest.mark.anyio

WIRES = [("modern", "streamable-http"), ("legacy", "streamable-http"), ("legacy", "sse")]
PASSWORD = "pr+xy/s3cret"
QUOTED = "pr%2Bxy%2Fs3cret"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def lab_of(authority: Authority, era: str = "dual", *names: str, clients: bool = False) -> HttpLab:
    lab = HttpLab(era=era)
    lab.ssl_context = authority.server(*names, clients=clients)
    if names:
        lab.host = names[0]
    return lab


def entry(lab: HttpLab, wire: str = "http", **more: Any) -> ServerConfig:
    url = f"{lab.origin}/sse" if wire == "sse" else lab.url
    return ServerConfig(name="web", url=url, transport=wire, **more)


async def problem_with(hosting: Any, server: ServerConfig) -> str:
    async with hosting(server, lock=False) as host:
        (status,) = host.status()
        assert status.state == "failed"
        return status.error or ""


# --- TLS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("era", "wire"), WIRES)
async def test_a_private_authority_is_trusted_where_it_is_named_and_nowhere_else(
    hosting: Any, authority: Authority, era: str, wire: str
) -> None:
    async with lab_of(authority, era) as lab:
        trusting = entry(lab, wire, tls={"ca": str(authority.file)})
        async with hosting(trusting, lock=False) as host:
            assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"
        said = await problem_with(hosting, entry(lab, wire))
    assert f"the certificate of 127.0.0.1:{lab.port} is not trusted" in said
    assert "`tls.ca`" in said


@pytest.mark.parametrize(("era", "wire"), WIRES)
async def test_a_server_that_wants_a_client_certificate_is_shown_one(
    hosting: Any, authority: Authority, era: str, wire: str
) -> None:
    cert, key = authority.client()
    tls = {"ca": str(authority.file), "cert": str(cert), "key": str(key)}
    async with lab_of(authority, era, clients=True) as lab:
        async with hosting(entry(lab, wire, tls=tls), lock=False) as host:
            assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"
        said = await problem_with(hosting, entry(lab, wire, tls={"ca": str(authority.file)}))
    assert "client certificate" in said
    assert "`tls.cert`" in said


async def test_a_connection_with_one_certificate_never_serves_another_server(
    hosting: Any, authority: Authority
) -> None:
    cert, key = authority.client()
    mine = {"ca": str(authority.file), "cert": str(cert), "key": str(key)}
    async with lab_of(authority, clients=True) as lab:
        one = ServerConfig(name="one", url=lab.url, tls=mine)
        two = ServerConfig(name="two", url=lab.url, tls={"ca": str(authority.file)})
        async with hosting(one, two, lock=False) as host:
            states = {status.name: status.state for status in host.status()}
    assert states == {"one": "connected", "two": "failed"}


async def test_a_login_trusts_the_same_authority_and_shows_the_same_certificate(
    hosting: Any, authority: Authority
) -> None:
    cert, key = authority.client()
    tls = {"ca": str(authority.file), "cert": str(cert), "key": str(key)}
    auth = AuthLab(lab=lab_of(authority, clients=True))
    auth.ssl_context = authority.server(clients=True)
    browser = authority.trusting()
    browser.load_cert_chain(cert, key)
    async with auth, hosting(auth.config(tls=tls), lock=False) as host:
        login = await host.login("web")
        await browse(login.url, trusted=browser)
        await login.done(10)
        assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"
        auth.revoke_all()
        assert (await host.call("mcp_web_echo", {"text": "again"})).text == "again"
        assert auth.refreshes() == 1
        assert await host.logout("web") is True
    assert {"/register", "/token", "/revoke"} <= {path for path, _ in auth.requests}


async def test_an_authorization_server_that_is_not_trusted_gets_no_request(
    hosting: Any, authority: Authority, tmp_path: Path
) -> None:
    auth = AuthLab(lab=lab_of(authority))
    auth.ssl_context = Authority(tmp_path / "other").server()
    async with auth, hosting(auth.config(tls={"ca": str(authority.file)}), lock=False) as host:
        (status,) = host.status()
        assert "is not trusted" in (status.error or "")
        assert "`tls.ca`" in (status.error or "")
        assert auth.count("/register") == 0


async def test_a_directory_of_authorities_and_paths_beside_the_file_are_found(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "cas").mkdir()
    (tmp_path / "cas" / "ours.crt").write_bytes(authority.file.read_bytes())
    Authority(tmp_path / "cas")
    async with lab_of(authority) as lab:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"web": {"url": lab.url, "tls": {"ca": "cas"}}}}))
        async with Host.from_config(file, lock=False) as host:
            await host.ready(20)
            assert host.status()[0].state == "connected"


async def test_a_key_with_a_password_is_opened_and_a_wrong_password_is_reported_and_not_shown(
    hosting: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = authority.client("locked")
    tls = {"ca": str(authority.file), "cert": str(cert), "key": str(encrypted(key, "open-sesame"))}
    monkeypatch.setenv("KEY_PASSWORD", "open-sesame")
    async with lab_of(authority, clients=True) as lab:
        async with hosting(entry(lab, tls={**tls, "key_password": "${KEY_PASSWORD}"}), lock=False) as host:
            assert host.status()[0].state == "connected"
        monkeypatch.setenv("KEY_PASSWORD", "not-sesame-at-all")
        wrong = await problem_with(hosting, entry(lab, tls={**tls, "key_password": "${KEY_PASSWORD}"}))
        missing = await problem_with(hosting, entry(lab, tls=tls))
    assert "'tls.key_password' does not open it" in wrong
    assert "not-sesame" not in wrong
    assert "'tls.key_password' is missing" in missing


async def test_files_that_cannot_be_used_are_named_with_what_is_wrong(
    hosting: Any, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.client("one")
    _, other = authority.client("two")
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "empty").mkdir()
    cases: list[tuple[dict[str, str], str]] = [
        ({"ca": str(tmp_path / "nothing")}, "'tls.ca': there is no file"),
        ({"ca": str(tmp_path / "text")}, "'tls.ca': .*holds no certificate"),
        ({"ca": str(tmp_path / "empty")}, "'tls.ca': there is no file .pem or .crt or .cer in"),
        ({"cert": str(cert)}, "'tls.cert': .*holds no private key; name the file of the key in 'tls.key'"),
        ({"cert": str(tmp_path / "gone"), "key": str(key)}, "'tls.cert': there is no file"),
        ({"cert": str(tmp_path / "text"), "key": str(key)}, "'tls.cert': .*holds no certificate"),
        ({"cert": str(cert), "key": str(cert)}, "'tls.key': .*holds no private key"),
        ({"cert": str(cert), "key": str(other)}, "'tls.key': .*does not belong to the certificate"),
    ]
    for tls, said in cases:
        server = ServerConfig(name="web", url="https://127.0.0.1:1/mcp", tls=tls)
        async with hosting(server, lock=False) as host:
            (status,) = host.status()
            assert status.error is not None
            assert re.search(said, status.error), status.error
            found = diagnose(server, status)
            assert found is not None
            assert found.cause == "tls"


async def test_a_renewed_certificate_is_taken_at_the_next_connection_and_settings_share_a_context(
    authority: Authority, tmp_path: Path
) -> None:
    from mooring.config.models import Target
    from mooring.transport.pool import HttpRoutes

    ways, server = HttpRoutes(), ServerConfig(name="web", url="https://127.0.0.1/mcp")
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.file.read_bytes())
    target = Target(url=server.url, tls={"ca": str(file)})
    one, two = await ways.to(server, target), await ways.to(server, target)
    assert one.ssl is two.ssl
    file.write_bytes(Authority(tmp_path / "new").file.read_bytes() + b"\n")
    assert (await ways.to(server, target)).ssl is not one.ssl


@pytest.mark.parametrize("word", ["verify", "insecure", "rejectUnauthorized", "skip_verify", "tls_verify"])
def test_verification_cannot_be_turned_off_and_the_message_says_what_to_do_instead(word: str) -> None:
    with pytest.raises(ConfigError, match="always verified; name the authority"):
        ServerConfig(name="web", url="https://example.org/mcp", tls={word: False})


def test_settings_that_cannot_work_are_refused_when_they_are_read() -> None:
    for wrong, said in [
        ({"tls": {"key": "a"}}, "no 'cert'"),
        ({"tls": "ca.pem"}, "must be a mapping"),
        ({"tls": {"cafile": "a"}}, "not a known field"),
        ({"proxy": "socks5://h:1"}, "SOCKS"),
        ({"proxy": "http://me:p/w@h:1"}, "%2F"),
        ({"proxy": 3128}, "address of a proxy"),
        ({"proxy": True}, "address of a proxy"),
    ]:
        with pytest.raises(ConfigError, match=said) as caught:
            ServerConfig(name="web", url="https://example.org/mcp", **wrong)  # type: ignore[arg-type]
        assert "p/w" not in str(caught.value)


# --- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("era", "wire"), WIRES)
@pytest.mark.parametrize("tls", [True, False], ids=["tunnel", "forward"])
async def test_everything_of_a_server_goes_through_its_proxy_and_nothing_goes_direct(
    hosting: Any, authority: Authority, era: str, wire: str, tls: bool
) -> None:
    lab = lab_of(authority, era, "mcp.test") if tls else HttpLab(era=era)
    lab.host = "mcp.test"  # a name that only the proxy knows
    async with ProxyLab(login=f"me:{PASSWORD}") as proxy, lab:
        proxy.names["mcp.test"] = "127.0.0.1"
        through = proxy.url.replace("//", f"//me:{QUOTED}@")
        settings = {"proxy": through, "tls": {"ca": str(authority.file)}}
        async with hosting(entry(lab, wire, **settings), lock=False) as host:
            assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"
        assert proxy.targets() == {f"mcp.test:{lab.port}"}
        assert proxy.refused == 0
    assert not any("Proxy-Authorization" in headers for _, headers in lab.seen)


async def test_a_login_goes_through_the_proxy_in_every_step(hosting: Any, authority: Authority) -> None:
    auth = AuthLab(lab=lab_of(authority, "dual", "mcp.test"))
    auth.ssl_context, auth.host = authority.server("login.test"), "login.test"
    async with ProxyLab() as proxy, auth:
        proxy.names |= {"mcp.test": "127.0.0.1", "login.test": "127.0.0.1"}
        server = auth.config(proxy=proxy.url, tls={"ca": str(authority.file)})
        async with hosting(server, lock=False) as host:
            login = await host.login("web")
            assert login.host.startswith("login.test:")
            here = login.url.replace("login.test", "127.0.0.1")
            unchecked = authority.trusting()
            unchecked.check_hostname = False
            await browse(here, trusted=unchecked)
            await login.done(10)
            assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"
            auth.revoke_all()
            assert (await host.call("mcp_web_echo", {"text": "again"})).text == "again"
            assert await host.logout("web") is True
        assert {path for path, _ in auth.requests} >= {"/register", "/token", "/revoke"}
        assert {target.partition(":")[0] for target in proxy.targets()} == {"mcp.test", "login.test"}


async def test_metadata_that_names_an_internal_address_is_refused_before_the_proxy_is_asked(
    hosting: Any, authority: Authority
) -> None:
    for inside in ("https://169.254.169.254", "https://10.0.0.7", "https://[fd00::1]", "https://127.0.0.1"):
        auth = AuthLab(
            lab=lab_of(authority, "dual", "mcp.test"), protected={"authorization_servers": [inside]}
        )
        async with ProxyLab() as proxy, auth:
            proxy.names["mcp.test"] = "127.0.0.1"
            server = auth.config(proxy=proxy.url, tls={"ca": str(authority.file)})
            async with hosting(server, lock=False) as host:
                assert "cannot be used" in (host.status()[0].error or "")
            assert proxy.targets() == {f"mcp.test:{auth.lab.port}"}


async def test_the_proxy_of_the_environment_is_used_unless_the_entry_or_no_proxy_says_otherwise(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ProxyLab() as proxy, ProxyLab() as own, HttpLab() as lab:

        async def asked(**settings: Any) -> tuple[int, int]:
            before = len(proxy.asked), len(own.asked)
            async with hosting(lab.config(**settings), lock=False) as host:
                assert host.status()[0].state == "connected"
            return len(proxy.asked) - before[0], len(own.asked) - before[1]

        monkeypatch.setenv("http_proxy", proxy.url)
        through, other = await asked()
        assert (through > 0, other) == (True, 0)
        through, other = await asked(proxy=own.url)
        assert (through, other > 0) == (0, True)
        assert await asked(proxy="none") == (0, 0)
        assert await asked(proxy=False) == (0, 0)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await asked() == (0, 0)
        through, other = await asked(proxy=own.url)
        assert (through, other > 0) == (0, True)


async def test_the_hosts_own_settings_hold_for_servers_without_their_own(authority: Authority) -> None:
    lab, other = lab_of(authority, "dual", "mcp.test"), HttpLab()
    async with ProxyLab() as proxy, lab, other:
        proxy.names["mcp.test"] = "127.0.0.1"
        web = ServerConfig(name="web", url=lab.url)
        here = ServerConfig(name="here", url=other.url)
        config = HostConfig(servers=(web, here), proxy=proxy.url, tls={"ca": str(authority.file)})
        async with Host(config, lock=False) as host:
            await host.ready(20)
            assert {status.state for status in host.status()} == {"connected"}
            assert proxy.targets() == {f"mcp.test:{lab.port}"}  # not the one on this machine
            steps = await host.apply(HostConfig(servers=(web, here), tls=config.tls))
            assert [server.name for server in steps.restart] == ["web"]


async def test_a_proxy_that_is_not_there_or_wants_a_login_is_named_without_its_password(
    hosting: Any, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PROXY_PASSWORD", QUOTED)
    async with ProxyLab(login="me:another") as proxy, lab_of(authority) as lab, HttpLab() as plain:
        tls = {"ca": str(authority.file)}
        for server in (entry(lab, tls=tls), plain.config()):
            through = proxy.url.replace("//", "//me:${PROXY_PASSWORD}@")
            wanting = ServerConfig(name="web", url=server.url, tls=server.tls, proxy=through)
            async with hosting(wanting, lock=False) as host:
                (status,) = host.status()
                assert "the proxy requires a login (HTTP 407)" in (status.error or "")
                found = diagnose(wanting, status)
                assert found is not None
                assert found.cause == "proxy"
                said = f"{host.status()} {wanting!r} {caplog.text} {host.redact(PASSWORD)}"
        nobody = ServerConfig(name="web", url=lab.url, tls=tls, proxy=f"http://me:{QUOTED}@127.0.0.1:1")
        async with hosting(nobody, lock=False) as host:
            (status,) = host.status()
            assert status.error == "the proxy 127.0.0.1:1 cannot be reached: Connection refused"
            assert diagnose(nobody, status) is not None
            said += f"{host.status()} {nobody!r} {caplog.text}"
    said += repr(HostConfig(proxy=f"http://me:{QUOTED}@proxy:1", tls={"cert": "a", "key_password": QUOTED}))
    assert PASSWORD not in said
    assert QUOTED not in said


async def test_the_password_of_the_environments_proxy_is_blotted_out_as_well(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ProxyLab(login=f"me:{PASSWORD}") as proxy, HttpLab() as lab:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", f"//me:{QUOTED}@"))
        async with hosting(lab.config(), lock=False) as host:
            assert host.status()[0].state == "connected"
            assert host.redact(f"{PASSWORD} {QUOTED}") == "*** ***"


async def test_a_proxy_of_the_environment_that_cannot_be_used_is_reported(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
    said = await problem_with(hosting, ServerConfig(name="web", url="https://mcp.test/mcp"))
    assert "the proxy that the environment names" in said
    assert "SOCKS" in said


async def test_a_proxy_may_speak_tls_itself(hosting: Any, authority: Authority) -> None:
    # To a server without TLS: the asyncio of Python 3.11 trips over the end of TLS within TLS.
    async with ProxyLab(tls=authority.server()) as proxy, HttpLab() as lab:
        server = entry(lab, proxy=proxy.url, tls={"ca": str(authority.file)})
        async with hosting(server, lock=False) as host:
            assert (await host.call("mcp_web_echo", {"text": "hi"})).text == "hi"


def test_doctor_says_what_to_do_about_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mcp.json"
    web = {"url": "https://127.0.0.1:1/mcp", "tls": {"ca": "nothing.pem"}}
    file.write_text(json.dumps({"mcpServers": {"web": web}}))
    assert main(["--config", str(file), "--json", "doctor"]) == 1
    (found,) = [one for one in json.loads(capsys.readouterr().out) if one["server"] == "web"]
    assert "tls.ca" in found["finding"]
    assert str(tmp_path / "nothing.pem") in found["finding"]
    assert "`tls`" in found["next"]
