"""HTTP+SSE transport of 2024-11-05: a GET opens the event stream, POSTs carry the requests."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mooring.gateway.clients import Outbox, Principal, account
from mooring.gateway.http import HEARTBEAT_INTERVAL, HttpHandler, write_stream
from mooring.gateway.profiles import Profile
from mooring.gateway.stdio import StdioServer
from mooring.gateway.web import Denied, Response, WebRequest

if TYPE_CHECKING:
    from mooring.gateway.app import Gateway

__all__ = ["LegacySse"]


class LegacySse:
    """The open streams by the session id in their POST URL."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams: dict[str, tuple[StdioServer, Principal]] = {}
        self._open_for = Counter[str]()
        """Number of open streams per account."""
        self._endpoint = HttpHandler(gateway)

    def close_streams(self, still_valid: Callable[[Principal], bool]) -> None:
        """End the streams of principals for which `still_valid` returns False."""
        for stdio, principal in self._streams.values():
            if not still_valid(principal):
                stdio.close()

    async def serve(
        self, request: WebRequest, profile: Profile, principal: Principal, more: Mapping[str, str]
    ) -> Response | None:
        if request.path == "/sse" and request.method == "GET":
            return await self._open(request, principal, more)
        if request.path == "/messages" and request.method == "POST":
            return await self._take(request, principal)
        raise Denied(405, "GET /sse opens a stream; its first event says where to POST")

    async def _open(
        self, request: WebRequest, principal: Principal, more: Mapping[str, str]
    ) -> Response | None:
        settings, key_account = self._gateway.settings, account(principal, request.remote)
        if (
            len(self._streams) >= settings.max_sessions
            or self._open_for[key_account] >= settings.client_sessions
        ):
            raise Denied(503, "too many sessions are open", {"Retry-After": "30"})
        key = secrets.token_hex(16)
        outbox = Outbox(on_lost=request.abort)
        stdio = StdioServer(self._gateway, outbox, principal, request.remote)
        self._streams[key] = (stdio, principal)
        self._open_for[key_account] += 1
        endpoint = f"event: endpoint\ndata: {request.base}/messages?session_id={key}\n\n".encode()
        try:
            await write_stream(request, outbox, more, heartbeat=HEARTBEAT_INTERVAL, prime=endpoint)
        finally:
            outbox.close()
            del self._streams[key]
            self._open_for[key_account] -= 1
            if not self._open_for[key_account]:
                del self._open_for[key_account]
            await stdio.end()

    async def _take(self, request: WebRequest, principal: Principal) -> Response | None:
        found = self._streams.get(request.query.get("session_id", ""))
        if found is None or found[1] != principal:
            raise Denied(404, "unknown session")
        found[0].take(await self._endpoint.body(request))
        return Response(b"Accepted", 202, content_type="text/plain")
