"""HTTP/1.1 connections to other nodes for forwarded requests: bytes in, bytes out, with little CPU.

A general client builds and parses URLs, headers and payloads again that the gateway has already as bytes.
Responses are those of a server of this project, so only their framing matters: a length, chunks, or the end.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["NotConnected", "PeerConnections", "PeerLost", "PeerResponse", "request_head"]

WHOLE = 2**18
"""Bytes up to which a response with a length is read before it is returned."""
MAX_HEAD = 2**16
MAX_CHUNK_LINE = 1024
BUFFERED = 2**18
"""Bytes of a stream that are kept for a client that reads slowly."""
WRITTEN = 2**18
"""Bytes of a body that are written at once."""
RESETS, RESET_WAIT = 3, 0.05
"""How often a connection is tried again that was reset before anything was sent, and seconds between."""
IDLE = 15.0
"""Seconds for which an unused connection is kept; servers keep it longer."""


class NotConnected(OSError):
    """No connection was made, so nothing was sent. `ended`: nothing listens at the address. `reset`: the node
    closed a connection during the handshake of TLS, as one does that ends in this moment."""

    def __init__(self, ended: bool, reset: bool = False) -> None:
        super().__init__("no connection")
        self.ended, self.reset = ended, reset


class PeerLost(OSError):
    """The connection ended before the response did, or what arrived is no response."""


class PeerResponse:
    """A response. `body` is None for a stream and for a large response: read it with `parts`."""

    __slots__ = ("_connection", "body", "headers", "status")

    def __init__(self, connection: _PeerConnection, status: int, headers: dict[str, str]) -> None:
        self._connection = connection
        self.status, self.headers = status, headers
        """Names of headers are in lower case."""
        self.body: bytes | None = None

    async def parts(self) -> AsyncGenerator[bytes]:
        """Return the body as it arrives.

        Raises:
            PeerLost: It ended too early.
        """
        while (part := await self._connection.next_part()) is not None:
            yield part


class _PeerConnection(asyncio.Protocol):
    """One connection; it carries one request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.usable = True
        """Whether another request can be sent when the response is complete."""
        self.since = 0.0
        self._head = bytearray()
        self._answer: asyncio.Future[PeerResponse] | None = None
        self._response: PeerResponse | None = None
        self._left: int | None = None
        """Bytes of the body that are missing; None if its end is the end of the connection."""
        self._chunks: bytearray | None = None
        """What is left of chunks that were not parsed."""
        self._parts: deque[bytes] = deque()
        self._kept = 0
        self._complete = False
        self._lost = False
        self._changed: asyncio.Event | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # --- requests -------------------------------------------------------------------------------

    async def ask(self, head: bytes, body: bytes | None) -> PeerResponse:
        """Send a request and return its response, or the begin of it."""
        self._answer = asyncio.get_running_loop().create_future()
        self._response, self._complete = None, False
        if body is None or len(body) <= WRITTEN:
            self.transport.write(head + body if body else head)
        else:
            self.transport.write(head)
            view = memoryview(body)
            for begin in range(0, len(body), WRITTEN):
                await self._writable.wait()
                self.transport.write(view[begin : begin + WRITTEN])
        return await self._answer

    @property
    def reusable(self) -> bool:
        """Whether the response was received and read to its end, so that nothing of it can be taken for a
        part of the next one."""
        read = self._complete and not self._parts
        return self.usable and read and not self._lost and not self.transport.is_closing()

    @property
    def ended(self) -> bool:
        """Whether the other node has ended this idle connection, also if the event loop does not know it
        yet: a request that is sent then is lost, and may have had effects for all that its sender knows."""
        if sys.platform == "win32":
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    async def next_part(self) -> bytes | None:
        while not self._parts:
            if self._complete:
                return None
            if self._lost:
                raise PeerLost("the connection ended during the response")
            self._changed = asyncio.Event()
            await self._changed.wait()
        part = self._parts.popleft()
        self._kept -= len(part)
        if self._kept < BUFFERED:
            self.transport.resume_reading()
        return part

    # --- protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            if self._response is None:
                self._begin(data)
            else:
                self._go_on(data)
        except ValueError:
            self._left = -1  # never complete
            self.transport.abort()

    def eof_received(self) -> None:
        return

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._writable.set()
        if self._response is not None and self._left is None and self._chunks is None and exc is None:
            self._end()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(PeerLost("the connection ended before a response"))
            self._answer.exception()  # its reader may be gone
        self._wake()

    def _begin(self, data: bytes) -> None:
        """Read the head of a response."""
        if self._head:
            self._head += data
            data = bytes(self._head)
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if self._answer is None or self._answer.done() or len(data) > MAX_HEAD:
                raise ValueError("not a response")
            self._head = bytearray(data)
            return
        self._head.clear()
        first, *lines = data[:end].split(b"\r\n")
        if not first.startswith(b"HTTP/1.1 ") or self._answer is None or self._answer.done():
            raise ValueError("not a response")
        status = int(first[9:12])
        if status < 200:  # an interim response
            self._begin(data[end + 4 :])
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        response = self._response = PeerResponse(self, status, headers)
        self.usable = headers.get("connection", "").lower() != "close"
        self._chunks, self._left = None, None
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunks = bytearray()
        elif "content-length" in headers:
            self._left = int(headers["content-length"])
        elif status in (204, 304):
            self._left = 0
        if self._left is None or self._left > WHOLE:
            self._answer.set_result(response)
        self._go_on(data[end + 4 :])

    def _go_on(self, data: bytes) -> None:
        """Read more of the body."""
        if self._complete and data:
            raise ValueError("more than a response")
        if self._chunks is not None:
            self._chunks += data
            self._read_chunks(self._chunks)
        elif self._left is not None:
            if len(data) > self._left:
                raise ValueError("more than a response")
            self._left -= len(data)
            self._keep(data)
            if not self._left:
                self._end()
        else:
            self._keep(data)

    def _read_chunks(self, data: bytearray) -> None:
        at = 0
        while not self._complete:
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > MAX_CHUNK_LINE:
                    raise ValueError("not a chunk")
                break
            size = int(data[at:end].partition(b";")[0], 16)
            if size < 0:
                raise ValueError("not a chunk")
            if not size:
                if len(data) < end + 4:
                    break
                self.usable &= bytes(data[end + 2 :]) == b"\r\n"  # otherwise trailers, which are not used
                self._end()
                at = len(data)
            elif len(data) >= end + 4 + size:
                self._keep(bytes(data[end + 2 : end + 2 + size]))
                at = end + 4 + size
            else:
                break
        del data[:at]

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._kept += len(part)
            if self._kept > BUFFERED and self._answer is not None and self._answer.done():
                self.transport.pause_reading()
            self._wake()

    def _end(self) -> None:
        self._complete = True
        assert self._response is not None
        assert self._answer is not None
        if not self._answer.done():
            self._response.body = b"".join(self._parts)
            self._parts.clear()
            self._kept = 0
            self._answer.set_result(self._response)
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()


