"""HTTP server of the gateway: paths, connections, limits."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings
from mooring.core.types import hidden_document
from mooring.gateway.app import Gateway
from mooring.gateway.auth import METADATA, Authenticator, Denied
from mooring.gateway.clients import account
from mooring.gateway.http import HttpHandler, json_response
from mooring.gateway.legacy_sse import LegacySse

KEPT = 50_000
"""Clients that are remembered; the one that was quiet for longest is forgotten first."""


class TooMany(Exception):
    """This client must wait; `retry_after` in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Share:
    tokens: float
    at: float
    under_way: int = 0


class Limits:
    """A bucket of requests and a number of places for each client."""

    def __init__(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self.set(rate=rate, burst=burst, concurrency=concurrency)
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        """From now on these hold; what is under way stays counted."""
        self._rate, self._burst, self._concurrency = rate, float(burst), concurrency

    def enter(self, client: str, now: float) -> None:
        """Count one request in; whoever enters must `leave`.

        Raises:
            TooMany: it may not come in, and was not counted.
        """
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = _Share(tokens=self._burst, at=now)
            self._forget()
        else:
            self._shares.move_to_end(client)
        if share.under_way >= self._concurrency:
            raise TooMany(f"{self._concurrency} requests of this client are under way", 1.0)
        if self._rate is not None:
            share.tokens = min(self._burst, share.tokens + (now - share.at) * self._rate)
            share.at = now
            if share.tokens < 1:
                raise TooMany(f"more than {self._rate:g} requests a second", (1 - share.tokens) / self._rate)
            share.tokens -= 1
        share.under_way += 1

    def leave(self, client: str) -> None:
        share = self._shares.get(client)
        if share is not None:
            share.under_way -= 1

    def _forget(self) -> None:
        # Those with requests under way are kept, whatever the number: they will come to `leave`.
        while len(self._shares) > KEPT:
            name, share = next(iter(self._shares.items()))
            if share.under_way:
                return
            del self._shares[name]


FIRST_WORD = 15.0
"""Seconds within which a new connection must have sent a request's headers."""
SPARED = 256
"""File descriptors that are left for servers, files and whatever else the process opens."""


def room(wanted: int) -> int:
    """How many connections there may be, so that the process never runs out of file descriptors.

    What the system lets us have is asked for first.
    """
    if sys.platform == "win32":  # no such limit
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return wanted
    return max(min(wanted, hard - SPARED), 1)


class ConnectionLimit:
    """All open connections. When there are too many, one goes that nobody would miss: the oldest of those
    that never said anything, or else the one that has been at rest for longest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._silent: dict[ClientConnection, None] = {}
        self._resting: dict[ClientConnection, None] = {}

    def came(self, connection: ClientConnection) -> bool:
        """Count one in; False when there is no room, since everybody else is being served."""
        self.count += 1
        self._silent[connection] = None
        if self.count <= self.most:
            return True
        self._silent.pop(connection)
        for group in (self._silent, self._resting):
            if group:
                oldest = next(iter(group))
                del group[oldest]
                oldest.abort()
                self._silent[connection] = None
                return True
        return False

    def busy(self, connection: ClientConnection) -> None:
        """It has sent a request."""
        self._silent.pop(connection, None)
        self._resting.pop(connection, None)

    def rests(self, connection: ClientConnection) -> None:
        """Its request was answered."""
        self._resting[connection] = None

    def went(self, connection: ClientConnection) -> None:
        self.count -= 1
        self.busy(connection)


class ClientConnection(RequestHandler):
    """A connection that is closed when it says nothing."""

    __slots__ = ("_crowd", "_first")

    def __init__(self, crowd: ConnectionLimit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._crowd = crowd
        self._first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._crowd.came(self):
            self._first = asyncio.get_running_loop().call_later(FIRST_WORD, self.force_close)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.went(self)
        self._heard()
        super().connection_lost(exc)

    def begin(self) -> None:
        """A request has come."""
        self._heard()
        self._crowd.busy(self)

    def end(self) -> None:
        """It was answered; the next one may come."""
        if self.transport is not None:
            self._crowd.rests(self)

    def abort(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def _heard(self) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first = None


class Listener(web.Server):
    """Makes the connections."""

    crowd: ConnectionLimit

    def __call__(self) -> RequestHandler:
        return ClientConnection(self.crowd, self, loop=self._loop, **self._kwargs)


log = logger("mooring.gateway")


KEEP_ALIVE = 75.0
LINGER = 1.0
"""Seconds for which the rest of a body that nobody reads is taken, so that the answer gets through."""
BACKLOG = 1024


class WebServer:
    """Listens, and sends each request to where it belongs."""

    def __init__(self, gateway: Gateway, door: Authenticator, *, sse: bool = False) -> None:
        self._old = LegacySse(gateway) if sse else None
        self._gateway, self._door = gateway, door
        settings = gateway.settings
        self._endpoint = HttpHandler(gateway)
        self._limits = Limits(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.crowd = ConnectionLimit(room(settings.max_connections))
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

    async def take(self, settings: GatewaySettings, door: Authenticator) -> None:
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
        assert isinstance(connection, ClientConnection)
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
