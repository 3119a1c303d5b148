"""The gateway behind proxies: forwarded headers only from named ones, base paths, and a real nginx."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from bench.listening import free_port
from mooring.config.operation import ForwardedSettings
from mooring.errors import ConfigError
from mooring.gateway.web import Forwarding, WebRequest
from tests.lab.caller import Caller
from tests.lab.certificates import Authority
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
CLIENT = ("127.0.0.2", 0)
"""The client has an address that is not the proxy's."""
TOKEN = "a-token-of-twenty-letters"


class Plain(WebRequest):
    """A request that is only looked at."""

    async def read(self, limit: int, timeout: float) -> bytes:
        raise NotImplementedError

    start_stream = write = end_stream = abort = read  # type: ignore[assignment]


def seen(settings: dict[str, Any], peer: str, *headers: tuple[str, str]) -> Plain:
    """The request of `peer` with these headers, as it is understood."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    request = Plain(
        method="POST",
        path="/mcp",
        raw_path="/mcp",
        query_string="",
        headers=CIMultiDict(headers),
        raw_headers=raw,
        peer=peer,
    )
    Forwarding(ForwardedSettings(**settings)).apply(request)
    return request


NAMED = {"proxies": ["10.0.0.0/8", "::1"]}


@pytest.mark.parametrize(
    ("peer", "header", "found"),
    [
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.3"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("192.0.2.1", "10.0.0.1", "192.0.2.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_named_proxy(peer: str, header: str, found: str) -> None:
    assert seen(NAMED, peer, ("X-Forwarded-For", header)).remote == found
    quoted = ", ".join(f'for="{part.strip()}"' for part in header.split(","))
    standard = {**NAMED, "header": "forwarded"}
    assert seen(standard, peer, ("Forwarded", quoted)).remote == found


def test_only_the_configured_kind_of_header_counts() -> None:
    """A proxy that writes one kind passes the other on as the client wrote it."""
    forged = ("Forwarded", "for=6.6.6.6;host=evil.example"), ("X-Forwarded-For", "203.0.113.9")
    assert seen(NAMED, "10.0.0.1", *forged).remote == "203.0.113.9"
    assert seen(NAMED, "10.0.0.1", *forged, ("Host", "good")).host == "good"
    standard = {**NAMED, "header": "forwarded"}
    assert seen(standard, "10.0.0.1", *reversed(forged)).remote == "6.6.6.6"


@given(st.lists(st.text(max_size=30), max_size=6), st.sampled_from(["x-forwarded", "forwarded"]))
def test_whatever_is_forwarded_the_address_is_one_and_never_from_before_the_last_client(
    parts: list[str], kind: str
) -> None:
    text = ",".join(parts).encode("ascii", "replace").decode()
    name = "X-Forwarded-For" if kind == "x-forwarded" else "Forwarded"
    last = "203.0.113.9" if kind == "x-forwarded" else "for=203.0.113.9"
    settings = {**NAMED, "header": kind}
    assert seen(settings, "10.0.0.1", (name, f"{text}, {last}")).remote == "203.0.113.9"
    assert seen(settings, "192.0.2.1", (name, f"{text}, {last}")).remote == "192.0.2.1"


async def test_a_proxy_without_tokens_is_refused(serving: Any) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.forwarded.*no token is required"):
        async with serving(lab_server(), gateway={"forwarded": {"proxies": ["127.0.0.1"]}}):
            pass


async def test_a_base_path_belongs_to_every_route(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(lab_server(), gateway={"base_path": "/tools/"}, options={"sse": True}) as here:
        assert here.serving.url.endswith("/tools/mcp")
        caller = await here.caller(path="/tools/mcp")
        assert (await caller.call("echo", {"text": "hi"})).text == "hi"
        for path, status in (("/tools/health", 200), ("/health", 404), ("/mcp", 404), ("/toolsmcp", 404)):
            async with here.http.get(here.base + path) as answer:
                assert answer.status == status, path
        async with here.http.get(f"{here.base}/tools/sse") as stream:
            await stream.content.readline()
            assert (await stream.content.readline()).startswith(b"data: /tools/messages?session_id=")


# --- nginx ------------------------------------------------------------------------------------------------

NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)


@asynccontextmanager
async def nginx(folder: Path, upstream: int, authority: Authority) -> AsyncIterator[int]:
    """Our example for nginx on a free port, with its paths, names and ports replaced."""
    assert NGINX is not None
    port = free_port()
    leaf = authority.made.issue_cert("mcp.example.com", "127.0.0.1")
    (folder / "site.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (folder / "site.key").write_bytes(leaf.private_key_pem.bytes())
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for old, new in (
        ("127.0.0.1:8080", f"127.0.0.1:{upstream}"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/tls/mcp.crt", str(folder / "site.crt")),
        ("/etc/nginx/tls/mcp.key", str(folder / "site.key")),
    ):
        assert old in text
        text = text.replace(old, new)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}\n{text}}}\n"
    )
    words = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(20):
            while True:
                assert process.returncode is None, (folder / "error.log").read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_behind_our_nginx_example_both_eras_streams_and_cancellation_work(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANA", TOKEN)
    authority = Authority(tmp_path / "ca")
    (tmp_path / "nginx").mkdir()
    settings = {
        "tokens": [{"name": "ana", "token": "${ANA}"}],
        "url": "https://mcp.example.com",
        "allowed_hosts": ["mcp.example.com"],
        "forwarded": {"proxies": ["127.0.0.1"]},
        "access_log": str(tmp_path / "access.log"),
    }
    async with (
        serving(lab_server(tools=["echo", "sleep"]), gateway=settings) as here,
        nginx(tmp_path / "nginx", here.serving.port, authority) as port,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=authority.trusting(), local_addr=CLIENT)
        ) as http,
    ):
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Host": "mcp.example.com",
            "X-Forwarded-For": "6.6.6.6",  # forged by the client
        }
        url = f"https://127.0.0.1:{port}/mcp"
        for modern in (True, False):
            caller = Caller(http, url, modern=modern, headers=headers)
            await caller.begin()
            assert (await caller.call("echo", {"text": "hi"})).text == "hi"
        async with caller.standing():
            assert (await caller.call("echo", {"text": "beside a stream"})).text == "beside a stream"
        hurried = aiohttp.TCPConnector(ssl=authority.trusting(), local_addr=CLIENT)
        async with aiohttp.ClientSession(connector=hurried) as other:
            gone = Caller(other, url, modern=True, headers=headers)
            call = asyncio.create_task(gone.call("sleep", {"seconds": 30}))
            await until(lambda: here.serving.gateway.under_way > 0, 10)
            call.cancel()
        # nginx closes its own connection, and the call ends
        await until(lambda: here.serving.gateway.under_way == 0, 10)
        body, usual = caller.message("tools/list", {}, 1)
        async with http.post(url, json=body, headers={**usual, "Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with http.post(url, data=BytesIO(bytes(5_000_000)), headers=usual) as answer:
            assert answer.status == 413
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert {line["remote"] for line in lines} == {"127.0.0.2"}, "the address that nginx saw"
    assert [line["outcome"] for line in lines if line.get("tool") == "sleep"] == ["cancelled"]
