"""Routes of the gateway: from an HTTP request to its response, with checks, limits and the access log."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings
from mooring.core.types import hidden_document
from mooring.gateway.app import Gateway
from mooring.gateway.auth import METADATA, Authenticator
from mooring.gateway.clients import Principal, account
from mooring.gateway.http import SESSION, HttpHandler, LegacySse
from mooring.gateway.login_pages import LoginPages
from mooring.gateway.logins import PATH
from mooring.gateway.metrics import gateway_metrics
from mooring.gateway.nodes import HOP, Cluster
from mooring.gateway.profiles import Profile
from mooring.gateway.web import Denied, Forwarding, Response, WebRequest, document

log = logger("mooring.gateway")

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


class Limits(Protocol):
    """Token bucket and concurrency limit of each client."""

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        """Change the limits; running requests stay counted."""
        ...

    def enter(self, client: str, now: float) -> None:
        """Count a request; call `leave` at its end.

        Raises:
            RateLimited: A limit is exceeded; the request was not counted.
        """
        ...

    def leave(self, client: str) -> None: ...


class ClientLimits:
    """Limits of the clients of one process."""

    def __init__(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self.set(rate=rate, burst=burst, concurrency=concurrency)
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._rate, self._burst, self._concurrency = rate, float(burst), concurrency

    def enter(self, client: str, now: float) -> None:
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


def too_many(problem: RateLimited) -> Denied:
    """Return the refusal of a request beyond a limit."""
    return Denied(429, str(problem), {"Retry-After": str(max(1, round(problem.retry_after)))})


class Routes:
    """Answers the requests of one gateway, whichever server received them."""

    def __init__(self, gateway: Gateway, authenticator: Authenticator, *, sse: bool = False) -> None:
        self.gateway, self.authenticator = gateway, authenticator
        self._cluster = gateway.cluster
        self._legacy_sse = LegacySse(gateway) if sse else None
        settings = gateway.settings
        self.endpoint = HttpHandler(gateway)
        self._pages = LoginPages(gateway.logins)
        gateway.logins.configure(settings, authenticator.identify)
        limits: dict[str, Any] = {
            "rate": settings.rate,
            "burst": settings.burst,
            "concurrency": settings.concurrency,
        }
        shared = None if self._cluster is None else self._cluster.limits(**limits)
        self._limits: Limits = shared or ClientLimits(**limits)
        self._forwarding = Forwarding(settings.forwarded)
        self.admin: Callable[[WebRequest], Awaitable[Response | None]] | None = None
        """Answers requests to the admin API."""
        self.console: Callable[[WebRequest], Awaitable[Response | None]] | None = None
        """Answers requests to the console, if there is one."""
        self.connections: Callable[[], int] = lambda: 0
        """Returns the number of open connections; set by our own server."""

    async def reconfigure(self, settings: GatewaySettings, authenticator: Authenticator) -> None:
        """Apply new settings; sessions and streams whose tokens are no longer valid end."""
        old, self.authenticator = self.authenticator, authenticator
        self.gateway.logins.configure(settings, authenticator.identify)
        self._pages.forget_browsers()
        self._limits.set(rate=settings.rate, burst=settings.burst, concurrency=settings.concurrency)
        self._forwarding = Forwarding(settings.forwarded)
        await self.end_invalid(lambda principal: authenticator.still_valid(principal, old), settings)

    async def end_invalid(
        self, still_valid: Callable[[Principal], bool], settings: GatewaySettings | None = None
    ) -> None:
        """End the sessions and streams of principals for which `still_valid` returns False."""
        if self._legacy_sse is not None:
            self._legacy_sse.close_streams(still_valid)
        await self.gateway.reconfigure(
            settings or self.gateway.settings, still_valid, logins=self.authenticator.open
        )

    async def handle(self, request: WebRequest) -> Response | None:
        """Return the response; None if it was written as a stream."""
        started, status = time.monotonic(), 0
        more: dict[str, str] = {}
        response: Response | None = None
        try:
            if self._cluster is None or (hop := request.headers.get(HOP)) is None:
                self._forwarding.apply(request)
            else:
                self._admit(self._cluster, request, hop)
            more = self.authenticator.check(request)
            response = await self._route(request, self._local_path(request), more)
            status = request.status if response is None else response.status
        except Denied as denied:
            status = denied.status
            response = document({"error": str(denied)}, status, {**more, **denied.headers})
        finally:
            if not request.forwarded:
                # `/ready` reports a state; it refuses nothing.
                refused = status >= 400 and not request.records and request.route != "/ready"
                if refused:
                    self.gateway.metrics.refused(status)
                if response is not None:
                    request.sent = len(response.body)
                self.gateway.access_log.served(request, status, time.monotonic() - started, refused=refused)
        return response

    def _admit(self, cluster: Cluster, request: WebRequest, header: str) -> None:
        """Take over what another node says about the client."""
        hop = request.hop = cluster.admit(request, header)
        request.remote, request.host, request.certificate = hop.remote, hop.host, hop.certificate
        request.base = hop.base

    def _local_path(self, request: WebRequest) -> str:
        """Return the path without `gateway.base_path`."""
        base = self.gateway.settings.base_path
        if not base:
            return request.path
        if request.path != base and not request.path.startswith(base + "/"):
            raise Denied(404, f"not found; the MCP endpoint is {base}/mcp")
        request.base += base
        request.raw_path = request.raw_path.removeprefix(base)
        return request.path.removeprefix(base)

    async def _route(self, request: WebRequest, path: str, more: dict[str, str]) -> Response | None:
        request.path = path
        if self.console is not None and (path == "/console" or path.startswith("/console/")):
            return await self.console(request)
        if request.method == "OPTIONS":
            return Response(status=204, headers=more)
        if path == "/mcp" or path.startswith("/mcp/"):
            return await self._mcp(request, path[5:], more)
        if self._legacy_sse is not None and path in ("/sse", "/messages"):
            return await self._mcp(request, "", more)
        if self._pages.owns(path):
            request.route = "/login"
            if self._cluster is not None and request.hop is None:
                return await self._login(self._cluster, request)
            return await self._pages.serve(request)
        if path == "/health":
            request.route = path
            return document({"status": "ok"})
        if path == "/ready":
            request.route = path
            return await self._ready(request)
        if path == "/metrics":
            request.route = path
            await self._identified(request, self.gateway.settings.scopes)
            text = self.own_metrics()
            if self._cluster is not None:
                text = await self._cluster.metrics(text)
            return Response(text.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")
        if path.startswith("/peer/") and self._cluster is not None and request.hop is not None:
            request.forwarded = True  # of the nodes among themselves: not logged
            return await self._cluster.peer(request, path)
        if path.startswith("/admin/") and self.admin is not None:
            return await self.admin(request)
        if path.startswith(METADATA) and self.gateway.settings.oauth is not None:
            return self._metadata(path.removeprefix(METADATA))
        raise Denied(404, "not found; the MCP endpoint is /mcp")

    async def _login(self, cluster: Cluster, request: WebRequest) -> Response | None:
        """Answer for a login page: the node that keeps the login does."""
        owner = cluster.owner(request.raw_path.removeprefix(PATH))
        if owner is not None and owner != cluster.me:
            return await cluster.forward(request, owner, None)
        if self._pages.is_elsewhere(request):
            found = await cluster.found(request)
            if found is not None:
                return found
        return await self._pages.serve(request)

    def own_metrics(self) -> str:
        """Return the metrics of this process."""
        return self.gateway.metrics.text(gateway_metrics(self.gateway, self.connections()))

    async def _identified(
        self, request: WebRequest, scopes: tuple[str, ...], profile: str | None = None
    ) -> Principal:
        return await self.authenticator.principal(request, scopes, profile)

    async def _mcp(self, request: WebRequest, name: str, more: dict[str, str]) -> Response | None:
        gateway, cluster = self.gateway, self._cluster
        if cluster is not None and request.hop is None:
            key = request.headers.get(SESSION) or (request.query_string and request.query.get("session_id"))
            if key and (owner := cluster.owner(key)) is not None and owner != cluster.me:
                return await cluster.forward(request, owner, None)  # the owner checks the token
        profile = gateway.profile(name)
        scopes = (*gateway.settings.scopes, *(profile.settings.scopes if profile else ()))
        if profile is not None:
            request.route, request.profile = request.path, profile.name
        principal = await self._identified(request, scopes, name)
        if profile is None:
            raise Denied(404, f"unknown profile {name[:80]!r}")
        if gateway.draining:
            if cluster is not None and SESSION not in request.headers:
                if request.hop is not None:
                    raise cluster.moved()
                return await cluster.elsewhere(request)
            raise Denied(503, "the gateway is shutting down", {"Retry-After": "5", "Connection": "close"})
        if request.hop is not None and request.hop.counted:
            return await self._serve(request, profile, principal, more)
        client = account(principal, request.remote)
        try:
            self._limits.enter(client, time.monotonic())
        except RateLimited as problem:
            raise too_many(problem) from None
        try:
            if cluster is not None:
                await cluster.admit_client(client)
            return await self._serve(request, profile, principal, more)
        finally:
            self._limits.leave(client)

    async def _serve(
        self, request: WebRequest, profile: Profile, principal: Principal, more: dict[str, str]
    ) -> Response | None:
        if self._legacy_sse is not None and not request.path.startswith("/mcp"):
            return await self._legacy_sse.serve(request, profile, principal, more)
        return await self.endpoint.serve(request, profile, principal, more)

    # --- operation ------------------------------------------------------------------------------

    async def _ready(self, request: WebRequest) -> Response:
        """Report ready when every server connected or failed to. A server that is connected again has failed:
        the others can be used meanwhile.

        The number of hidden items is public; their names need the token of `/metrics`.
        """
        gateway = self.gateway
        states = gateway.host.status()
        waiting = [one.name for one in states if one.state == "pending" and one.error is None]
        lazy = {server.name for server in gateway.host.config.servers if server.start == "lazy"}
        good = not gateway.draining and not set(waiting) - lazy
        details = True
        try:
            await self._identified(request, gateway.settings.scopes)
        except Denied:
            details = False
        found: dict[str, Any] = {
            "ready": good,
            "hidden": hidden_document(gateway.host.hidden(), gateway.host.redact, details=details),
        }
        if self._cluster is not None:
            found["ready"] = good = good and not self._cluster.problems()
            if details:
                found["cluster"] = self._cluster.document()
        return document(found, 200 if good else 503)

    def _metadata(self, path: str) -> Response:
        gateway = self.gateway
        resource = path or "/mcp"
        profile = (
            gateway.profile(resource[5:]) if resource == "/mcp" or resource.startswith("/mcp/") else None
        )
        if profile is None:
            raise Denied(404, "unknown resource")
        scopes = (*gateway.settings.scopes, *profile.settings.scopes)
        return document(self.authenticator.metadata(resource, scopes))
