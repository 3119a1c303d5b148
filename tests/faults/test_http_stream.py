"""FA59-FA67: HTTP responses that are interrupted, slow, too large or for another request."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import tracemalloc
from typing import Any

import pytest
from aiohttp import web

from mooring import CallTimeout, ConnectionLost, ServerError
from tests.lab.http import Fault, HttpLab

pytestmark = pytest.mark.anyio

MIB = 2**20


def _raw(data: bytes, *, hang: bool = True) -> Fault:
    """Write `data` as the whole HTTP answer, then hang or cut the connection."""

    async def fault(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(data)
        await asyncio.sleep(60 if hang else 0.02)
        request.transport.abort()
        return web.Response()

    return fault


def _stream(*events: bytes, hang: bool = False) -> Fault:
    """Answer with a stream of `events`, `@ID@` being the id of the request, that ends or stays open."""

    async def fault(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event.replace(b"@ID@", json.dumps(message["id"]).encode()))
        if hang:
            await asyncio.sleep(60)
        return response

    return fault


def _answer(**settings: Any) -> Fault:
    async def fault(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(**settings)

    return fault


def _event(text: str, request_id: str = "@ID@") -> bytes:
    result = json.dumps({"content": [{"type": "text", "text": text}]})
    return f'data: {{"jsonrpc":"2.0","id":{request_id},"result":{result}}}\n\n'.encode()


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ONLY_BAD = "only the call that asks for it"


def _only_bad(fault: Fault) -> Fault:
    async def sometimes(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        bad = message["params"].get("arguments", {}).get("text") == ONLY_BAD
        return await fault(request, message) if bad else None

    return sometimes


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Ty",
        JSON + b"Content-Length: 1000\r\n\r\n{",
        JSON + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":',
        JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"rubbish\r\n\r\n",
    ],
    ids=["nothing", "headers", "body", "chunk", "bad chunk", "rubbish"],
)
async def test_FA59_a_connection_that_breaks_costs_one_call_and_no_neighbour(
    data: bytes, era: str, hosting: Any
) -> None:
    async with HttpLab(era=era) as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _only_bad(_raw(data, hang=False))
        texts = [ONLY_BAD if n == 3 else str(n) for n in range(10)]
        results = await asyncio.gather(*(host.call("mcp_web_echo", {"text": text}) for text in texts))
        bad = results.pop(3)
        assert isinstance(bad.error, ConnectionLost)
        assert bad.error.outcome == "unknown"
        assert [result.text for result in results] == [text for text in texts if text != ONLY_BAD]
        assert lab.methods().count("tools/call") == 10
        assert lab.methods().count("server/discover") == 1  # the connection itself lives on


@pytest.mark.parametrize(
    "fault",
    [
        _raw(b""),
        _raw(b"HTTP/1.1 200 OK\r\nX-Slow: "),
        _raw(JSON + b"Content-Length: 1000\r\n\r\n{"),
        _stream(hang=True),
        _stream(b": keep-alive\n\n" * 20, hang=True),
    ],
    ids=["no answer", "headers", "body", "stream", "comments"],
)
async def test_FA60_an_answer_that_trickles_ends_at_the_deadline(fault: Fault, hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = fault
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=0.4)
        assert isinstance(result.error, CallTimeout)
        assert 0.4 <= result.duration < 3
        del lab.faults["tools/call"]
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_FA60_a_call_keeps_its_deadline_when_its_connection_is_given_up_meanwhile(
    era: str, hosting: Any
) -> None:
    asked = asyncio.Event()

    async def silent(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        asked.set()
        await asyncio.sleep(60)
        return response

    async with HttpLab(era=era) as lab:
        lab.faults["tools/call"] = silent
        async with hosting(lab.config()) as host:
            call = asyncio.create_task(host.call("mcp_web_echo", {"text": "x"}, timeout=1))
            await asked.wait()
            host.provider("web").supervisor.live.channel.mark_closed("the server floods its connection")
            async with asyncio.timeout(20):
                result = await call
    assert isinstance(result.error, CallTimeout)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_FA61_a_stream_that_ends_without_an_answer_is_an_error_at_once(era: str, hosting: Any) -> None:
    async with HttpLab(era=era) as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _stream(b": hello\n\n")
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=30)
        assert isinstance(result.error, ConnectionLost)
        assert result.error.outcome == "unknown"
        assert result.duration < 5
        assert lab.methods().count("tools/call") == 1


async def test_FA61_it_is_sent_again_only_when_configuration_calls_the_tool_idempotent(hosting: Any) -> None:
    async with HttpLab(era="modern") as lab, hosting(lab.config(idempotent=["echo"])) as host:
        lab.faults["tools/call"] = _stream(b": hello\n\n")
        assert (await host.call("mcp_web_echo", {"text": "x"})).is_error
        assert lab.methods().count("tools/call") == 2


async def test_FA62_a_resumed_stream_waits_as_long_as_the_server_says_and_answers_once(hosting: Any) -> None:
    times: list[float] = []

    async def rest(request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if request.headers.get("Last-Event-ID") != "7":
            return None
        times.append(time.monotonic())
        wanted = next(m["id"] for m in lab.messages if m.get("method") == "tools/call")
        both = (_event("once", str(wanted)) + _event("twice", str(wanted))).replace(b"@ID@", b"0")
        return web.Response(body=both, headers={"Content-Type": "text/event-stream"})

    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.faults["GET"] = rest
        lab.faults["tools/call"] = _stream(b"id: 7\nretry: 400\ndata:\n\n")
        started = time.monotonic()
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "once"
        assert len(times) == 1
        assert times[0] - started >= 0.35
        assert lab.methods().count("tools/call") == 1


@pytest.mark.parametrize("retry", [b"9" * 25, b"9" * 4000, b"9" * 5000, b"-1", b"soon"])
async def test_FA62_a_retry_beyond_reason_ends_at_the_deadline_or_sooner(retry: bytes, hosting: Any) -> None:
    async with HttpLab(era="legacy") as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _stream(b"id: 7\nretry: " + retry + b"\ndata:\n\n")
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=0.4)
        assert result.error is not None
        assert result.duration < 3


async def test_FA64_an_event_of_several_MiB_is_read_and_one_beyond_the_limit_names_it(hosting: Any) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _stream(_event("x" * (3 * MIB)))
        assert len((await host.call("mcp_web_echo", {"text": "x"}, timeout=20, budget=0)).text) == 3 * MIB
    async with HttpLab() as lab, hosting(lab.config(max_message=MIB)) as host:
        lab.faults["tools/call"] = _stream(_event("x" * (3 * MIB)))
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=20)
        assert isinstance(result.error, ServerError)
        assert "max_message" in result.text


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
async def test_FA65_a_bomb_is_never_unpacked_beyond_the_limit(kind: str, hosting: Any) -> None:
    bomb = gzip.compress(b"data: " + b" " * (64 * MIB))
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    async with HttpLab() as lab, hosting(lab.config(max_message=MIB)) as host:
        lab.faults["tools/call"] = _answer(body=bomb, headers=headers)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            result = await host.call("mcp_web_echo", {"text": "x"}, timeout=20)
            assert tracemalloc.get_traced_memory()[1] - before < 4 * MIB
        finally:
            tracemalloc.stop()
        assert isinstance(result.error, ServerError)


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"status": 202}, "202"),
        ({"text": "<html>Sign in</html>", "content_type": "text/html"}, "text/html"),
        ({"text": "ok", "content_type": "text/plain"}, "text/plain"),
        ({"body": b"", "content_type": "application/json"}, "not a JSON-RPC"),
        ({"body": b"{broken", "content_type": "application/json"}, "not a JSON-RPC"),
        ({"body": b"[]", "content_type": "application/json"}, "not a JSON-RPC"),
        (
            {
                "body": b"\x1f\x8b\x00",
                "headers": {"Content-Encoding": "gzip", "Content-Type": "application/json"},
            },
            "",
        ),
        ({"body": b"{}", "headers": {"Content-Encoding": "br", "Content-Type": "application/json"}}, "'br'"),
    ],
)
async def test_FA66_an_answer_of_another_kind_is_an_error_that_names_it(
    settings: Any, reported: str, hosting: Any
) -> None:
    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _answer(**settings)
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=5)
        assert isinstance(result.error, ServerError)
        assert reported in result.text
        del lab.faults["tools/call"]
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_FA67_a_response_to_another_request_ends_at_the_deadline_at_the_latest(hosting: Any) -> None:
    foreign = _event("not yours", "4711")
    async with HttpLab() as lab, hosting(lab.config()) as host:
        lab.faults["tools/call"] = _stream(foreign, hang=True)
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=0.4)
        assert isinstance(result.error, CallTimeout)
        lab.faults["tools/call"] = _answer(body=foreign[6:].strip(), content_type="application/json")
        result = await host.call("mcp_web_echo", {"text": "x"}, timeout=5)
        assert "another request" in result.text
        lab.faults["tools/call"] = _stream(foreign, _event("yours"))
        assert (await host.call("mcp_web_echo", {"text": "x"}, timeout=5)).text == "yours"


@pytest.mark.parametrize(
    "event",
    [b"event: endpoint\ndata: http://[broken\n\n", b"event: endpoint\ndata: http://elsewhere.invalid/\n\n"],
)
async def test_an_old_stream_that_names_a_bad_address_fails_in_words(event: bytes, hosting: Any) -> None:
    async with HttpLab() as lab:
        lab.faults["GET"] = _answer(body=event, headers={"Content-Type": "text/event-stream"})
        async with hosting(lab.config(transport="sse")) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert "unexpected" not in status.error
