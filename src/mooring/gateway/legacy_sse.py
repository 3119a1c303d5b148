"""The HTTP+SSE of 2024, for clients that know nothing else: one stream down, POSTs up."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from mooring.gateway.auth import Denied
from mooring.gateway.clients import Outbox, Principal, account
from mooring.gateway.http import PULSE, HttpHandler, abort, pour, stream_response
from mooring.gateway.profiles import Profile
from mooring.gateway.stdio import StdioServer

if TYPE_CHECKING:
    from mooring.gateway.app import Gateway

__all__ = ["LegacySse"]


class LegacySse:
    """Streams that are open, by the id that stands in their POST address."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._pipes: dict[str, tuple[StdioServer, Principal]] = {}
        self._open_for = Counter[str]()
        """How many streams each account holds."""
        self._endpoint = HttpHandler(gateway)

    def cut(self, keeps: Callable[[Principal], bool]) -> None:
        """End the streams of those who are not to be kept."""
        for pipe, principal in self._pipes.values():
            if not keeps(principal):
                pipe.close()

    async def serve(
        self, request: web.BaseRequest, view: Profile, principal: Principal, more: Mapping[str, str]
    ) -> web.StreamResponse:
        if request.path == "/sse" and request.method == "GET":
            return await self._open(request, principal, more)
        if request.path == "/messages" and request.method == "POST":
            return await self._take(request, principal)
        raise Denied(405, "GET /sse opens a stream; its first event says where to POST")

    async def _open(
        self, request: web.BaseRequest, principal: Principal, more: Mapping[str, str]
    ) -> web.StreamResponse:
        settings, whose = self._gateway.settings, account(principal, request.remote)
        if len(self._pipes) >= settings.max_sessions or self._open_for[whose] >= settings.client_sessions:
            raise Denied(503, "too many sessions are open", {"Retry-After": "30"})
        key = secrets.token_hex(16)
        box = Outbox(on_lost=lambda: abort(request))
        pipe = StdioServer(self._gateway, box, principal, request.remote)
        self._pipes[key] = (pipe, principal)
        self._open_for[whose] += 1
        stream = stream_response(more)
        try:
            await stream.prepare(request)
            await stream.write(f"event: endpoint\ndata: /messages?session_id={key}\n\n".encode())
            await pour(request, stream, box, pulse=PULSE)
        finally:
            box.close()
            del self._pipes[key]
            self._open_for[whose] -= 1
            if not self._open_for[whose]:
                del self._open_for[whose]
            await pipe.end()
        return stream

    async def _take(self, request: web.BaseRequest, principal: Principal) -> web.StreamResponse:
        found = self._pipes.get(request.query.get("session_id", ""))
        if found is None or found[1] != principal:
            raise Denied(404, "there is no such session")
        found[0].take(await self._endpoint.body(request))
        return web.Response(status=202, text="Accepted")
