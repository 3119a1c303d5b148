"""Streamable HTTP transport of the gateway; both eras on one endpoint."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio

from mooring.gateway import stdio
from mooring.gateway.auth import check_agreement
from mooring.gateway.clients import (
    Client,
    ClientExchange,
    Outbox,
    Principal,
    TooManySessions,
    account,
    random_id,
)
from mooring.gateway.extensions import notified
from mooring.gateway.handlers import Answer
from mooring.gateway.nodes import Cluster, NodeId, OwnerGone, home_server
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import (
    CAPABILITIES,
    INVALID_PARAMS,
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
from mooring.gateway.web import Denied, Response, WebRequest, json_response
from mooring.transport.message import RequestId, decode

if TYPE_CHECKING:
    from mooring.gateway.access import RequestRecord
    from mooring.gateway.app import Gateway


HEARTBEAT_INTERVAL = 25.0
"""Idle seconds after which a comment is written to an open stream, to detect closed connections."""
WRITE_TIMEOUT = 30.0
HEARTBEAT = b":\n\n"


class HttpExchange:
    """One POST. The response is JSON, or an event stream if messages are sent before it."""

    __slots__ = ("_more", "_outbox", "_request", "_writer", "headers", "record", "streams")

    def __init__(self, request: WebRequest, more: Mapping[str, str]) -> None:
        self.headers: Mapping[str, str] = request.headers
        accepted = request.headers.get("Accept", "")
        self.streams = "text/event-stream" in accepted or "*/*" in accepted
        self.record: RequestRecord | None = None
        self._request = request
        self._more = more
        self._outbox: Outbox | None = None
        self._writer: asyncio.Task[None] | None = None

    def send(self, body: bytes) -> None:
        if not self.streams:
            return
        if self._outbox is None:
            self._outbox = Outbox(on_lost=self._request.abort)
            self._writer = asyncio.create_task(write_stream(self._request, self._outbox, self._more))
        self._outbox.put(body)

    async def finish(self, body: bytes, status: int) -> Response | None:
        """Send the response."""
        if self._outbox is None:
            return json_response(body, status, self._more)
        self._outbox.put(body)
        return await self.end()

    async def end(self) -> None:
        """End a stream that was started."""
        assert self._outbox is not None
        assert self._writer is not None
        self._outbox.close()
        await self._writer

    @property
    def begun(self) -> bool:
        return self._outbox is not None

    def drop(self) -> None:
        """Stop writing: the client is gone."""
        if self._writer is not None:
            self._writer.cancel()


def sse(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"


STREAM = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def numbered(first: int) -> Callable[[bytes], bytes]:
    """Return a function that frames events with ids from `first` on, for `Last-Event-ID`."""
    numbers = itertools.count(first)
    return lambda body: b"id: %d\n" % next(numbers) + sse(body)


async def write_stream(
    request: WebRequest,
    outbox: Outbox,
    more: Mapping[str, str],
    *,
    heartbeat: float | None = None,
    frame: Callable[[bytes], bytes] = sse,
    prime: bytes = b"",
) -> None:
    """Write the messages of an outbox until it is closed, or the client is gone or too slow."""

    async def write(data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT):
            await request.write(data)

    try:
        await request.start_stream({**STREAM, **more})
        if prime:
            await write(prime)
        await outbox.write_all(write, frame=frame, heartbeat=heartbeat, heartbeat_data=HEARTBEAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_TIMEOUT):
                await request.end_stream()
    except OSError:  # also of a timeout
        outbox.lose()


MAX_TRIES = 40
"""How often a request is forwarded to the same node, which was not there to get it."""
SESSION = "Mcp-Session-Id"
SESSION_ENDED = (
    "the gateway ended the session while the request was running, because its token is no longer valid, its "
    "profile was removed, or an administrator ended it; the outcome is not known. Initialize again"
)
PRIMING_VERSION = "2025-11-25"


class RequestContext(NamedTuple):
    """An HTTP request with its profile and principal."""

    request: WebRequest
    profile: Profile
    principal: Principal
    more: Mapping[str, str]
    """Headers of every response."""


class HttpHandler:
    """Handles POST, GET and DELETE of `/mcp` and `/mcp/<profile>`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def serve(
        self, request: WebRequest, profile: Profile, principal: Principal, more: Mapping[str, str]
    ) -> Response | None:
        context = RequestContext(request, profile, principal, more)
        if request.method == "POST":
            return await self._post(context)
        if request.method == "GET":
            return await self._get(context)
        if request.method == "DELETE":
            return await self._delete(context)
        raise Denied(405, "this endpoint accepts POST, GET and DELETE", {"Allow": "POST, GET, DELETE"})

    # --- requests -------------------------------------------------------------------------------

    async def _post(self, context: RequestContext) -> Response | None:
        request_id: object = None
        try:
            body = await self.body(context.request)
            decoded = _decoded(body)
            if isinstance(decoded, list):
                return await self._batch(context, cast("list[object]", decoded))
            message = fields(decoded)
            request_id = message.get("id")
            if not message or message.get("jsonrpc") != "2.0":
                raise Refusal(INVALID_REQUEST, "the body must be one JSON-RPC message")
            version = context.request.headers.get("MCP-Protocol-Version")
            if era_of_message(message, version) == "modern":
                cluster = self._gateway.cluster
                if cluster is None:
                    return await self._modern(context, message)
                return await self._routed(cluster, context, message, body)
            return await self._legacy(context, message)
        except Refusal as refusal:
            key = cast("RequestId", request_id) if is_id(request_id) else None
            return json_response(error_body(key, refusal), refusal.status, context.more)

    async def body(self, request: WebRequest) -> bytes:
        """Read the body.

        Raises:
            Denied: It is too large, too slow, not JSON, or wrongly encoded.
        """
        settings = self._gateway.settings
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Denied(415, "the body must be application/json")
        return await request.read(settings.max_body, settings.body_timeout)

    async def _owner(
        self, cluster: Cluster, context: RequestContext, message: dict[str, Any]
    ) -> NodeId | None:
        """Return the node that must answer a request of the 2026 era; None for any."""
        params = fields(message.get("params"))
        if "requestState" in params:
            return self._gateway.era_bridge.owner(params["requestState"])
        server = home_server(context.profile, message.get("method"), params)
        if server is None:
            return None
        return await cluster.home(context.profile, context.principal, server or None, message)

    async def _arrived(self, cluster: Cluster, context: RequestContext, message: dict[str, Any]) -> None:
        if self._is_placed(context, message):
            server = home_server(context.profile, message.get("method"), fields(message.get("params")))
            await cluster.arrived(context.profile, context.principal, server or None, message)

    def _is_placed(self, context: RequestContext, message: dict[str, Any]) -> bool:
        """Whether one node keeps what a request uses, and the request does not name it."""
        params = fields(message.get("params"))
        named = "requestState" in params
        return not named and home_server(context.profile, message.get("method"), params) is not None

    async def _routed(
        self, cluster: Cluster, context: RequestContext, message: dict[str, Any], body: bytes
    ) -> Response | None:
        """Have the owner answer. If it ended before it got the request, its successor does."""
        if context.request.hop is not None:
            await self._arrived(cluster, context, message)
            return await self._served(cluster, context, message)
        owner, tries = await self._owner(cluster, context, message), 0
        while owner is not None and owner != cluster.me:
            try:
                return await cluster.forward(context.request, owner, body, counted=True)
            except OwnerGone as gone:
                if "requestState" in fields(message.get("params")):
                    raise Refusal(
                        INVALID_PARAMS,
                        f"node {owner.name!r}, which kept this call, is gone. The tool may have had effects; "
                        "check before you call it again",
                    ) from None
                old, owner = owner, await self._owner(cluster, context, message)
                if owner == old:
                    tries += 1
                    if tries >= MAX_TRIES:
                        raise Denied(503, str(gone), {"Retry-After": "2"}) from None
                    await asyncio.sleep(min(tries * 0.02, 0.25))
        return await self._served(cluster, context, message)

    async def _served(
        self, cluster: Cluster, context: RequestContext, message: dict[str, Any]
    ) -> Response | None:
        is_stream = message.get("method") == "subscriptions/listen"  # it ends when the node does
        if is_stream or not self._is_placed(context, message):
            return await self._modern(context, message)
        with cluster.serving(context.profile, context.principal):
            return await self._modern(context, message)

    async def _modern(self, context: RequestContext, message: dict[str, Any]) -> Response | None:
        if "id" not in message:
            await notified(None, message)
            return Response(status=202)  # the 2026 era has no client notifications over HTTP
        if not is_id(message["id"]):
            raise Refusal(INVALID_REQUEST, "the id of a request must be a string or an integer")
        check_agreement(context.request.headers, message)
        meta = modern_stamp(message)
        version, able = meta["io.modelcontextprotocol/protocolVersion"], meta[CAPABILITIES]
        client = self._gateway.registry.transient(context.profile, context.principal, "modern", version, able)
        if message["method"] == "subscriptions/listen":
            return await self._listen(context, client, message)
        return await self._answered(context, client, message)

    async def _legacy(self, context: RequestContext, message: dict[str, Any]) -> Response | None:
        if message.get("method") == "initialize":
            return await self._initialize(context, message)
        client = self._session(context)
        if "method" not in message:
            client.answered(message)
            return Response(status=202)
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                client.cancelled(fields(message.get("params")).get("requestId"))
            await notified(client, message)
            return Response(status=202)
        if not is_id(message["id"]) or not isinstance(message["method"], str):
            raise Refusal(INVALID_REQUEST, "a request needs a method, and a string or an integer as id")
        return await self._answered(context, client, message)

    async def _batch(self, context: RequestContext, messages: list[object]) -> Response | None:
        client = self._session(context)

        async def answer(message: dict[str, Any]) -> bytes | None:
            body, _ = await self._result(context, client, message, stdio.Plain())
            return body

        body = await stdio.answered(client, messages, answer)
        return Response(status=202) if body is None else json_response(body, 200, context.more)

    async def _initialize(self, context: RequestContext, message: dict[str, Any]) -> Response | None:
        params = fields(message.get("params"))
        if not is_id(message.get("id")) or "protocolVersion" not in params:
            raise Refusal(INVALID_REQUEST, "initialize needs an id and a 'protocolVersion'")
        version = handshake_version(params.get("protocolVersion"))
        abilities = fields(params.get("capabilities"))
        gateway = self._gateway
        given = (context.profile, context.principal, version, abilities, context.request.remote)
        try:
            client = gateway.registry.open(*given)
        except TooManySessions as full:
            asking = account(context.principal, context.request.remote)
            cluster = gateway.cluster
            if cluster is None or full.account is None or not await cluster.make_room(full.account, asking):
                raise Denied(503, str(full), {"Retry-After": "30"}) from None
            try:
                client = gateway.registry.open(*given)
            except TooManySessions as taken:  # another client was quicker
                raise Denied(503, str(taken), {"Retry-After": "1"}) from None
        known = context._replace(more={**context.more, SESSION: client.id})
        return await self._answered(known, client, message)

    def _session(self, context: RequestContext) -> Client:
        gateway, (request, profile, principal, _) = self._gateway, context
        key = request.headers.get(SESSION)
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
    ) -> Response | None:
        """Answer a request. It is cancelled if the client disconnects."""
        exchange = HttpExchange(context.request, context.more)
        try:
            body, status = await self._result(context, client, message, exchange)
        except asyncio.CancelledError:
            exchange.drop()
            raise
        if body is not None:
            return await exchange.finish(body, status)
        return await exchange.end() if exchange.begun else Response(status=202)

    async def _result(
        self, context: RequestContext, client: Client, message: dict[str, Any], exchange: ClientExchange
    ) -> tuple[bytes | None, int]:
        """Return the response body and HTTP status; the body is None if the client cancelled the request. A
        request whose session is ended by the gateway gets an error."""
        key: RequestId = message["id"]
        if key in client.under_way:
            return error_body(key, Refusal(INVALID_REQUEST, "a request with this id is already running")), 400
        body, status = None, 202
        with anyio.CancelScope() as scope:
            client.under_way[key] = scope
            try:
                answer: Answer = await self._gateway.answer(client, message, exchange)
                body, status = result_body(key, answer), 200
            except Refusal as refusal:
                body, status = error_body(key, refusal), refusal.status if client.era == "modern" else 200
            finally:
                if body is None and client.ended:
                    body, status = error_body(key, Refusal(-32001, SESSION_ENDED)), 200
                client.under_way.pop(key, None)
                client.used = time.monotonic()
                if (record := exchange.record) is not None:
                    record.sent = 0 if body is None else len(body)
                    context.request.records.append(record)
        return body, status

    # --- streams --------------------------------------------------------------------------------

    async def _listen(
        self, context: RequestContext, client: Client, message: dict[str, Any]
    ) -> Response | None:
        """Answer `subscriptions/listen` with a stream that lasts until either side ends it."""
        request = context.request
        outbox = Outbox(on_lost=request.abort)
        async with self._gateway.subscriptions.listening(client, message, outbox):
            await write_stream(request, outbox, context.more, heartbeat=HEARTBEAT_INTERVAL)

    async def _get(self, context: RequestContext) -> Response | None:
        """Open the event stream of a session; it replaces an older one."""
        request = context.request
        if SESSION not in request.headers:
            raise Denied(405, "a stream needs a session", {"Allow": "POST"})
        client = self._known(context)
        if client.event_stream is not None:
            client.event_stream.close()
        outbox = client.event_stream = Outbox(on_lost=request.abort)
        last = request.headers.get("Last-Event-ID", "")
        missed = client.missed(int(last)) if last.isascii() and last.isdigit() and len(last) < 16 else []
        for body in missed:
            outbox.put(body)
        first = client.notified - len(missed) + 1
        # An event without data: the position at which the stream starts.
        prime = b"id: %d\ndata:\n\n" % (first - 1) if client.protocol >= PRIMING_VERSION else b""
        try:
            await write_stream(
                request,
                outbox,
                context.more,
                heartbeat=HEARTBEAT_INTERVAL,
                frame=numbered(first),
                prime=prime,
            )
        finally:
            outbox.close()
            client.used = time.monotonic()

    async def _delete(self, context: RequestContext) -> Response | None:
        if SESSION not in context.request.headers:
            raise Denied(405, "DELETE needs a session", {"Allow": "POST"})
        await self._gateway.registry.end(self._known(context))
        return Response()


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
        cluster = self._gateway.cluster
        key = random_id() if cluster is None else cluster.new_id()
        outbox = Outbox(on_lost=request.abort)
        server = StdioServer(self._gateway, outbox, principal, request.remote)
        self._streams[key] = (server, principal)
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
            await server.end()

    async def _take(self, request: WebRequest, principal: Principal) -> Response | None:
        found = self._streams.get(request.query.get("session_id", ""))
        if found is None or found[1] != principal:
            raise Denied(404, "unknown session")
        body = await self._endpoint.body(request)
        found[0].act_for(principal)
        found[0].take(body)
        return Response(b"Accepted", 202, content_type="text/plain")
