"""A scripted MCP server for tests, over HTTP or as a child process, and a virtual clock."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from aiohttp import web

from mooring import concurrency
from mooring.config.models import ServerConfig
from mooring.core.types import EMPTY
from mooring.testing.script import VERSION_KEY, Answer, Era, Fault, Request, Script, meta_of, params_of

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


RELAY = Path(__file__).with_name("relay.py")
F = TypeVar("F", bound=Callable[..., Any])


class FakeServer:
    """An MCP server that does as a test tells it.

        server = FakeServer("shop")

        @server.tool
        def price(item: str) -> float:
            return 9.5

        async with server:
            async with Host([server.http()]) as host: ...

    `async with` runs it in the test's own loop, `with` in a thread. The functions stay in the test's
    process, whichever wire leads to them.
    """

    def __init__(self, name: str = "fake", *, era: Era = "both", instructions: str | None = None) -> None:
        self._script = Script(name, era, instructions)
        self._wires = Wires(self._script)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # --- what it offers -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._script.name

    def tool(self, function: F) -> F:
        """Offer a function as a tool; its signature is the schema, its docstring the description."""
        self._script.function(function)
        return function

    def define(self, definition: Mapping[str, Any], answer: Answer = "") -> None:
        """Offer a tool by its raw definition; `answer` is text, a whole result, or a function of the
        arguments that returns one of them."""
        self._script.define(definition, answer)

    def resource(
        self, uri: str, text: str, *, name: str | None = None, mime_type: str = "text/plain"
    ) -> None:
        """Offer a resource."""
        entry = {"uri": uri, "name": name or uri, "mimeType": mime_type, "text": text}
        self._script.resources[uri] = entry

    def prompt(self, function: Callable[..., str]) -> Callable[..., str]:
        """Offer a function that returns text as a prompt; its parameters are the prompt's arguments."""
        import inspect

        arguments = [
            {"name": parameter.name, "required": parameter.default is parameter.empty}
            for parameter in inspect.signature(function).parameters.values()
        ]
        name = function.__name__
        definition = {"name": name, "description": inspect.getdoc(function) or "", "arguments": arguments}
        self._script.prompts[name] = (definition, function)
        return function

    # --- what happened, what shall happen -------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """Every message that arrived, in order."""
        return self._script.requests

    def calls(self, tool: str) -> list[Mapping[str, Any]]:
        """The arguments of every call of a tool, in order."""
        called = [one.params for one in self.requests if one.method == "tools/call"]
        return [params.get("arguments") or EMPTY for params in called if params.get("name") == tool]

    def fail(self, where: str, fault: Fault, *, times: int | None = 1) -> None:
        """Let the next `times` requests go wrong (None: all until `heal()`). `where` is a tool's name or
        a method such as `tools/list`."""
        self._script.fail(where, fault, times)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._script.heal()

    def rug_pull(self, tool: str, **changes: Any) -> None:
        """Change the definition of a tool behind everybody's back (`description=…`, `inputSchema=…`), and
        announce that the list has changed."""
        self._script.tools[tool] = {**self._script.tools[tool], **changes}
        self.announce()

    @property
    def listening(self) -> int:
        """How many clients hear announcements now."""
        return self._wires.listening

    def announce(self, method: str = "notifications/tools/list_changed") -> None:
        """Tell every connected client something."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wires.announce, method)

    # --- how it is reached ----------------------------------------------------------------------

    def http(self, name: str | None = None, /, **settings: Any) -> ServerConfig:
        """The configuration that reaches it over HTTP."""
        self._running()
        given: dict[str, Any] = {"name": name or self.name, "url": self.url}
        return ServerConfig(**{**given, **settings})

    def child(self, name: str | None = None, /, **settings: Any) -> ServerConfig:
        """The configuration that starts a child process which speaks for it over stdio."""
        self._running()
        args = ("-I", "-S", str(RELAY), str(self._wires.relay_port))
        given: dict[str, Any] = {"name": name or self.name, "command": sys.executable, "args": args}
        return ServerConfig(**{**given, **settings})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._wires.port}/mcp"

    def _running(self) -> None:
        if self._loop is None:
            raise RuntimeError(f"the fake server {self.name!r} is not running; use it inside `with`")

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._wires.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        await self._wires.close()

    def __enter__(self) -> Self:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_turn, args=(loop,), name="fake server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        loop = self._loop
        asyncio.run_coroutine_threadsafe(self.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(10)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


TURNS = 25
"""Rounds of the loop given to whatever has become due, and to what that starts."""


class VirtualClock:
    """Turns the running event loop's clock forward: every time-out, rest, breaker and idle session acts
    as if the time had passed. Real waiting (a child, a socket) goes on in real time.

        clock = VirtualClock()
        await clock.advance(1800)

    The clock is never turned back: a loop keeps what it was advanced by.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise RuntimeError(
                f"{type(loop).__name__} has a clock that cannot be turned; use asyncio's own loop"
            )
        self._system = loop.time
        self._ahead = 0.0
        vars(loop)["time"] = self.time
        concurrency.turned()

    def time(self) -> float:
        """The loop's clock."""
        return self._system() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and whatever is due then begin."""
        self._ahead += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)
