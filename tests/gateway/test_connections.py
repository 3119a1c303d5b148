"""Silent connections, and more of them than allowed: other clients are still served."""

from __future__ import annotations

import asyncio
import importlib.util
import resource
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mooring.gateway import http_server
from mooring.gateway.http_server import connection_capacity
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

on_both_loops = pytest.mark.parametrize(
    "anyio_backend",
    [
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(
            ("asyncio", {"use_uvloop": True}),
            id="uvloop",
            marks=pytest.mark.skipif(
                not importlib.util.find_spec("uvloop"), reason="uvloop is not installed"
            ),
        ),
    ],
)

Idle = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def idle(port: int, count: int) -> list[Idle]:
    """Connections that never send anything, from several addresses."""
    return [
        await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{2 + n % 8}", 0))
        for n in range(count)
    ]


async def ended(one: Idle) -> bool:
    """Whether the other side ends it, within a bound."""
    try:
        async with asyncio.timeout(10):
            return not await one[0].read(1)
    except ConnectionError:
        return True


async def closed(some: list[Idle]) -> None:
    for _, writer in some:
        writer.close()


async def test_idle_connections_cost_the_others_nothing_and_are_closed_when_their_time_is_over(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "FIRST_REQUEST_TIMEOUT", 1.0)
    async with serving(lab_server()) as here:
        some = await idle(here.serving.port, 500)
        client = await here.caller()
        async with asyncio.timeout(5):
            assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert all(await asyncio.gather(*(ended(one) for one in some)))
        assert (await client.call("echo", {"text": "still"})).text == "still"
        await closed(some)


async def test_a_connection_that_never_ends_its_headers_is_closed(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "FIRST_REQUEST_TIMEOUT", 0.3)
    async with serving() as here:
        [one] = await idle(here.serving.port, 1)
        one[1].write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert await ended(one)
        await closed([one])


@on_both_loops
async def test_where_there_is_no_more_room_the_oldest_that_said_nothing_goes(serving: Any) -> None:
    async with serving(lab_server(), gateway={"max_connections": 5}) as here:
        some = await idle(here.serving.port, 5)
        client = await here.caller()
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert await ended(some[0])
        more = await idle(here.serving.port, 20)
        async with client.listening(toolsListChanged=True):
            for n in range(3):
                assert (await client.call("echo", {"text": f"{n}"})).text == f"{n}"
        await closed([*some, *more])


@on_both_loops
async def test_who_is_being_served_never_goes_for_another(serving: Any) -> None:
    # One era, one process: what grows in it is what the clients are shown.
    server = lab_server(tools=["grow"], settings={"protocol": "2026-07-28"})
    async with serving(server, gateway={"max_connections": 3}) as here:
        async with AsyncExitStack() as stack:
            clients = [await here.caller() for _ in range(2)]
            streams = [
                await stack.enter_async_context(client.listening(toolsListChanged=True)) for client in clients
            ]
            await clients[0].call("grow", {"name": "echo"})
            for stream in streams:
                async with asyncio.timeout(10):
                    assert "list_changed" in (await anext(stream))["method"]
            await stack.enter_async_context(clients[0].listening(toolsListChanged=True))
            [late] = await idle(here.serving.port, 1)
            assert await ended(late)
            await closed([late])


async def test_a_connection_between_two_requests_goes_after_those_that_said_nothing(serving: Any) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with serving(gateway={"max_connections": 3}) as here:
        resting, silent, other = await idle(here.serving.port, 3)
        resting[1].write(request)
        await resting[0].readuntil(b"ok")
        newest = await idle(here.serving.port, 1)
        assert await ended(silent)
        newest += await idle(here.serving.port, 1)
        assert await ended(other)
        resting[1].write(request)
        await resting[0].readuntil(b"ok")
        await closed([resting, silent, other, *newest])


def test_there_is_never_room_for_more_connections_than_the_process_may_have_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert connection_capacity(10) == 10
        if hard != resource.RLIM_INFINITY:
            assert connection_capacity(10**9) == hard - http_server.RESERVED_DESCRIPTORS
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_that_are_gone_are_not_counted(serving: Any) -> None:
    async with serving() as here:
        some = await idle(here.serving.port, 10)
        await closed(some)

        async def counted() -> str:
            async with here.http.get(here.base + "/metrics") as response:
                return await response.text()

        async with asyncio.timeout(10):
            while "mooring_gateway_connections 1\n" not in await counted():
                pass


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_whose_session_the_gateway_ends_gets_an_answer(serving: Any, streamed: bool) -> None:
    async with serving(lab_server(tools=["sleep"])) as here:
        gateway = here.serving.gateway
        client = await here.caller(modern=False)
        more = {"_meta": {"progressToken": 1}} if streamed else {}
        call = asyncio.create_task(client.call("sleep", {"seconds": 60}, **more))
        async with asyncio.timeout(20):
            await until(lambda: gateway.under_way == 1)
            await gateway.registry.end_unless(lambda client: False)
            reply = await call
        assert reply.status == 200
        assert reply.error["code"] == -32001
        assert "ended the session" in reply.error["message"]
        assert (await client.ask("ping")).status == 404
