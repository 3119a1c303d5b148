"""Our own HTTP server: connections, their limits, TLS, and requests for the routes of the gateway."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import zlib
from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakSet

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from mooring.config.logs import logger
from mooring.gateway.tls import certificate_principal
from mooring.gateway.web import Denied, Response, WebRequest, too_large, too_slow

log = logger("mooring.gateway")

FIRST_REQUEST_TIMEOUT = 15.0
"""Seconds within which a new connection must send the headers of a request."""
RESERVED_DESCRIPTORS = 256
"""File descriptors reserved for servers and files."""


def connection_capacity(wanted: int) -> int:
    """Raise the limit of file descriptors and return how many connections fit into it, at most `wanted`."""
    if sys.platform == "win32":  # no such limit
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return wanted
    return max(min(wanted, hard - RESERVED_DESCRIPTORS), 1)


class ConnectionLimit:
    """All open connections. At the limit, the oldest one without any request is closed, else the longest idle
    one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._silent: dict[ClientConnection, None] = {}
        self._idle: dict[ClientConnection, None] = {}

    def opened(self, connection: ClientConnection) -> bool:
        """Count a new connection; False if it must be closed because all others are active."""
        self.count += 1
        self._silent[connection] = None
        if self.count <= self.most:
            return True
        self._silent.pop(connection)
        for group in (self._silent, self._idle):
            if group:
                oldest = next(iter(group))
                del group[oldest]
                oldest.abort()
                self._silent[connection] = None
                return True
        return False

    def activated(self, connection: ClientConnection) -> None:
        """Mark a connection as active: it sent a request."""
        self._silent.pop(connection, None)
        self._idle.pop(connection, None)

    def idled(self, connection: ClientConnection) -> None:
        """Mark a connection as idle: its request was answered."""
        self._idle[connection] = None

    def closed(self, connection: ClientConnection) -> None:
        self.count -= 1
        self.activated(connection)


