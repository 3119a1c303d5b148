"""Connections to other nodes: the framing of responses, and when a connection is used again."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing

import aiohttp
import pytest

from mooring.cluster.forward import PeerNode
from mooring.cluster.peer_http import NotConnected, PeerConnections, PeerLost, PeerResponse, request_head
from tests.cluster.lab import free_ports

pytestmark = pytest.mark.anyio

HEAD = request_head("GET", "/x", [(b"Host", b"a")], [])
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + b"y" * 600_000
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT


@asynccontextmanager
async def peer(
    answers: Sequence[bytes], *, step: int = 0, ends: bool = False
) -> AsyncGenerator[PeerConnections]:
    """A node that answers the requests of all connections in turn, `step` bytes at a time."""
    left, accepted = list(answers), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        while left:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            answer = left.pop(0)
            for at in range(0, len(answer), step or len(answer)):
                writer.write(answer[at : at + (step or len(answer))])
                await writer.drain()
                if step:
                    await asyncio.sleep(0)
            if ends:
                break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connections = PeerConnections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None, True)
        try:
            yield connections
        finally:
            connections.close()


async def whole(response: PeerResponse) -> bytes:
    if response.body is not None:
        return response.body
    return b"".join([part async for part in response.parts()])


@pytest.mark.parametrize("step", [0, 1, 7])
async def test_every_framing_is_read_in_pieces_of_any_size_over_one_connection(step: int) -> None:
    answers = [SHORT, CHUNKS, EMPTY, INTERIM, SHORT]
    async with peer(answers, step=step) as connections:
        used: set[int] = set()
        for expected in (b"hello", b"abcde", b"", b"hello", b"hello"):
            connection = await connections.take(5)
            used.add(id(connection))
            assert await whole(await connection.ask(HEAD, None)) == expected
            connections.give_back(connection)
        assert len(used) == 1


async def test_large_responses_and_those_that_end_with_their_connection_are_read_in_parts() -> None:
    for answer, length in ((LARGE, 600_000), (CLOSED, 10)):
        async with peer([answer], ends=True) as connections:
            connection = await connections.take(5)
            response = await connection.ask(HEAD, None)
            assert response.body is None
            assert len(await whole(response)) == length
            connections.give_back(connection)


async def test_nothing_of_a_response_that_was_not_read_is_taken_for_the_next_one() -> None:
    async with peer([CHUNKS, SHORT]) as connections:
        first = await connections.take(5)
        response = await first.ask(HEAD, None)
        assert await anext(response.parts()) == b"abc"  # the client leaves; the rest has arrived
        connections.give_back(first)
        second = await connections.take(5)
        assert second is not first
        assert (await second.ask(HEAD, None)).body == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
        b"220 mail.example.org\r\n\r\n",
        b"HTTP/1.1 2",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_response_or_ends_early_is_an_error(answer: bytes) -> None:
    async with peer([answer], ends=True) as connections:
        connection = await connections.take(5)
        with pytest.raises(PeerLost):
            async with asyncio.timeout(20):
                await whole(await connection.ask(HEAD, None))
        connections.give_back(connection)
        assert not connections._open


async def test_a_node_that_has_ended_is_told_from_one_that_cannot_be_reached() -> None:
    [port] = free_ports(1)
    with pytest.raises(NotConnected) as caught:
        await PeerConnections(f"http://127.0.0.1:{port}", None, True).take(5)
    assert caught.value.ended
    with pytest.raises(NotConnected) as caught:
        await PeerConnections("http://name.invalid:80", None, True).take(5)
    assert not caught.value.ended


@pytest.mark.skipif(sys.platform == "win32", reason="has no way to ask a socket for its end")
async def test_a_connection_whose_end_the_loop_has_not_read_yet_gets_no_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        connections = PeerConnections(url, None, True)
        first = await connections.take(5)
        served, _ = listener.accept()
        asking = asyncio.create_task(first.ask(HEAD, None))
        assert await asyncio.to_thread(served.recv, 100) == HEAD
        served.sendall(SHORT)
        assert (await asking).body == b"hello"
        connections.give_back(first)
        served.close()  # nothing of the loop runs until a connection is asked for
        second = await connections.take(5)
        assert second is not first
        connections.give_back(second)
        connections.close()


async def test_a_node_that_has_left_is_not_asked_any_more() -> None:
    node = PeerNode("a", "http://127.0.0.1:9")
    node.session()
    await node.close()
    with pytest.raises(aiohttp.ClientConnectionError):  # callers expect errors of this kind
        node.session()
    with pytest.raises(NotConnected):
        await node._connections.take(5)


@pytest.mark.parametrize("header", [(b"A", b"b\r\nC: d"), (b"A", b"b\nC: d"), (b"A\r\n", b"b")])
def test_a_header_cannot_add_lines(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        request_head("GET", "/x", [header], [])


@pytest.mark.parametrize("target", ["/x HTTP/1.1\r\nA: b", "/a b", "/a\nb"])
def test_a_target_cannot_add_lines(target: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        request_head("GET", target, [], [])


async def test_a_node_that_ends_during_the_handshake_of_tls_counts_as_ended() -> None:
    """Connections that a process has not accepted when it is killed are reset; nothing was sent on them."""
    listening = socket.create_server(("127.0.0.1", 0))
    connections = PeerConnections(f"https://127.0.0.1:{listening.getsockname()[1]}", None, True)

    def end() -> None:
        listening.settimeout(10)
        client, _ = listening.accept()
        listening.close()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    with closing(listening):
        ending = asyncio.create_task(asyncio.to_thread(end))
        with pytest.raises(NotConnected) as refused:
            await connections.take(10)
        await ending
        assert refused.value.ended


async def test_a_node_that_resets_every_handshake_of_tls_is_not_asked_for_ever() -> None:
    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NotConnected) as refused:
            await asyncio.wait_for(PeerConnections(url, None, True).take(60), 30)
        assert not refused.value.ended
