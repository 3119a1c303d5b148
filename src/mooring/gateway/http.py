"""Streamable HTTP transport of the gateway; both eras on one endpoint."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mooring.gateway import stdio
from mooring.gateway.auth import Denied, check_agreement
from mooring.gateway.clients import Client, ClientExchange, Outbox, Principal, TooManySessions, account
from mooring.gateway.handlers import Answer
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import (
    CAPABILITIES,
    INVALID_REQUEST,
    PARSE_ERROR,
    Refusal,
    era_of_message,
    error_body,
    fields,
    handshake_version,
    is_id,
    modern_stamp,
    result_body,
)
from mooring.gateway.stdio import StdioServer
from mooring.transport.message import RequestId, decode

if TYPE_CHECKING:
    from mooring.gateway.app import Gateway

HEARTBEAT_INTERVAL = 25.0
"""Idle seconds after which a comment is written to an open stream, to detect closed connections."""
WRITE_TIMEOUT = 30.0
HEARTBEAT = b":\n\n"


class HttpExchange:
    """One POST. The response is JSON, or an event stream if messages are sent before it."""

    __slots__ = ("_more", "_outbox", "_request", "_stream", "_writer", "headers", "streams")

    def __init__(self, request: web.BaseRequest, more: Mapping[str, str]) -> None:
        self.headers: Mapping[str, str] = request.headers
        accepted = request.headers.get("Accept", "")
        self.streams = "text/event-stream" in accepted or "*/*" in accepted
        self._request = request
        self._more = more
        self._outbox: Outbox | None = None
        self._stream: web.StreamResponse | None = None
        self._writer: asyncio.Task[None] | None = None

    def send(self, body: bytes) -> None:
        if not self.streams:
            return
        if self._outbox is None:
            self._outbox = Outbox(on_lost=lambda: abort(self._request))
            self._writer = asyncio.create_task(self._write())
        self._outbox.put(body)

    async def finish(self, body: bytes, status: int) -> web.StreamResponse:
        """Send the response."""
        if self._outbox is None:
            return json_response(body, status, self._more)
        self._outbox.put(body)
        return await self.end()

    async def end(self) -> web.StreamResponse:
        """End a stream that was started."""
        assert self._outbox is not None
        assert self._writer is not None
        self._outbox.close()
        await self._writer
        assert self._stream is not None
        return self._stream

    @property
    def begun(self) -> bool:
        return self._outbox is not None

    def drop(self) -> None:
        """Stop writing: the client is gone."""
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        assert self._outbox is not None
        self._stream = stream_response(self._more)
        await write_stream(self._request, self._stream, self._outbox)


def sse(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"


def json_response(body: bytes, status: int, more: Mapping[str, str]) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=more or None)


def stream_response(more: Mapping[str, str]) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", **more}
    return web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})


def numbered(first: int) -> Callable[[bytes], bytes]:
    """Return a function that frames events with ids from `first` on, for `Last-Event-ID`."""
    numbers = itertools.count(first)
    return lambda body: b"id: %d\n" % next(numbers) + sse(body)


async def write_stream(
    request: web.BaseRequest,
    stream: web.StreamResponse,
    outbox: Outbox,
    *,
    heartbeat: float | None = None,
    frame: Callable[[bytes], bytes] = sse,
    prime: bytes = b"",
) -> None:
    """Write the messages of an outbox until it is closed, or the client is gone or too slow."""

    async def write(data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT):
            await stream.write(data)

    try:
        await stream.prepare(request)
        if prime:
            await write(prime)
        await outbox.write_all(write, frame=frame, heartbeat=heartbeat, heartbeat_data=HEARTBEAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_TIMEOUT):
                await stream.write_eof()
    except (ConnectionError, TimeoutError):
        outbox.lose()


def abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


SESSION = "Mcp-Session-Id"
PRIMING_VERSION = "2025-11-25"


class RequestContext(NamedTuple):
    """An HTTP request with its profile and principal."""

    request: web.BaseRequest
    profile: Profile
    principal: Principal
    more: Mapping[str, str]
    """Headers of every response."""


class HttpHandler:
    """Handles POST, GET and DELETE of `/mcp` and `/mcp/<profile>`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def serve(
        self, request: web.BaseRequest, profile: Profile, principal: Principal, more: Mapping[str, str]
    ) -> web.StreamResponse:
        context = RequestContext(request, profile, principal, more)
        if request.method == "POST":
            return await self._post(context)
        if request.method == "GET":
            return await self._get(context)
        if request.method == "DELETE":
            return await self._delete(context)
        raise Denied(405, "this endpoint accepts POST, GET and DELETE", {"Allow": "POST, GET, DELETE"})

    # --- requests -------------------------------------------------------------------------------

    async def _post(self, context: RequestContext) -> web.StreamResponse:
        request_id: object = None
        try:
            decoded = _decoded(await self.body(context.request))
            if isinstance(decoded, list):
                return await self._batch(context, cast("list[object]", decoded))
            message = fields(decoded)
            request_id = message.get("id")
            if not message or message.get("jsonrpc") != "2.0":
                raise Refusal(INVALID_REQUEST, "the body must be one JSON-RPC message")
            version = context.request.headers.get("MCP-Protocol-Version")
            if era_of_message(message, version) == "modern":
                return await self._modern(context, message)
            return await self._legacy(context, message)
        except Refusal as refusal:
            key = cast("RequestId", request_id) if is_id(request_id) else None
            return json_response(error_body(key, refusal), refusal.status, context.more)

    async def body(self, request: web.BaseRequest) -> bytes:
        """Read the body.

        Raises:
            Denied: It is too large, too slow, not JSON, or wrongly encoded.
        """
        settings = self._gateway.settings
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Denied(415, "the body must be application/json")
        large = Denied(413, f"the body is larger than {settings.max_body} bytes", {"Connection": "close"})
        if (request.content_length or 0) > settings.max_body:
            raise large
        parts: list[bytes] = []
        size = 0
        try:
            if request.content.is_eof():  # small bodies arrive with their headers
                body = request.content.read_nowait(-1)
                if len(body) > settings.max_body:  # after decompression
                    raise large
                return body
            async with asyncio.timeout(settings.body_timeout):
                async for chunk in request.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > settings.max_body:
                        raise large
        except TimeoutError:
            raise Denied(
                408, f"the body did not arrive within {settings.body_timeout:g} s", {"Connection": "close"}
            ) from None
        except (HttpProcessingError, web.RequestPayloadError, zlib.error):
            raise Denied(
                400, "the body does not match its Content-Encoding", {"Connection": "close"}
            ) from None
        return b"".join(parts)

    async def _modern(self, context: RequestContext, message: dict[str, Any]) -> web.StreamResponse:
        if "id" not in message:
            return web.Response(status=202)  # the 2026 era has no client notifications over HTTP
        if not is_id(message["id"]):
            raise Refusal(INVALID_REQUEST, "the id of a request must be a string or an integer")
        check_agreement(context.request.headers, message)
        meta = modern_stamp(message)
        version, able = meta["io.modelcontextprotocol/protocolVersion"], meta[CAPABILITIES]
        client = self._gateway.registry.transient(context.profile, context.principal, "modern", version, able)
        if message["method"] == "subscriptions/listen":
            return await self._listen(context, client, message)
        return await self._answered(context, client, message)

    async def _legacy(self, context: RequestContext, message: dict[str, Any]) -> web.StreamResponse:
        if message.get("method") == "initialize":
            return await self._initialize(context, message)
        client = self._session(context)
        if "method" not in message:
            client.answered(message)
            return web.Response(status=202)
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                client.cancelled(fields(message.get("params")).get("requestId"))
            return web.Response(status=202)
        if not is_id(message["id"]) or not isinstance(message["method"], str):
            raise Refusal(INVALID_REQUEST, "a request needs a method, and a string or an integer as id")
        return await self._answered(context, client, message)

    async def _batch(self, context: RequestContext, messages: list[object]) -> web.StreamResponse:
        client = self._session(context)

        async def answer(message: dict[str, Any]) -> bytes | None:
            body, _ = await self._result(client, message, stdio.Plain())
            return body

        body = await stdio.answered(client, messages, answer)
        return web.Response(status=202) if body is None else json_response(body, 200, context.more)

    async def _initialize(self, context: RequestContext, message: dict[str, Any]) -> web.StreamResponse:
        params = fields(message.get("params"))
        if not is_id(message.get("id")) or "protocolVersion" not in params:
            raise Refusal(INVALID_REQUEST, "initialize needs an id and a 'protocolVersion'")
        version = handshake_version(params.get("protocolVersion"))
        abilities = fields(params.get("capabilities"))
        gateway = self._gateway
        if gateway.stateless:
            client = gateway.registry.transient(context.profile, context.principal, "legacy", version, {})
            return await self._answered(context, client, message)
        try:
            client = gateway.registry.open(
                context.profile, context.principal, version, abilities, context.request.remote
            )
        except TooManySessions as full:
            raise Denied(503, str(full), {"Retry-After": "30"}) from None
        known = context._replace(more={**context.more, SESSION: client.id})
        return await self._answered(known, client, message)

    def _session(self, context: RequestContext) -> Client:
        gateway, (request, profile, principal, _) = self._gateway, context
        key = request.headers.get(SESSION)
        if gateway.stateless:
            return gateway.registry.transient(profile, principal, "legacy", handshake_version(None), {})
        if key is None:
            raise Refusal(
                INVALID_REQUEST, f"the request has no {SESSION} header; send initialize first", status=400
            )
        client = gateway.registry.find(key, profile, principal)
        if client is None:
            raise Refusal(-32001, "Session not found", status=404)
        return client

    def _known(self, context: RequestContext) -> Client:
        """Return the session of a GET or DELETE."""
        try:
            return self._session(context)
        except Refusal as refusal:
            raise Denied(refusal.status, str(refusal)) from None

    async def _answered(
        self, context: RequestContext, client: Client, message: dict[str, Any]
    ) -> web.StreamResponse:
        """Answer a request. It is cancelled if the client disconnects."""
        exchange = HttpExchange(context.request, context.more)
        try:
            body, status = await self._result(client, message, exchange)
        except asyncio.CancelledError:
            exchange.drop()
            raise
        if body is not None:
            return await exchange.finish(body, status)
        return await exchange.end() if exchange.begun else web.Response(status=202)

    async def _result(
        self, client: Client, message: dict[str, Any], exchange: ClientExchange
    ) -> tuple[bytes | None, int]:
        """Return the response body and HTTP status; the body is None if the client cancelled the request."""
        key: RequestId = message["id"]
        if key in client.under_way:
            return error_body(key, Refusal(INVALID_REQUEST, "a request with this id is already running")), 400
        with anyio.CancelScope() as scope:
            client.under_way[key] = scope
            try:
                answer: Answer = await self._gateway.answer(client, message, exchange)
                return result_body(key, answer), 200
            except Refusal as refusal:
                return error_body(key, refusal), refusal.status if client.era == "modern" else 200
            finally:
                client.under_way.pop(key, None)
                client.used = time.monotonic()
        return None, 202

    # --- streams --------------------------------------------------------------------------------

    async def _listen(
        self, context: RequestContext, client: Client, message: dict[str, Any]
    ) -> web.StreamResponse:
        """Answer `subscriptions/listen` with a stream that lasts until either side ends it."""
        request = context.request
        outbox = Outbox(on_lost=lambda: abort(request))
        stream = stream_response(context.more)
        async with self._gateway.subscriptions.listening(client, message, outbox):
            await write_stream(request, stream, outbox, heartbeat=HEARTBEAT_INTERVAL)
        return stream

    async def _get(self, context: RequestContext) -> web.StreamResponse:
        """Open the event stream of a session; it replaces an older one."""
        request = context.request
        if self._gateway.stateless or SESSION not in request.headers:
            raise Denied(405, "a stream needs a session", {"Allow": "POST"})
        client = self._known(context)
        if client.event_stream is not None:
            client.event_stream.close()
        outbox = client.event_stream = Outbox(on_lost=lambda: abort(request))
        last = request.headers.get("Last-Event-ID", "")
        missed = client.missed(int(last)) if last.isascii() and last.isdigit() and len(last) < 16 else []
        for body in missed:
            outbox.put(body)
        first = client.notified - len(missed) + 1
        # An event without data: the position at which the stream starts.
        prime = b"id: %d\ndata:\n\n" % (first - 1) if client.protocol >= PRIMING_VERSION else b""
        stream = stream_response(context.more)
        try:
            await write_stream(
                request, stream, outbox, heartbeat=HEARTBEAT_INTERVAL, frame=numbered(first), prime=prime
            )
        finally:
            outbox.close()
            client.used = time.monotonic()
        return stream

    async def _delete(self, context: RequestContext) -> web.StreamResponse:
        if SESSION not in context.request.headers:
            raise Denied(405, "DELETE needs a session", {"Allow": "POST"})
        await self._gateway.registry.end(self._known(context))
        return web.Response(status=200)


def _decoded(body: bytes) -> Any:
    try:
        return decode(body)
    except (ValueError, RecursionError):
        raise Refusal(PARSE_ERROR, "the body is not JSON") from None


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
        for server, principal in self._streams.values():
            if not still_valid(principal):
                server.close()

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
        server = StdioServer(self._gateway, outbox, principal, request.remote)
        self._streams[key] = (server, principal)
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
            await server.end()
        return stream

    async def _take(self, request: web.BaseRequest, principal: Principal) -> web.StreamResponse:
        found = self._streams.get(request.query.get("session_id", ""))
        if found is None or found[1] != principal:
            raise Denied(404, "unknown session")
        body = await self._endpoint.body(request)
        found[0].act_for(principal)
        found[0].take(body)
        return web.Response(status=202, text="Accepted")