class PeerConnections:
    """The connections to one node.

    Args:
        url: Its address.
        path: Path of its Unix socket; it replaces the address.
        tls: For `https`: a context, or True for the authorities of the system.
    """

    def __init__(self, url: str, path: str | None, tls: Any) -> None:
        parts = urlsplit(url)
        self._host, self._path = parts.hostname or "", path
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context()
        self._idle: list[_PeerConnection] = []
        self._open: set[_PeerConnection] = set()
        self._closed = False

    async def take(self, timeout: float) -> _PeerConnection:
        """Return a connection without a request.

        Raises:
            NotConnected: There is none.
        """
        if self._closed:
            raise NotConnected(ended=False)
        oldest = time.monotonic() - IDLE
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.since > oldest and not connection.ended:
                return connection
            self.drop(connection)
        try:
            async with asyncio.timeout(timeout):
                connection = await self._connected_again()
        except TimeoutError:
            raise NotConnected(ended=False) from None
        self._open.add(connection)
        return connection

    def give_back(self, connection: _PeerConnection) -> None:
        """Keep a connection for the next request, if its response is complete; otherwise close it."""
        if connection.reusable:
            connection.since = time.monotonic()
            self._idle.append(connection)
        else:
            self.drop(connection)

    def drop(self, connection: _PeerConnection) -> None:
        """Close a connection at once, which ends its request at the other node."""
        self._open.discard(connection)
        connection.transport.abort()

    def close(self) -> None:
        """Close all connections; there are no others after that."""
        self._closed = True
        for connection in list(self._open):
            self.drop(connection)
        self._idle.clear()

    async def _connected_again(self) -> _PeerConnection:
        """Connect; if a connection was reset before anything was sent, look whether the node has ended."""
        for _ in range(RESETS):
            try:
                return await self._connected()
            except NotConnected as problem:
                if not problem.reset:
                    raise
            await asyncio.sleep(RESET_WAIT)
        return await self._connected()

    async def _connected(self) -> _PeerConnection:
        loop = asyncio.get_running_loop()
        try:
            if self._path is not None:
                return (await loop.create_unix_connection(_PeerConnection, self._path))[1]
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise NotConnected(_is_end(problem)) from None
        problems: list[OSError] = []
        for family, _, _, _, address in found:
            made = socket.socket(family, socket.SOCK_STREAM)
            try:
                made.setblocking(False)
                await loop.sock_connect(made, address)
                return (
                    await loop.create_connection(
                        _PeerConnection,
                        sock=made,
                        ssl=self._tls,
                        server_hostname=self._host if self._tls is not None else None,
                    )
                )[1]
            except OSError as problem:
                made.close()
                problems.append(problem)
            except BaseException:
                made.close()
                raise
        resets = (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError)
        raise NotConnected(all(map(_is_end, problems)), any(isinstance(one, resets) for one in problems))


def _is_end(problem: OSError) -> bool:
    return isinstance(problem, ConnectionRefusedError | FileNotFoundError)


def request_head(
    method: str, target: str, headers: Sequence[tuple[bytes, bytes]], more: Sequence[tuple[str, str]]
) -> bytes:
    """Return the begin of a request.

    Raises:
        ValueError: The target or a header cannot be sent.
    """
    if " " in target or not target.isprintable():
        raise ValueError("the target has characters that cannot be sent")
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    lines += [b"%b: %b" % header for header in headers]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in more]
    head = b"\r\n".join((*lines, b"\r\n"))
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
        raise ValueError("a header has characters that cannot be sent")
    return head
