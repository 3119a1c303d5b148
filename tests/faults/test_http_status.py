"""FA50-FA58: HTTP servers that cannot be reached, refuse, or send elsewhere."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import AuthNeeded, CallTimeout, ServerConfig, ServerError
from tests.lab.http import HttpLab
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Refuses:
    """A fault that answers the first `times` requests itself and counts them all."""

    def __init__(self, status: int, text: str = "", times: int = 10**9, **headers: str) -> None:
        self.status, self.text, self.times = status, text, times
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.seen = 0

    async def __call__(self, request: web.Request, message: dict[str, Any]) -> web.Response | None:
        self.seen += 1
        if self.seen > self.times:
            return None
        return web.Response(status=self.status, text=self.text, headers=self.headers)


def _self_signed(folder: Path) -> ssl.SSLContext:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(1))
    file = folder / "self-signed.pem"
    file.write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_FA50_a_certificate_that_is_not_trusted_is_reported_with_host_and_port(
    tmp_path: Path, hosting: Any
) -> None:
    served: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.read(1))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=_self_signed(tmp_path)) as server:
        port = server.sockets[0].getsockname()[1]
        async with hosting(ServerConfig(name="tls", url=f"https://127.0.0.1:{port}/mcp")) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert f"127.0.0.1:{port}" in status.error
            assert "certificate" in status.error.lower()
            assert status.retry_in is not None
    assert served == []


async def test_FA50_tls_to_a_port_that_speaks_none_is_one_error_of_ours(hosting: Any) -> None:
    async with HttpLab() as lab:
        url = lab.url.replace("http:", "https:")
        async with hosting(ServerConfig(name="tls", url=url)) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert f"127.0.0.1:{lab.port}" in status.error
            assert "unexpected" not in status.error


async def test_FA50_a_host_that_has_no_address_is_named(hosting: Any) -> None:
    server = ServerConfig(name="web", url="http://no-such-host.invalid/mcp", connect_timeout=10)
    async with hosting(server) as host:
        (status,) = host.status()
        assert status.state == "failed"
        assert "no-such-host.invalid" in status.error or "no answer within" in status.error


async def test_FA51_a_401_is_needs_auth_and_nothing_is_tried_without_new_credentials(hosting: Any) -> None:
    async with HttpLab() as lab:
        refusal = lab.faults["server/discover"] = Refuses(401, WWW_Authenticate="Bearer")
        async with hosting(lab.config()) as host:
            (status,) = host.status()
            assert (status.state, status.retry_in) == ("needs-auth", None)
            results = await asyncio.gather(*(host.ping("web", 1) for _ in range(100)), return_exceptions=True)
            assert {type(result) for result in results} == {AuthNeeded}
            assert refusal.seen == 1
            assert lab.methods() == ["server/discover"]


async def test_FA53_a_hundred_calls_into_a_forgotten_session_make_one_new_one(hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.live_sessions.clear()
        results = await asyncio.gather(*(host.call("mcp_web_echo", {"text": str(n)}) for n in range(100)))
        assert [result.text for result in results] == [str(n) for n in range(100)]
        assert lab.methods().count("initialize") == 2


async def test_FA53_a_session_that_is_forgotten_each_time_is_given_up_after_one_more_try(
    hosting: Any,
) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        forgets = lab.faults["tools/call"] = Refuses(404)
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert result.is_error
        assert forgets.seen == 2


async def test_FA53_an_old_sse_server_that_forgets_the_session_is_met_again_on_a_new_stream(
    hosting: Any,
) -> None:
    async with HttpLab(era="legacy") as lab:
        config = ServerConfig(name="old", url=lab.url.replace("/mcp", "/sse"), transport="sse")
        async with hosting(config) as host:
            forgets = lab.faults["tools/call"] = Refuses(404, times=1)
            assert (await host.call("mcp_old_echo", {"text": "x"}, timeout=10)).text == "x"
            assert forgets.seen == 2
            assert lab.methods().count("GET /sse") == 2


@pytest.mark.parametrize("status", [400, 404, 405, 415])
async def test_FA54_no_streamable_http_here_leads_to_the_handshake_and_then_to_sse_once_each(
    status: int, hosting: Any
) -> None:
    async with HttpLab(era="legacy") as lab:
        lab.faults["server/discover"] = lab.faults["initialize"] = Refuses(status, times=2)
        lab.faults["GET"] = lambda request, _: lab._old_stream(request)  # pyright: ignore[reportPrivateUsage]
        async with hosting(lab.config()) as host:
            (found,) = host.status()
            assert (found.state, found.transport) == ("connected", "sse")
            assert lab.methods()[:4] == ["server/discover", "initialize", "GET", "GET /sse"]
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_FA54_a_400_that_carries_a_modern_error_is_no_reason_to_fall_back(hosting: Any) -> None:
    async with HttpLab() as lab:
        body = '{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"a capability is missing"}}'
        lab.faults["server/discover"] = Refuses(400, body)
        async with hosting(lab.config()) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert "a capability is missing" in status.error
        assert lab.methods() == ["server/discover"]


@pytest.mark.parametrize("status", [400, 406, 409, 418])
async def test_FA55_the_status_and_the_beginning_of_the_body_are_in_the_error(
    status: int, hosting: Any
) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = Refuses(status, "Not Acceptable: " + "x" * 5000 + "END")
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, ServerError)
        assert f"HTTP {status}: Not Acceptable" in result.text
        assert len(result.text) < 500
        assert "END" not in result.text


async def test_FA55_a_secret_that_the_server_says_back_is_not_shown(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TOKEN", "planted-4711")
    async with HttpLab() as lab:
        async with hosting(lab.config(headers={"Authorization": "Bearer ${LAB_TOKEN}"})) as host:
            lab.faults["tools/call"] = Refuses(400, "bad header: Bearer planted-4711")
            result = await host.call("mcp_web_echo", {"text": "x"})
            assert "bad header: Bearer" in result.text
            assert "planted-4711" not in result.text


@pytest.mark.parametrize("after", ["0", "Sun, 06 Nov 1994 08:49:37 GMT"])
@pytest.mark.parametrize("status", [429, 503])
async def test_FA56_a_short_retry_after_is_waited_for_once_and_counts_for_nothing(
    status: int, after: str, hosting: Any
) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        for _ in range(6):
            busy = lab.faults["tools/call"] = Refuses(status, times=1, Retry_After=after)
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            assert busy.seen == 2
        assert host.status()[0].breaker == "closed"
        always = lab.faults["tools/call"] = Refuses(status, Retry_After="0")
        assert (await host.call("mcp_web_echo", {"text": "x"})).is_error
        assert always.seen == 2


@pytest.mark.parametrize("after", ["31", "5", "soon", "-1", "9" * 400])
async def test_FA56_one_that_does_not_fit_is_reported_at_once(after: str, hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        busy = lab.faults["tools/call"] = Refuses(429, Retry_After=after)
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=2)
        assert "429" in result.text
        assert result.duration < 1.5
        assert busy.seen == 1


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_FA57_a_call_that_fails_in_the_server_is_not_repeated(status: int, hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        broken = lab.faults["tools/call"] = Refuses(status, "oops")
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, ServerError)
        assert result.error.outcome == ("failed" if status == 500 else "unknown")
        assert broken.seen == 1


async def test_FA58_a_redirect_within_the_origin_is_followed(hosting: Any) -> None:
    async def moved(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        return None if request.query else web.Response(status=308, headers={"Location": "/mcp?here=1"})

    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = moved
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize(
    "location", ["/mcp", "", "http://[broken", "http://127.0.0.1:99999/", "javascript:alert(1)", "\udcff"]
)
async def test_FA58_a_redirect_in_circles_or_to_nowhere_ends_in_an_error(location: str, hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        circle = lab.faults["tools/call"] = Refuses(307, Location=location)
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=5)
        assert isinstance(result.error, ServerError)
        assert "not JSON" not in result.text
        assert circle.seen <= 5
        del lab.faults["tools/call"]
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_FA68_jumps_of_the_wall_clock_change_nothing(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import itertools
    import time

    jumps = itertools.cycle((3600.0, -3600.0, 86_400.0, 0.0))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    async with HttpLab() as lab, hosting(lab.config()) as host:
        for n in range(10):
            assert (await host.call("mcp_web_echo", {"text": str(n)}, timeout=5)).text == str(n)
        result = await host.call("mcp_web_sleep", {"seconds": 30}, timeout=0.3)
        assert isinstance(result.error, CallTimeout)
        assert 0.3 <= result.duration < 3
        lab.tools.append("later")
        await until(lambda: lab.subscriptions == 1)
        lab.publish_change()
        await until(lambda: "mcp_web_later" in host.catalog.tools)
        assert host.status()[0].breaker == "closed"
