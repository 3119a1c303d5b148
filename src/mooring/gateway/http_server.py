"""HTTP server of the gateway: paths, connections, limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from mooring.config.models import HostConfig
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.core.types import hidden_document
from mooring.errors import ConfigError
from mooring.gateway.app import Gateway
from mooring.gateway.auth import METADATA, Authenticator, Denied
from mooring.gateway.clients import account
from mooring.gateway.http import HttpHandler, LegacySse, json_response
from mooring.gateway.login_pages import LoginPages

MAX_TRACKED_CLIENTS = 50_000
"""Clients whose use is tracked; the least recently active is dropped first."""


class RateLimited(Exception):
    """The client exceeded a limit; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Share:
    tokens: float
    at: float
    under_way: int = 0


class Limits:
    """Token bucket and concurrency limit of each client."""

    def __init__(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self.set(rate=rate, burst=burst, concurrency=concurrency)
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        """Change the limits; running requests stay counted."""
        self._rate, self._burst, self._concurrency = rate, float(burst), concurrency

    def enter(self, client: str, now: float) -> None:
        """Count a request; call `leave` at its end.

        Raises:
            RateLimited: A limit is exceeded; the request was not counted.
        """
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = _Share(tokens=self._burst, at=now)
            self._forget()
        else:
            self._shares.move_to_end(client)
        if share.under_way >= self._concurrency:
            raise RateLimited(f"{self._concurrency} requests of this client are running (concurrency)", 1.0)
        if self._rate is not None:
            share.tokens = min(self._burst, share.tokens + (now - share.at) * self._rate)
            share.at = now
            if share.tokens < 1:
                raise RateLimited(
                    f"more than {self._rate:g} requests per second (gateway.rate)",
                    (1 - share.tokens) / self._rate,
                )
            share.tokens -= 1
        share.under_way += 1

    def leave(self, client: str) -> None:
        share = self._shares.get(client)
        if share is not None:
            share.under_way -= 1

    def _forget(self) -> None:
        while len(self._shares) > MAX_TRACKED_CLIENTS:
            name, share = next(iter(self._shares.items()))
            if share.under_way:
                return
            del self._shares[name]


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
        if isinstance(self.transport, asyncio.Transport):
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


KEEP_ALIVE = 75.0
LINGER = 1.0
"""Seconds for which the unread rest of a body is consumed, so that the client reads the response."""
BACKLOG = 1024


class WebServer:
    """Listens, and routes requests to their handlers."""

    def __init__(self, gateway: Gateway, authenticator: Authenticator, *, sse: bool = False) -> None:
        self._legacy_sse = LegacySse(gateway) if sse else None
        self._gateway, self._authenticator = gateway, authenticator
        settings = gateway.settings
        self._endpoint = HttpHandler(gateway)
        self._pages = LoginPages(gateway.logins)
        gateway.logins.configure(settings, authenticator.identify)
        self._limits = Limits(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.connection_limit = ConnectionLimit(connection_capacity(settings.max_connections))
        self._server: Listener | None = None
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listen and return the port."""
        self._server = Listener(
            self._handle,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            handler_cancellation=True,
            lingering_time=LINGER,
        )
        self._server.connection_limit = self.connection_limit
        self._listening = await asyncio.get_running_loop().create_server(
            self._server, host, port, backlog=BACKLOG, reuse_port=shared or None
        )
        sockets: tuple[socket.socket, ...] = tuple(self._listening.sockets)
        return sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._listening is not None:
            self._listening.close()
        if self._server is not None:
            await self._server.shutdown(1.0)

    async def reconfigure(self, settings: GatewaySettings, authenticator: Authenticator) -> None:
        """Apply new settings; sessions and streams whose tokens are no longer valid end."""
        old, self._authenticator = self._authenticator, authenticator
        self._gateway.logins.configure(settings, authenticator.identify)
        self._pages.forget_browsers()
        self._limits.set(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self.connection_limit.most = connection_capacity(settings.max_connections)
        if self._legacy_sse is not None:
            self._legacy_sse.close_streams(lambda principal: authenticator.still_valid(principal, old))
        await self._gateway.reconfigure(
            settings, lambda principal: authenticator.still_valid(principal, old), logins=authenticator.open
        )

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
            more = self._authenticator.check(request)
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
        if self._legacy_sse is not None and path in ("/sse", "/messages"):
            return await self._mcp(request, "", more)
        if self._pages.owns(path):
            return await self._pages.serve(request)
        if path == "/health":
            return web.json_response({"status": "ok"})
        if path == "/ready":
            return await self._ready(request)
        if path == "/metrics":
            await self._authenticator.principal(request, self._gateway.settings.scopes)
            if self._gateway.stateless:
                raise Denied(501, "no metrics with --workers: each process would report its own")
            return web.Response(text=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})
        if path.startswith(METADATA) and self._gateway.settings.oauth is not None:
            return self._metadata(path.removeprefix(METADATA))
        raise Denied(404, "not found; the MCP endpoint is /mcp")

    async def _mcp(self, request: web.BaseRequest, name: str, more: dict[str, str]) -> web.StreamResponse:
        gateway = self._gateway
        profile = gateway.profile(name)
        scopes = (*gateway.settings.scopes, *(profile.settings.scopes if profile else ()))
        principal = await self._authenticator.principal(request, scopes)
        if profile is None:
            raise Denied(404, f"unknown profile {name[:80]!r}")
        if gateway.draining:
            raise Denied(503, "the gateway is shutting down", {"Retry-After": "5", "Connection": "close"})
        client = account(principal, request.remote)
        try:
            self._limits.enter(client, time.monotonic())
        except RateLimited as problem:
            raise Denied(
                429, str(problem), {"Retry-After": str(max(1, round(problem.retry_after)))}
            ) from None
        try:
            if self._legacy_sse is not None and not request.path.startswith("/mcp"):
                return await self._legacy_sse.serve(request, profile, principal, more)
            return await self._endpoint.serve(request, profile, principal, more)
        finally:
            self._limits.leave(client)

    # --- operation ------------------------------------------------------------------------------

    async def _ready(self, request: web.BaseRequest) -> web.Response:
        """Report ready when every server connected or failed to.

        The number of hidden items is public; their names need the token of `/metrics`.
        """
        gateway = self._gateway
        waiting = [status.name for status in gateway.host.status() if status.state == "pending"]
        lazy = {server.name for server in gateway.host.config.servers if server.start == "lazy"}
        good = not gateway.draining and not set(waiting) - lazy
        details = True
        try:
            await self._authenticator.principal(request, gateway.settings.scopes)
        except Denied:
            details = False
        hidden = hidden_document(gateway.host.hidden(), gateway.host.redact, details=details)
        return web.json_response({"ready": good, "hidden": hidden}, status=200 if good else 503)

    def _metrics(self) -> str:
        gateway = self._gateway
        gauges = {
            "sessions": ("Sessions of handshake clients.", float(len(gateway.registry))),
            "connections": ("Open connections.", float(self.connection_limit.count)),
            "under_way": ("Running requests.", float(gateway.under_way)),
        }
        servers = [(s.name, s.state == "connected", s.tools) for s in gateway.host.status()]
        return gateway.metrics.text(gauges, servers)

    def _metadata(self, path: str) -> web.Response:
        gateway = self._gateway
        resource = path or "/mcp"
        profile = (
            gateway.profile(resource[5:]) if resource == "/mcp" or resource.startswith("/mcp/") else None
        )
        if profile is None:
            raise Denied(404, "unknown resource")
        scopes = (*gateway.settings.scopes, *profile.settings.scopes)
        return web.json_response(self._authenticator.metadata(resource, scopes))


_MARK = "MOORING_GATEWAY_WORKER"
RESTART_DELAY = 1.0


def check_workers(config: HostConfig, default_profile: ProfileSettings, *, sse: bool) -> None:
    """Reject settings that need state shared between processes.

    Raises:
        ConfigError: Names every setting that does not work with `--workers`.
    """
    gateway, standard = config.gateway, GatewaySettings()
    found = [
        f"server {server.name!r} has `isolation: session`: each client would get a server in every process"
        for server in config.active
        if server.isolation == "session"
    ]
    if default_profile.discovery != "never":
        found.append("`--discovery`: what a client selects would be known to one process only")
    found += [
        f"profile {name!r} has `discovery: {profile.discovery}`: "
        "what a client selects would be known to one process only"
        for name, profile in gateway.profiles.items()
        if profile.discovery != "never"
    ]
    found += [
        f"`gateway.{name}`: each process would count for itself"
        for name in ("rate", "burst", "concurrency", "max_sessions", "client_sessions")
        if getattr(gateway, name) != getattr(standard, name)
    ]
    found += [
        f"server {server.name!r} has `max_concurrency`: each process would count for itself"
        for server in config.active
        if server.max_concurrency is not None
    ]
    if sse:
        found.append(
            "`--sse`: a client of the 2024 transport needs one process for its stream and its requests"
        )
    if found:
        raise ConfigError("\n  ".join(["These settings do not work with `--workers`:", *found]))


def is_worker() -> bool:
    """Whether this process is a worker."""
    return _MARK in os.environ


def shared_key() -> bytes | None:
    """Return the key with which all workers seal request states; None outside of workers."""
    return bytes.fromhex(os.environ[_MARK]) if is_worker() else None


async def run_workers(count: int) -> int:
    """Run this command in `count` processes and restart those that exit, until SIGTERM or SIGINT. Return the
    exit code."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    running: set[asyncio.subprocess.Process] = set()

    def pass_on(number: int) -> None:
        if sys.platform == "win32" or number != signal.SIGHUP:
            ending.set()
        for process in running:
            if process.returncode is None:
                process.send_signal(number)

    if sys.platform != "win32":  # there, Ctrl-C reaches each process of the console
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, pass_on, number)
    environment = {**os.environ, _MARK: os.urandom(32).hex()}
    command = [sys.executable, "-m", "mooring", *_single(sys.argv[1:])]

    async def supervise() -> None:
        while not ending.is_set():
            # A worker ends when its standard input does, so that it does not outlive a killed parent.
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=asyncio.subprocess.PIPE
            )
            running.add(process)
            code = await process.wait()
            running.discard(process)
            if code == 2:  # invalid configuration: restarting does not help
                ending.set()
                codes.append(code)
            elif not ending.is_set():
                await asyncio.sleep(RESTART_DELAY)

    codes: list[int] = []
    await asyncio.gather(*(supervise() for _ in range(count)))
    return codes[0] if codes else 0


def _single(arguments: list[str]) -> list[str]:
    """Return the command line without `--workers`."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word == "--workers":
            skip = True
        elif not word.startswith("--workers="):
            kept.append(word)
    return kept