class ClientConnection(RequestHandler):
    """A connection that is closed if it sends no request in time."""

    __slots__ = ("_connection_limit", "_timeout")

    def __init__(self, connection_limit: ConnectionLimit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connection_limit = connection_limit
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._connection_limit.opened(self):
            self._timeout = asyncio.get_running_loop().call_later(FIRST_REQUEST_TIMEOUT, self.force_close)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connection_limit.closed(self)
        self._cancel_timeout()
        super().connection_lost(exc)

    def begin(self) -> None:
        """A request arrived."""
        self._cancel_timeout()
        self._connection_limit.activated(self)

    def end(self) -> None:
        """The request was answered."""
        if self.transport is not None:
            self._connection_limit.idled(self)

    def abort(self) -> None:
        # Not an isinstance check: the transports of uvloop do not inherit from asyncio.Transport.
        if self.transport is not None:
            self.transport.abort()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


class Listener(web.Server):
    """Creates the connections."""

    connection_limit: ConnectionLimit

    def __call__(self) -> RequestHandler:
        return ClientConnection(self.connection_limit, self, loop=self._loop, **self._kwargs)


class ServedRequest(WebRequest):
    """A request that our own server received."""

    __slots__ = ("_request", "_stream", "tls")

    def __init__(self, request: web.BaseRequest) -> None:
        raw_path, _, query = request.raw_path.partition("?")
        tls: Any = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        super().__init__(
            method=request.method,
            path=request.path,
            raw_path=raw_path,
            query_string=query,
            headers=request.headers,
            raw_headers=request.raw_headers,
            peer=request.remote,
            certificate=None if tls is None else certificate_principal(tls),
        )
        self.tls: Any = tls
        self._request = request
        self._stream: web.StreamResponse | None = None

    async def read(self, limit: int, timeout: float) -> bytes:
        request = self._request
        if (request.content_length or 0) > limit:
            raise too_large(limit)
        parts: list[bytes] = []
        try:
            if request.content.is_eof():  # small bodies arrive with their headers
                parts.append(request.content.read_nowait(-1))
                self.received = len(parts[0])
                if self.received > limit:  # after decompression
                    raise too_large(limit)
                return parts[0]
            async with asyncio.timeout(timeout):
                async for chunk in request.content.iter_any():
                    parts.append(chunk)
                    self.received += len(chunk)
                    if self.received > limit:
                        raise too_large(limit)
        except TimeoutError:
            raise too_slow(timeout) from None
        except (HttpProcessingError, web.RequestPayloadError, zlib.error):
            raise Denied(
                400, "the body does not match its Content-Encoding", {"Connection": "close"}
            ) from None
        return b"".join(parts)

    async def start_stream(self, headers: Mapping[str, str]) -> None:
        self.status = 200
        self._stream = web.StreamResponse(headers=headers)
        await self._stream.prepare(self._request)

    async def write(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.write(data)
        self.sent += len(data)

    async def end_stream(self) -> None:
        assert self._stream is not None
        await self._stream.write_eof()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    def finished(self, response: Response | None) -> web.StreamResponse:
        """Return what the server sends."""
        if response is None:
            assert self._stream is not None
            return self._stream
        headers = response.headers
        if response.content_type is not None:
            headers = {**headers, "Content-Type": response.content_type}
        return web.Response(body=response.body or None, status=response.status, headers=headers or None)


KEEP_ALIVE = 75.0
LINGER = 1.0
"""Seconds for which the unread rest of a body is consumed, so that the client reads the response."""
BACKLOG = 1024
TLS_HANDSHAKE_TIMEOUT = 10.0


class RequestRoutes(Protocol):
    """Answers requests; see `WebRequest`."""

    async def handle(self, request: WebRequest) -> Response | None: ...


class WebServer:
    """Listens, and passes requests to the routes."""

    def __init__(self, routes: RequestRoutes, max_connections: int) -> None:
        self._routes = routes
        self.connection_limit = ConnectionLimit(connection_capacity(max_connections))
        self._server: Listener | None = None
        self._socket: socket.socket | None = None
        self._listening: asyncio.Server | None = None
        self._contexts: WeakSet[ssl.SSLContext] = WeakSet()
        """TLS contexts of open connections."""
        self._outdated: WeakSet[ssl.SSLContext] = WeakSet()
        """TLS contexts with a certificate authority that was removed after they were made."""
        self._peers: asyncio.Server | None = None

    async def start(
        self, host: str, port: int, *, shared: bool = False, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen and return the port."""
        loop = asyncio.get_running_loop()
        self._server = Listener(
            self._handle,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            handler_cancellation=True,
            lingering_time=LINGER,
        )
        self._server.connection_limit = self.connection_limit
        if tls is not None:
            self._contexts.add(tls)
        self._listening = await loop.create_server(
            self._server, host, port, backlog=BACKLOG, reuse_port=shared or None, **_tls_options(tls)
        )
        return self._listening.sockets[0].getsockname()[1]

    async def start_for_peers(self, path: str) -> None:
        """Listen on a Unix socket as well, for other nodes of this machine."""
        assert self._server is not None
        assert sys.platform != "win32"
        self._peers = await asyncio.get_running_loop().create_unix_server(self._server, path, backlog=BACKLOG)

    async def use_tls(self, tls: ssl.SSLContext) -> bool:
        """Use other certificates for new connections. The listening sockets stay, so that no connection is
        refused meanwhile.

        Returns:
            Whether an authority of client certificates was removed. Certificates of open connections that it
            may have signed do not count any more.
        """
        assert self._server is not None
        assert self._listening is not None
        loop, old = asyncio.get_running_loop(), self._listening
        sockets = [socket.socket(fileno=one.dup().detach()) for one in old.sockets]
        for one in sockets:
            one.setblocking(False)
        servers = [
            await loop.create_server(self._server, sock=one, backlog=BACKLOG, **_tls_options(tls))
            for one in sockets
        ]
        self._listening = servers[0]
        old.close()
        trusted = _authorities(tls)
        removed = [one for one in self._contexts if not _authorities(one) <= trusted]
        self._outdated.update(removed)
        for one in removed:
            self._contexts.discard(one)
        self._contexts.add(tls)
        return bool(removed)

    async def stop(self) -> None:
        """Close the listener and all connections."""
        self.refuse_new()
        if self._server is not None:
            await self._server.shutdown(1.0)

    def limit_connections(self, most: int) -> None:
        """Change the number of connections that may be open."""
        self.connection_limit.most = connection_capacity(most)

    def refuse_new(self) -> None:
        for listening in (self._listening, self._peers):
            if listening is not None:
                listening.close()

    async def _handle(self, given: web.BaseRequest) -> web.StreamResponse:
        connection = given.protocol
        assert isinstance(connection, ClientConnection)
        connection.begin()
        request = ServedRequest(given)
        if request.certificate is not None and request.tls.context in self._outdated:
            request.certificate = None
            connection.close()  # after the response; a new connection is verified again
        try:
            return request.finished(await self._routes.handle(request))
        finally:
            connection.end()


def _authorities(tls: ssl.SSLContext) -> frozenset[bytes]:
    return frozenset(tls.get_ca_certs(binary_form=True))


def _tls_options(tls: ssl.SSLContext | None) -> dict[str, Any]:
    return {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": TLS_HANDSHAKE_TIMEOUT}
