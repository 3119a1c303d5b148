"""What attackers try at the gateway, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import aiohttp
import pytest

from mooring import Host, HostConfig
from mooring.config.sections import GatewaySettings
from mooring.config.validate import InvalidEntryError
from mooring.errors import ConfigError
from mooring.gateway.clients import ANONYMOUS, Principal, account
from mooring.gateway.serve import serve_http
from tests.lab.caller import ACCEPT, Caller
from tests.lab.http import HttpLab
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

TOKENS = {"tokens": [{"name": "ana", "token": "${ANA}"}, {"name": "bob", "token": "${BOB}"}]}
ANA, BOB = "ana-0123456789abcdef", "bob-0123456789abcdef"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANA", ANA)
    monkeypatch.setenv("BOB", BOB)


async def raw(port: int, data: bytes, *, until_end: bool = True, seconds: float = 10) -> bytes:
    """What the gateway answers to these very bytes, until it closes the connection."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        await writer.drain()
        answer = await (reader.read() if until_end else reader.read(65536))
        writer.close()
        return answer


def post(body: bytes, *headers: str, path: str = "/mcp") -> bytes:
    lines = [f"POST {path} HTTP/1.1", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()


@pytest.mark.parametrize("path", ["/mcp", "/health", "/ready", "/metrics", "/nothing", "/mcp/other"])
@pytest.mark.parametrize(
    "header", [{"Host": "evil.example.com"}, {"Origin": "http://evil.example.com"}, {"Origin": "null"}]
)
async def test_TH14_a_page_that_rebinds_its_name_to_us_is_refused_on_every_route(
    serving: Any, path: str, header: dict[str, str]
) -> None:
    async with serving() as here, here.http.get(here.base + path, headers=header) as response:
        assert response.status == 403


async def test_a_local_page_is_allowed_and_gets_cors_headers(serving: Any) -> None:
    async with serving() as here:
        origin = {"Origin": "http://localhost:6274", "Access-Control-Request-Headers": "mcp-method"}
        async with here.http.options(here.base + "/mcp", headers=origin) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:6274"
            assert response.headers["Access-Control-Allow-Headers"] == "mcp-method"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_TH14_the_gateway_does_not_listen_on_a_public_address_without_a_token(host: str) -> None:
    async with Host(HostConfig()) as here:
        with pytest.raises(ConfigError, match="no token is required"):
            async with serve_http(here, host):
                pass


@pytest.mark.parametrize(
    "token", [None, "wrong", ANA + "x", ANA[:-1], "", "Basic " + ANA, "\x80" * 20, "x" * 100_000]
)
async def test_a_missing_or_forged_token_is_refused_with_a_challenge(serving: Any, token: str | None) -> None:
    async with serving(lab_server(), gateway=TOKENS) as here:
        lines = ["Host: 127.0.0.1", "Content-Type: application/json"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        answer = await raw(
            here.serving.port,
            post(LIST, *lines),
        )
        status = int(answer.split()[1])
        assert status in (400, 401)  # too long a header is refused before anything reads it
        assert status == 400 or b"www-authenticate: bearer" in answer.lower()
        assert ANA.encode() not in answer


async def test_a_good_token_comes_in_and_says_who_it_is(serving: Any) -> None:
    async with serving(lab_server(), gateway=TOKENS) as here:
        client = await here.caller(modern=False, token=ANA)
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert [c.principal.name for c in here.serving.gateway.registry] == ["token:ana"]


async def test_TH06_a_session_of_another_principal_is_not_found(serving: Any) -> None:
    async with serving(lab_server(), gateway=TOKENS) as here:
        ana, bob = await here.caller(modern=False, token=ANA), await here.caller(modern=False, token=BOB)
        bob.session = ana.session
        assert (await bob.ask("tools/list")).status == 404
        headers = {"Authorization": f"Bearer {BOB}", "Mcp-Session-Id": ana.session}
        async with here.http.delete(here.base + "/mcp", headers=headers) as response:
            assert response.status == 404
        async with here.http.get(here.base + "/mcp", headers=headers) as response:
            assert response.status == 404
        assert (await ana.ask("tools/list")).status == 200


async def test_a_session_id_that_the_client_chose_is_never_taken(serving: Any) -> None:
    async with serving(lab_server()) as here:
        client = Caller(here.http, here.base + "/mcp", modern=False, headers={"Mcp-Session-Id": "f" * 32})
        await client.begin()
        assert client.session != "f" * 32
        assert client.session is not None
        assert len(client.session) == 32
        client.session = "f" * 32
        assert (await client.ask("tools/list")).status == 404


async def test_TH06_a_thousand_guessed_sessions_hit_none(serving: Any) -> None:
    import secrets

    async with serving(lab_server()) as here:
        client = await here.caller(modern=False)

        async def guess() -> int:
            body, headers = client.message("ping", {}, 1)
            return (await client.post(body, headers | {"Mcp-Session-Id": secrets.token_hex(16)})).status

        assert {await guess() for _ in range(1000)} == {404}


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(serving: Any) -> None:
    async with serving(gateway={"max_body": 10_000}) as here:
        client = await here.caller()
        assert (await client.call("x", {"text": "y" * 20_000})).status == 413

        async def endless() -> Any:
            for _ in range(1000):
                yield b"[" * 1000

        with pytest.raises(aiohttp.ClientError):  # cut off during it, or answered
            async with here.http.post(here.base + "/mcp", data=endless(), headers=ACCEPT) as response:
                assert response.status == 413
                raise aiohttp.ClientError


async def test_a_body_that_never_ends_is_cut(serving: Any) -> None:
    async with serving(gateway={"body_timeout": 0.2}) as here:
        head = post(b"", "Host: 127.0.0.1", "Content-Type: application/json").replace(b": 0", b": 100") + b"{"
        answer = await raw(here.serving.port, head)
        assert answer.split()[1] == b"408"


@pytest.mark.parametrize(
    "twice",
    [
        ("Mcp-Method: tools/list", "mcp-method: tools/call"),
        ("Mcp-Name: a", "Mcp-Name: b"),
        ("Mcp-Session-Id: a", "MCP-SESSION-ID: b"),
        ("Authorization: Bearer a", "Authorization: Bearer b"),
        ("Mcp-Param-Region: a", "Mcp-Param-Region: b"),
        ("Origin: http://localhost", "Origin: http://127.0.0.1"),
    ],
)
async def test_a_header_that_stands_twice_is_refused(serving: Any, twice: tuple[str, str]) -> None:
    async with serving() as here:
        answer = await raw(
            here.serving.port, post(LIST, "Host: 127.0.0.1", "Content-Type: application/json", *twice)
        )
        assert answer.split()[1] == b"400"


async def test_two_lengths_or_a_length_beside_chunks_are_refused(serving: Any) -> None:
    async with serving() as here:
        common = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
        )
        for extra in (
            "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ):
            answer = await raw(here.serving.port, (common + extra).encode())
            assert answer.split()[1] == b"400"


@pytest.mark.parametrize(
    "lie",
    [
        {"Mcp-Method": "tools/call"},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Name": "other"},
        {"Mcp-Name": "=?base64?b3RoZXI=?="},
        {"Mcp-Name": "=?base64?%%%?="},
    ],
)
async def test_headers_that_say_something_else_than_the_body_are_refused(
    serving: Any, lie: dict[str, str]
) -> None:
    async with serving(lab_server()) as here:
        client = await here.caller()
        method = "ping" if "Mcp-Method" in lie else "tools/call"
        reply = await client.ask(method, {"name": "echo", "arguments": {}}, **lie)
        assert reply.status == 400
        assert reply.error["code"] == -32020


@pytest.mark.parametrize("missing", ["Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"])
async def test_a_modern_request_without_its_headers_is_refused(serving: Any, missing: str) -> None:
    async with serving(lab_server()) as here:
        client = await here.caller()
        body, headers = client.message("tools/call", {"name": "echo", "arguments": {}}, 1)
        del headers[missing]
        reply = await client.post(body, headers)
        assert (reply.status, reply.error["code"]) == (400, -32020)


async def test_what_a_client_says_to_us_of_itself_never_reaches_a_server(serving: Any) -> None:
    async with HttpLab() as lab, serving(lab.config(), gateway=TOKENS) as here:
        client = await here.caller(token=ANA)
        client.headers |= {"X-Forwarded-User": "root", "Cookie": "a=b"}
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        for _, headers in lab.seen:
            said = json.dumps(dict(headers))
            assert ANA not in said
            assert not {"Authorization", "Cookie", "X-Forwarded-User"} & headers.keys()


async def test_rate_limited_requests_get_retry_after(serving: Any) -> None:
    async with serving(lab_server(), gateway={"rate": 1, "burst": 3}) as here:
        client = await here.caller()
        replies = [await client.ask("tools/list") for _ in range(5)]
        assert [reply.status for reply in replies][:3] == [200, 200, 200]
        assert replies[-1].status == 429
        assert int(replies[-1].headers["Retry-After"]) >= 1


async def test_one_client_may_have_only_so_much_under_way(serving: Any) -> None:
    limits = {**TOKENS, "concurrency": 2}
    async with serving(lab_server(tools=["sleep", "echo"]), gateway=limits) as here:
        ana, bob = await here.caller(token=ANA), await here.caller(token=BOB)
        waiting = [asyncio.create_task(ana.call("sleep", {"seconds": 20})) for _ in range(2)]
        await until(lambda: here.serving.gateway.under_way == 2)
        assert (await ana.call("echo")).status == 429
        assert (await bob.call("echo")).status == 200
        for call in waiting:
            call.cancel()


async def test_there_are_only_so_many_sessions(serving: Any) -> None:
    async with serving(lab_server(), gateway={"max_sessions": 2}) as here:
        first, second = [await here.caller(modern=False) for _ in range(2)]
        late = Caller(here.http, here.base + "/mcp", modern=False)
        async with first.standing(), second.standing():
            assert (await late.ask("initialize", {"protocolVersion": "2025-11-25"})).status == 503
            assert len(here.serving.gateway.registry) == 2
            assert [(await one.ask("ping")).status for one in (first, second)] == [200, 200]


async def test_a_principal_with_idle_sessions_loses_its_own_oldest_when_no_other_session_is_left(
    serving: Any,
) -> None:
    async with serving(lab_server(tools=["echo"]), gateway={**TOKENS, "max_sessions": 5}) as here:
        bobs = [await here.caller(modern=False, token=BOB) for _ in range(2)]
        mine = [await here.caller(modern=False, token=ANA) for _ in range(2)]
        async with mine[0].standing():
            more = [await here.caller(modern=False, token=ANA) for _ in range(3)]
            everyone = (*bobs, *mine, *more)
            assert [(await one.ask("ping")).status for one in everyone] == [200, 200, 200, 404, 404, 200, 200]
            async with more[1].standing(), more[2].standing():
                late = Caller(here.http, here.base + "/mcp", modern=False, headers=dict(mine[0].headers))
                assert (await late.ask("initialize", {"protocolVersion": "2025-11-25"})).status == 503
        assert len(here.serving.gateway.registry) == 5


async def test_a_principal_at_its_session_limit_loses_its_own_oldest_idle_session_and_no_other_principals(
    serving: Any,
) -> None:
    limits = {**TOKENS, "client_sessions": 3, "max_sessions": 10}
    async with serving(lab_server(tools=["echo"]), gateway=limits) as here:
        bob = await here.caller(modern=False, token=BOB)
        flood = [await here.caller(modern=False, token=ANA) for _ in range(20)]
        assert (await bob.call("echo", {"text": "hi"})).text == "hi"
        alive = [(await one.ask("ping")).status for one in flood]
        assert alive == [404] * 17 + [200] * 3
        async with flood[-3].standing(), flood[-2].standing():
            newest = [await here.caller(modern=False, token=ANA) for _ in range(2)]
            held = (flood[-3], flood[-2], newest[-1])
            assert [(await one.ask("ping")).status for one in held] == [200] * 3
            async with newest[-1].standing():
                late = Caller(here.http, here.base + "/mcp", modern=False, headers=dict(flood[0].headers))
                refused = await late.ask("initialize", {"protocolVersion": "2025-11-25"})
                assert refused.status == 503
        assert (await bob.call("echo", {"text": "hi"})).text == "hi"
        assert len(here.serving.gateway.registry) == 4


async def test_a_principal_that_holds_every_session_loses_idle_ones_to_others_down_to_half(
    serving: Any,
) -> None:
    async with serving(lab_server(tools=["echo"]), gateway={**TOKENS, "max_sessions": 4}) as here:
        flood = [await here.caller(modern=False, token=ANA) for _ in range(4)]
        bobs = [await here.caller(modern=False, token=BOB) for _ in range(3)]
        everyone = (*flood, *bobs)
        assert [(await one.ask("ping")).status for one in everyone] == [404, 404, 200, 200, 404, 200, 200]


async def test_where_no_token_is_asked_for_sessions_count_by_address() -> None:
    anonymous = [account(ANONYMOUS, address) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1")]
    assert len(set(anonymous)) == 2
    one, neighbour, other = [
        account(ANONYMOUS, address) for address in ("2001:db8::1", "2001:db8::ffff:2%eth0", "2001:db9::1")
    ]
    assert one == neighbour != other
    assert account(ANONYMOUS, "::ffff:10.0.0.1") != account(ANONYMOUS, "::ffff:10.0.0.2")
    assert account(Principal(name="ana"), "10.0.0.1") == account(Principal(name="ana"), "10.0.0.2")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":{},"method":"server/discover"}',
        b'{"jsonrpc":"2.0","id":1,"method":7,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}}',
        b"\xff\xfe",
    ],
)
async def test_what_is_no_message_is_refused_and_nothing_else_happens(serving: Any, body: bytes) -> None:
    async with serving(lab_server()) as here:
        client = await here.caller()
        reply = await client.post(body, dict(ACCEPT))
        assert reply.status == 400
        assert (await client.call("echo", {"text": "hi"})).text == "hi"


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", PING),
        ("gzip", gzip.compress(PING * 1000, mtime=0)[:-20]),
        ("gzip", gzip.compress(PING, mtime=0)[:12]),
        ("gzip", gzip.compress(PING, mtime=0)[:-4] + b"\0\0\0\0"),
        ("gzip", b""),
        ("deflate", b"\x78\x9c" + PING),
        ("deflate", zlib.compress(PING * 1000)[:-20]),
        ("br", PING),
        ("zstd", PING),
        ("x-unknown", PING),
        ("gzip, gzip", gzip.compress(PING, mtime=0)),
        ("gzip", gzip.compress(b" " * 2**26, mtime=0)),
        ("gzip", gzip.compress(b" " * 2**23, mtime=0)),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:8].hex(),
)
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
async def test_a_body_whose_encoding_is_wrong_is_the_clients_mistake(
    serving: Any, encoding: str, body: bytes, chunked: bool
) -> None:
    async with serving(lab_server()) as here:
        sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked and body else body
        size = b"Transfer-Encoding: chunked" if chunked and body else b"Content-Length: %d" % len(body)
        head = (
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Encoding: %s\r\nConnection: close\r\n%s\r\n\r\n" % (encoding.encode(), size)
        )
        answer = await raw(here.serving.port, head + sent)
        status = int(answer.split(b" ", 2)[1])
        assert status in (400, 413, 415), answer[:300]
        client = await here.caller()
        assert (await client.call("echo", {"text": "hi"})).text == "hi"


def test_a_token_that_is_written_out_is_refused() -> None:
    with pytest.raises(InvalidEntryError, match="reference"):
        GatewaySettings(tokens=[{"name": "ana", "token": "plain-secret-text"}])
