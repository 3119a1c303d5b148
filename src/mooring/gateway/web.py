"""The HTTP server: its paths, its connections, and its beginning and end."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from mooring.config.logs import logger
from mooring.gateway.checks import Denied
from mooring.gateway.door import METADATA, Door
from mooring.gateway.http import Endpoint
from mooring.gateway.limits import Limits, TooMany
from mooring.gateway.oldsse import OldSse
from mooring.gateway.server import Gateway
from mooring.gateway.streams import json_response

__all__ = ["WebServer"]

log = logger("mooring.gateway")

FIRST_WORD = 15.0
"""Seconds within which a new connection must have sent a request's headers."""
KEEP_ALIVE = 75.0
LINGER = 1.0
"""Seconds for which the rest of a body that nobody reads is taken, so that the answer gets through."""
BACKLOG = 1024


class _Connection(RequestHandler):
    """A connection that is closed when it says nothing, and refused when there are too many."""

    __slots__ = ("_first", "_front")

    def __init__(self, front: WebServer, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._front = front
        self._first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        front = self._front
        front.connections += 1
        if front.connections > front.most:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        self._first = asyncio.get_running_loop().call_later(FIRST_WORD, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._front.connections -= 1
        self.heard()
        super().connection_lost(exc)

    def heard(self) -> None:
        """The first request has come."""
        if self._first is not None:
            self._first.cancel()
            self._first = None


class _Server(web.Server):
    front: WebServer

    def __call__(self) -> RequestHandler:
        return _Connection(self.front, self, loop=self._loop, **self._kwargs)


class WebServer:
    """Listens, and sends each request to where it belongs."""

    def __init__(self, gateway: Gateway, door: Door, *, sse: bool = False) -> None:
        self._old = OldSse(gateway) if sse else None
        self._gateway, self._door = gateway, door
        settings = gateway.settings
        self._endpoint = Endpoint(gateway)
        self._limits = Limits(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.connections = 0
        self.most = settings.max_connections
        self._server: _Server | None = None
        self._listening: asyncio.Server | None = None

    async def start(
        self, host: str, port: int, *, shared: bool = False, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen; the port, which is chosen by the system for port 0."""
        self._server = _Server(
            self._handle,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            handler_cancellation=True,
            lingering_time=LINGER,
        )
        self._server.front = self
        self._listening = await asyncio.get_running_loop().create_server(
            self._server, host, port, ssl=tls, backlog=BACKLOG, reuse_port=shared or None
        )
        sockets: tuple[socket.socket, ...] = tuple(self._listening.sockets)
        return sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """No new connections; those that are there have been given their time."""
        if self._listening is not None:
            self._listening.close()
        if self._server is not None:
            await self._server.shutdown(1.0)

    def refuse_new(self) -> None:
        if self._listening is not None:
            self._listening.close()

    # --- one request ----------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        if isinstance(handler, _Connection):
            handler.heard()
        more: dict[str, str] = {}
        try:
            more = self._door.check(request)
            return await self._route(request, more)
        except Denied as denied:
            self._gateway.metrics.refused(denied.status)
            body = json.dumps({"error": str(denied)}).encode()
            return json_response(body, denied.status, {**more, **denied.headers})

    async def _route(self, request: web.BaseRequest, more: dict[str, str]) -> web.StreamResponse:
        path = request.path
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=more)
        if path == "/mcp" or path.startswith("/mcp/"):
            return await self._mcp(request, path[5:], more)
        if self._old is not None and path in ("/sse", "/messages"):
            return await self._mcp(request, "", more)
        if path == "/health":
            return web.json_response({"status": "ok"})
        if path == "/ready":
            return self._ready()
        if path == "/metrics":
            await self._door.principal(request, self._gateway.settings.scopes)
            return web.Response(text=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})
        if path.startswith(METADATA) and self._gateway.settings.oauth is not None:
            return self._metadata(path.removeprefix(METADATA))
        raise Denied(404, "there is nothing here; the MCP endpoint is /mcp")

    async def _mcp(self, request: web.BaseRequest, profile: str, more: dict[str, str]) -> web.StreamResponse:
        gateway = self._gateway
        view = gateway.view(profile)
        scopes = (*gateway.settings.scopes, *(view.settings.scopes if view else ()))
        principal = await self._door.principal(request, scopes)
        if view is None:
            raise Denied(404, f"there is no profile {profile[:80]!r}")
        if gateway.draining:
            raise Denied(503, "the gateway is shutting down", {"Retry-After": "5", "Connection": "close"})
        client = principal.name if not self._door.open else request.remote or ""
        try:
            self._limits.enter(client, time.monotonic())
        except TooMany as problem:
            raise Denied(
                429, str(problem), {"Retry-After": str(max(1, round(problem.retry_after)))}
            ) from None
        try:
            if self._old is not None and not request.path.startswith("/mcp"):
                return await self._old.serve(request, view, principal, more)
            return await self._endpoint.serve(request, view, principal, more)
        finally:
            self._limits.leave(client)

    # --- operation ------------------------------------------------------------------------------

    def _ready(self) -> web.Response:
        """Ready when every server has ended its first try, well or not: one that is down does not count."""
        gateway = self._gateway
        waiting = [status.name for status in gateway.host.status() if status.state == "pending"]
        lazy = {server.name for server in gateway.host.config.servers if server.start == "lazy"}
        good = not gateway.draining and not set(waiting) - lazy
        return web.json_response({"ready": good}, status=200 if good else 503)

    def _metrics(self) -> str:
        gateway = self._gateway
        gauges = {
            "sessions": ("Sessions of handshake clients.", float(len(gateway.registry))),
            "connections": ("Open connections.", float(self.connections)),
            "under_way": ("Requests that are being answered.", float(gateway.under_way)),
        }
        servers = [(s.name, s.state == "connected", s.tools) for s in gateway.host.status()]
        return gateway.metrics.text(gauges, servers)

    def _metadata(self, path: str) -> web.Response:
        gateway = self._gateway
        resource = path or "/mcp"
        view = gateway.view(resource[5:]) if resource == "/mcp" or resource.startswith("/mcp/") else None
        if view is None:
            raise Denied(404, "there is no such resource")
        scopes = (*gateway.settings.scopes, *view.settings.scopes)
        return web.json_response(self._door.metadata(resource, scopes))
