"""The HTTP server: its paths, its connections, and its beginning and end."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time

from aiohttp import web

from mooring.config.logs import logger
from mooring.core.gateway import GatewaySettings
from mooring.core.hidden import hidden_document
from mooring.gateway.checks import Denied
from mooring.gateway.connections import Connection, Crowd, Listener, room
from mooring.gateway.door import METADATA, Door
from mooring.gateway.http import Endpoint
from mooring.gateway.limits import Limits, TooMany
from mooring.gateway.oldsse import OldSse
from mooring.gateway.registry import account
from mooring.gateway.server import Gateway
from mooring.gateway.streams import json_response

__all__ = ["WebServer"]

log = logger("mooring.gateway")

KEEP_ALIVE = 75.0
LINGER = 1.0
"""Seconds for which the rest of a body that nobody reads is taken, so that the answer gets through."""
BACKLOG = 1024


class WebServer:
    """Listens, and sends each request to where it belongs."""

    def __init__(self, gateway: Gateway, door: Door, *, sse: bool = False) -> None:
        self._old = OldSse(gateway) if sse else None
        self._gateway, self._door = gateway, door
        settings = gateway.settings
        self._endpoint = Endpoint(gateway)
        self._limits = Limits(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.crowd = Crowd(room(settings.max_connections))
        self._server: Listener | None = None
        self._listening: asyncio.Server | None = None

    async def start(
        self, host: str, port: int, *, shared: bool = False, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen; the port, which is chosen by the system for port 0."""
        self._server = Listener(
            self._handle,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            handler_cancellation=True,
            lingering_time=LINGER,
        )
        self._server.crowd = self.crowd
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

    async def take(self, settings: GatewaySettings, door: Door) -> None:
        """Go on under other settings; those whose tokens are no longer good are let go."""
        old, self._door = self._door, door
        self._limits.set(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.crowd.most = room(settings.max_connections)
        if self._old is not None:
            self._old.cut(lambda principal: door.keeps(principal, old))
        await self._gateway.take(settings, lambda principal: door.keeps(principal, old), logins=door.open)

    def refuse_new(self) -> None:
        if self._listening is not None:
            self._listening.close()

    # --- one request ----------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin()
        more: dict[str, str] = {}
        try:
            more = self._door.check(request)
            return await self._route(request, more)
        except Denied as denied:
            self._gateway.metrics.refused(denied.status)
            body = json.dumps({"error": str(denied)}).encode()
            return json_response(body, denied.status, {**more, **denied.headers})
        finally:
            connection.end()

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
            return await self._ready(request)
        if path == "/metrics":
            await self._door.principal(request, self._gateway.settings.scopes)
            if self._gateway.stateless:
                raise Denied(501, "there are no metrics with --workers: each process has figures of its own")
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
        client = account(principal, request.remote)
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

    async def _ready(self, request: web.BaseRequest) -> web.Response:
        """Ready when every server has ended its first try, well or not: one that is down does not count.

        How many tools are hidden is told to everyone; which, to callers that may read `/metrics`.
        """
        gateway = self._gateway
        waiting = [status.name for status in gateway.host.status() if status.state == "pending"]
        lazy = {server.name for server in gateway.host.config.servers if server.start == "lazy"}
        good = not gateway.draining and not set(waiting) - lazy
        details = True
        try:
            await self._door.principal(request, gateway.settings.scopes)
        except Denied:
            details = False
        hidden = hidden_document(gateway.host.hidden(), gateway.host.redact, details=details)
        return web.json_response({"ready": good, "hidden": hidden}, status=200 if good else 503)

    def _metrics(self) -> str:
        gateway = self._gateway
        gauges = {
            "sessions": ("Sessions of handshake clients.", float(len(gateway.registry))),
            "connections": ("Open connections.", float(self.crowd.count)),
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
