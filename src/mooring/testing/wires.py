"""The wires of a fake server: HTTP on the loopback, and a socket that child processes relay to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from aiohttp import web

from mooring.core.types import EMPTY
from mooring.testing.faults import Fault
from mooring.testing.script import VERSION_KEY, Request, Script, meta_of, params_of

GARBAGE = b"<html>this is no JSON</html>\n"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
MAX_LINE = 64 * 2**20

Stamp = dict[str, Any]
"""What a notice carries in its `_meta` for one listener; nothing in the handshake era."""


class Wires:
    """Opens and closes both wires of one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.relay_port = 0
        self._listeners: dict[asyncio.Queue[dict[str, Any] | None], Stamp] = {}
        self._runner: web.AppRunner | None = None
        self._relays: asyncio.Server | None = None
        self._relayed: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        app = web.Application(client_max_size=MAX_LINE)
        app.router.add_route("POST", "/mcp", self._post)
        app.router.add_route("GET", "/mcp", self._get)
        app.router.add_route("DELETE", "/mcp", _nothing)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._relays = await asyncio.start_server(self._relay, "127.0.0.1", 0, limit=MAX_LINE)
        self.relay_port = self._relays.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for queue in self._listeners:
            queue.put_nowait(None)
        if self._relays is not None:
            self._relays.close()
        for task in self._relayed:
            task.cancel()
        await asyncio.gather(*self._relayed, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def listening(self) -> int:
        return len(self._listeners)

    def announce(self, method: str) -> None:
        for queue, stamp in self._listeners.items():
            params = {"params": {"_meta": stamp}} if stamp else {}
            queue.put_nowait({"jsonrpc": "2.0", "method": method, **params})

    async def _answer(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any] | Fault:
        """The reply, or what shall go wrong instead of it."""
        method, params = message.get("method", ""), params_of(message)
        self.script.requests.append(Request(method=method, params=params, headers=headers))
        fault = self.script.fault(method, params) if "id" in message else None
        if fault is not None and fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault is not None:
            return fault
        return await self.script.reply(message) if "id" in message else {}

    # --- HTTP -----------------------------------------------------------------------------------

    async def _post(self, request: web.Request) -> web.StreamResponse:
        message = json.loads(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        if "method" not in message:
            return web.Response(status=202)
        if message["method"] == "subscriptions/listen" and self.script.era != "handshake":
            return await self._subscribe(request, message)
        answer = await self._answer(message, headers)
        if isinstance(answer, Fault):
            return await _failed(answer, request)
        if not answer:
            return web.Response(status=202)
        unknown = "error" in answer and answer["error"]["code"] == -32601
        modern = VERSION_KEY in meta_of(params_of(message))
        # Clients of the handshake era listen to announcements only where there is a session.
        session = {"Mcp-Session-Id": uuid4().hex} if message["method"] == "initialize" else None
        return web.json_response(answer, status=404 if unknown and modern else 200, headers=session)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return await self._pour(request, {}, None)

    async def _subscribe(self, request: web.Request, message: Mapping[str, Any]) -> web.StreamResponse:
        stamp = {SUBSCRIPTION: message["id"]}
        return await self._pour(request, stamp, _acknowledged(message, stamp))

    async def _pour(
        self, request: web.Request, stamp: Stamp, first: dict[str, Any] | None
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listeners[queue] = stamp
        if first is not None:
            queue.put_nowait(first)
        try:
            while (message := await queue.get()) is not None:
                await stream.write(f"data: {json.dumps(message)}\n\n".encode())
        finally:
            del self._listeners[queue]
        return stream

    # --- children -------------------------------------------------------------------------------

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One child, until it or the server ends."""
        task = asyncio.current_task()
        assert task is not None
        self._relayed.add(task)
        under_way: dict[Any, asyncio.Task[None]] = {}
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listeners[queue] = {}
        speaking = asyncio.create_task(_speak(queue, writer))
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message.get("method") == "notifications/cancelled":
                    if work := under_way.pop(params_of(message).get("requestId"), None):
                        work.cancel()
                elif message.get("method") == "subscriptions/listen" and self.script.era != "handshake":
                    stamp = self._listeners[queue] = {SUBSCRIPTION: message["id"]}
                    queue.put_nowait(_acknowledged(message, stamp))
                elif "method" in message:
                    work = asyncio.create_task(self._serve(message, writer))
                    under_way[message.get("id")] = work
        except (ConnectionError, asyncio.CancelledError):
            pass  # the child was ended, or the test is over
        finally:
            for work in (*under_way.values(), speaking):
                work.cancel()
            del self._listeners[queue]
            self._relayed.discard(task)
            writer.close()

    async def _serve(self, message: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(message, {})
        if isinstance(answer, Fault):
            match answer.kind:
                case "crash":
                    writer.transport.abort()
                case "garbage":
                    writer.write(GARBAGE)
                case "unauthorized" | "rate-limited":
                    error = {"code": -32001, "message": f"{answer.kind}"}
                    _write(writer, {"jsonrpc": "2.0", "id": message["id"], "error": error})
                case _:
                    pass  # it hangs
        elif answer:
            _write(writer, answer)


async def _speak(queue: asyncio.Queue[dict[str, Any] | None], writer: asyncio.StreamWriter) -> None:
    while (message := await queue.get()) is not None:
        _write(writer, message)
    writer.close()


def _write(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


def _acknowledged(message: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    wanted = params_of(message).get("notifications", EMPTY)
    return {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": wanted, "_meta": stamp},
    }


async def _failed(fault: Fault, request: web.Request) -> web.StreamResponse:
    match fault.kind:
        case "unauthorized":
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        case "rate-limited":
            return web.Response(status=429, headers={"Retry-After": f"{fault.seconds:g}"})
        case "garbage":
            return web.Response(body=GARBAGE, content_type="application/json")
        case "crash":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        case _:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")


async def _nothing(request: web.Request) -> web.Response:
    return web.Response()
