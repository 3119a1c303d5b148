"""A handwritten, scripted MCP server over HTTP: Streamable HTTP in both eras and old SSE.

It runs in the test's own event loop on a real loopback socket. `lab.faults` maps a JSON-RPC method to a
coroutine that answers instead (or returns None to let the lab answer).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from mooring import ServerConfig

Fault = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse | None]]
SERVER_INFO = {"name": "http-lab", "version": "2"}


class HttpLab:
    def __init__(
        self,
        *,
        era: str = "dual",
        answers: str = "json",
        sessions: bool = True,
        stream: bool = True,
        tools: tuple[str, ...] = ("echo", "sleep"),
    ) -> None:
        self.era, self.answers, self.sessions, self.stream = era, answers, sessions, stream
        self.tools = list(tools)
        self.descriptions: dict[str, str] = {}
        self.faults: dict[str, Fault] = {}
        self.ssl_context: ssl.SSLContext | None = None
        self.host = "127.0.0.1"
        """How it is called."""
        self.middlewares: list[Any] = []
        """Called before every route, such as a check of tokens."""
        self.seen: list[tuple[str, dict[str, Any]]] = []
        """Every message that arrived: its method (or "GET", "DELETE") and its HTTP headers."""
        self.messages: list[dict[str, Any]] = []
        self.live_sessions: set[str] = set()
        self.running = 0
        """Calls of `sleep` that were not cancelled."""
        self.arrived = asyncio.Event()
        self._ids = itertools.count(1)
        self._streams: list[asyncio.Queue[dict[str, Any] | None]] = []
        self._subscribers: list[asyncio.Queue[bool]] = []
        self._old: dict[str, asyncio.Queue[dict[str, Any] | None]] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def __aenter__(self) -> HttpLab:
        app = web.Application(client_max_size=64 * 2**20, middlewares=self.middlewares)
        app.router.add_route("POST", "/mcp", self._post)
        app.router.add_route("GET", "/mcp", self._get)
        app.router.add_route("DELETE", "/mcp", self._delete)
        app.router.add_route("GET", "/sse", self._old_stream)
        app.router.add_route("POST", "/sse/messages", self._old_post)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.ssl_context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for queue in [*self._streams, *self._old.values()]:
            queue.put_nowait(None)
        self.cut_subscriptions()
        if self._runner is not None:
            await self._runner.cleanup()

    async def stop_listening(self) -> None:
        """Accept no further connections, as a process that is being replaced. Open ones stay."""
        assert self._runner is not None
        for site in list(self._runner.sites):
            await site.stop()

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def origin(self) -> str:
        return f"http{'s' if self.ssl_context else ''}://{self.host}:{self.port}"

    def config(self, name: str = "web", /, **settings: Any) -> ServerConfig:
        return ServerConfig(**{"name": name, "url": self.url, **settings})

    def methods(self) -> list[str]:
        return [method for method, _ in self.seen]

    async def until(self, wanted: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until something has arrived that makes `wanted` true."""
        async with asyncio.timeout(seconds):
            while not wanted():
                self.arrived.clear()
                await self.arrived.wait()

    def announce(self, message: dict[str, Any]) -> None:
        """Send a message of the server's own on every open stream."""
        for queue in [*self._streams, *self._old.values()]:
            queue.put_nowait(message)

    # --- Streamable HTTP ------------------------------------------------------------------------

    async def _received(self, request: web.Request) -> tuple[dict[str, Any], web.StreamResponse | None]:
        """The message of a request, and the answer of a fault that is set for its method."""
        message = json.loads(await request.read())
        method = message.get("method", "answer")
        self._note(method, request, message)
        fault = self.faults.get(method)
        return message, None if fault is None else await fault(request, message)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        message, answer = await self._received(request)
        if answer is not None:
            return answer
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        method, session = message["method"], request.headers.get("Mcp-Session-Id")
        modern = "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {})
        if self.sessions and not modern and method != "initialize" and session not in self.live_sessions:
            error = {"code": -32001, "message": "Session not found"}
            return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=404)
        headers: dict[str, str] = {}
        if method == "initialize" and self.sessions:
            headers["Mcp-Session-Id"] = f"session-{next(self._ids)}"
            self.live_sessions.add(headers["Mcp-Session-Id"])
        if method == "subscriptions/listen" and self.era != "legacy":
            return await self._listen(request, message)
        reply, status = await self.reply(message, modern)
        if self.answers == "json":
            return web.json_response(reply, status=status, headers=headers)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await stream.prepare(request)
        await stream.write(f"event: message\ndata: {json.dumps(reply)}\n\n".encode())
        await stream.write_eof()
        return stream

    async def _listen(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        stamp = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        acknowledged = {"notifications": message["params"]["notifications"], "_meta": stamp}
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        method = "notifications/subscriptions/acknowledged"
        first = {"jsonrpc": "2.0", "method": method, "params": acknowledged}
        await stream.write(f"data: {json.dumps(first)}\n\n".encode())
        queue: asyncio.Queue[bool] = asyncio.Queue()
        self._subscribers.append(queue)
        try:
            while await queue.get():
                change = {
                    "jsonrpc": "2.0",
                    "method": "notifications/tools/list_changed",
                    "params": {"_meta": stamp},
                }
                await stream.write(f"data: {json.dumps(change)}\n\n".encode())
        finally:
            self._subscribers.remove(queue)
        assert request.transport is not None
        request.transport.abort()
        return stream

    @property
    def subscriptions(self) -> int:
        return len(self._subscribers)

    def publish_change(self) -> None:
        for queue in self._subscribers:
            queue.put_nowait(True)

    def cut_subscriptions(self) -> None:
        for queue in self._subscribers:
            queue.put_nowait(False)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self._note("GET", request, {})
        if (fault := self.faults.get("GET")) is not None:
            answer = await fault(request, {})
            if answer is not None:
                return answer
        if not self.stream:
            return web.Response(status=405)
        if request.headers.get("Mcp-Session-Id") not in self.live_sessions:
            return web.Response(status=404)
        return await self._pour(request, self._streams)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        self._note("DELETE", request, {})
        self.live_sessions.discard(request.headers.get("Mcp-Session-Id", ""))
        return web.Response(status=200)

    async def _pour(self, request: web.Request, streams: list[Any]) -> web.StreamResponse:
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        streams.append(queue)
        self.arrived.set()
        try:
            while (message := await queue.get()) is not None:
                await stream.write(f"data: {json.dumps(message)}\n\n".encode())
        finally:
            streams.remove(queue)
        return stream

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    # --- old SSE --------------------------------------------------------------------------------

    async def _old_stream(self, request: web.Request) -> web.StreamResponse:
        self._note("GET /sse", request, {})
        key = f"old-{next(self._ids)}"
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(f"event: endpoint\ndata: /sse/messages?session_id={key}\n\n".encode())
        self._old[key] = queue
        try:
            while (message := await queue.get()) is not None:
                await stream.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        finally:
            del self._old[key]
        return stream

    async def _old_post(self, request: web.Request) -> web.StreamResponse:
        message, answer = await self._received(request)
        if answer is not None:
            return answer
        if "id" in message and "method" in message:
            reply, _ = await self.reply(message, modern=False)
            self._old[request.query["session_id"]].put_nowait(reply)
        return web.Response(status=202)

    # --- answers --------------------------------------------------------------------------------

    def _note(self, method: str, request: web.Request, message: dict[str, Any]) -> None:
        self.seen.append((method, dict(request.headers)))
        self.messages.append(message)
        self.arrived.set()

    async def reply(self, message: dict[str, Any], modern: bool) -> tuple[dict[str, Any], int]:
        envelope = {"jsonrpc": "2.0", "id": message["id"]}
        result = await self._result(message["method"], message.get("params", {}))
        if result is None:
            error = {"code": -32601, "message": f"Method not found: {message['method']}"}
            return {**envelope, "error": error}, 404 if modern else 200
        if modern:
            hints = {"ttlMs": 0, "cacheScope": "private"} if message["method"].endswith("/list") else {}
            result = {"resultType": "complete", **hints, **result}
        return {**envelope, "result": result}, 200

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "server/discover" and self.era != "legacy":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": True}},
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
            }
        if method == "initialize" and self.era != "modern":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": SERVER_INFO,
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}}
            return {
                "tools": [
                    {"name": name, "inputSchema": schema, "description": self.descriptions.get(name, "")}
                    for name in self.tools
                ]
            }
        if method == "tools/call":
            return await self._call(params["name"], params.get("arguments", {}))
        return None

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "sleep":
            self.running += 1
            try:
                await asyncio.sleep(arguments["seconds"])
            finally:
                self.running -= 1
                self.arrived.set()
        return {"content": [{"type": "text", "text": str(arguments.get("text", name))}]}
