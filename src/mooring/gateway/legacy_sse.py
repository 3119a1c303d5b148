"""HTTP+SSE transport of 2024-11-05: a GET opens the event stream, POSTs carry the requests."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from mooring.gateway.auth import Denied
from mooring.gateway.clients import Outbox, Principal, account
from mooring.gateway.http import HEARTBEAT_INTERVAL, HttpHandler, abort, stream_response, write_stream
from mooring.gateway.profiles import Profile
from mooring.gateway.stdio import StdioServer

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
        self, request: web.BaseRequest, profile: Profile, principal: Principal, more: Mapping[str, str]
    ) -> web.StreamResponse:
        if request.path == "/sse" and request.method == "GET":
            return await self._open(request, principal, more)
        if request.path == "/messages" and request.method == "POST":
            return await self._take(request, principal)
        raise Denied(405, "GET /sse opens a stream; its first event says where to POST")

    async def _open(
        self, request: web.BaseRequest, principal: Principal, more: Mapping[str, str]
    ) -> web.StreamResponse:
        settings, key_account = self._gateway.settings, account(principal, request.remote)
        if (
            len(self._streams) >= settings.max_sessions
            or self._open_for[key_account] >= settings.client_sessions
        ):
            raise Denied(503, "too many sessions are open", {"Retry-After": "30"})
        key = secrets.token_hex(16)
        outbox = Outbox(on_lost=lambda: abort(request))
        stdio = StdioServer(self._gateway, outbox, principal, request.remote)
        self._streams[key] = (stdio, principal)
        self._open_for[key_account] += 1
        stream = stream_response(more)
        try:
            await stream.prepare(request)
            await stream.write(f"event: endpoint\ndata: /messages?session_id={key}\n\n".encode())
            await write_stream(request, stream, outbox, heartbeat=HEARTBEAT_INTERVAL)
        finally:
            outbox.close()
            del self._streams[key]
            self._open_for[key_account] -= 1
            if not self._open_for[key_account]:
                del self._open_for[key_account]
            await stdio.end()
        return stream

    async def _take(self, request: web.BaseRequest, principal: Principal) -> web.StreamResponse:
        found = self._streams.get(request.query.get("session_id", ""))
        if found is None or found[1] != principal:
            raise Denied(404, "unknown session")
        body = await self._endpoint.body(request)
        found[0].act_for(principal)
        found[0].take(body)
        return web.Response(status=202, text="Accepted")
