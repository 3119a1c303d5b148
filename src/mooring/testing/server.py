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
"""The `_meta` of notifications for one listener; empty in the handshake era."""


class Transports:
    """The HTTP and stdio transports of one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.child_port = 0
        self._listeners: dict[asyncio.Queue[dict[str, Any] | None], Stamp] = {}
        self._runner: web.AppRunner | None = None
        self._child_server: asyncio.Server | None = None
        self._child_tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        app = web.Application(client_max_size=MAX_LINE)
        app.router.add_route("POST", "/mcp", self._post)
        app.router.add_route("GET", "/mcp", self._get)
        app.router.add_route("DELETE", "/mcp", _empty_response)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._child_server = await asyncio.start_server(self._serve_child, "127.0.0.1", 0, limit=MAX_LINE)
        self.child_port = self._child_server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for queue in self._listeners:
            queue.put_nowait(None)
        if self._child_server is not None:
            self._child_server.close()
        for task in self._child_tasks:
            task.cancel()
        await asyncio.gather(*self._child_tasks, return_exceptions=True)
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
        """Return the response, or the fault to show instead."""
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
        # Handshake clients open an event stream only if they have a session.
        session = {"Mcp-Session-Id": uuid4().hex} if message["method"] == "initialize" else None
        return web.json_response(answer, status=404 if unknown and modern else 200, headers=session)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return await self._write_events(request, {}, None)

    async def _subscribe(self, request: web.Request, message: Mapping[str, Any]) -> web.StreamResponse:
        stamp = {SUBSCRIPTION: message["id"]}
        return await self._write_events(request, stamp, _acknowledged(message, stamp))

    async def _write_events(
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

    async def _serve_child(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one child until it or the server ends."""
        task = asyncio.current_task()
        assert task is not None
        self._child_tasks.add(task)
        under_way: dict[Any, asyncio.Task[None]] = {}
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listeners[queue] = {}
        writing = asyncio.create_task(_write_queued(queue, writer))
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
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass  # the child or the test ended, or another program uses a port of this number
        finally:
            for work in (*under_way.values(), writing):
                work.cancel()
            del self._listeners[queue]
            self._child_tasks.discard(task)
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


async def _write_queued(queue: asyncio.Queue[dict[str, Any] | None], writer: asyncio.StreamWriter) -> None:
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


async def _empty_response(request: web.Request) -> web.Response:
    return web.Response()


CHILD = Path(__file__).with_name("child.py")
F = TypeVar("F", bound=Callable[..., Any])


class FakeServer:
    """An MCP server that a test scripts.

        server = FakeServer("shop")

        @server.tool
        def price(item: str) -> float:
            return 9.5

        async with server:
            async with Host([server.http()]) as host: ...

    `async with` runs it in the test's event loop, `with` in a thread. The functions run in the test's process
    for both transports.
    """

    def __init__(self, name: str = "fake", *, era: Era = "both", instructions: str | None = None) -> None:
        self._script = Script(name, era, instructions)
        self._transports = Transports(self._script)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # --- definitions ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._script.name

    def tool(self, function: F) -> F:
        """Add a function as a tool; its signature is the schema, its docstring the description."""
        self._script.function(function)
        return function

    def define(self, definition: Mapping[str, Any], answer: Answer = "") -> None:
        """Add a tool by its raw definition; `answer` is text, a result, or a function of the arguments that
        returns either."""
        self._script.define(definition, answer)

    def resource(
        self,
        uri: str,
        text: str,
        *,
        name: str | None = None,
        mime_type: str = "text/plain",
        meta: Mapping[str, Any] | None = None,
        listed: bool = True,
    ) -> None:
        """Add a text resource. `meta` is the `_meta` of its contents; `listed`: whether `resources/list` has
        it."""
        entry: dict[str, Any] = {"uri": uri, "name": name or uri, "mimeType": mime_type, "text": text}
        if meta is not None:
            entry["_meta"] = dict(meta)
        self._script.resources[uri] = entry
        self._script.unlisted = self._script.unlisted - {uri} if listed else self._script.unlisted | {uri}

    def extension(self, name: str, settings: Mapping[str, Any] = EMPTY, /, **methods: Answer) -> None:
        """Declare an extension of the protocol. `methods` answer its requests, by name with `__` for a slash:
        `maps__route={"km": 3}`; a function gets the parameters."""
        self._script.extensions[name] = dict(settings)
        self._script.methods.update({method.replace("__", "/"): answer for method, answer in methods.items()})

    def skill(self, name: str, text: str, *, description: str = "A skill.", **files: str) -> str:
        """Add a skill at `skill://<name>/SKILL.md`, with `files` by name; return the address. `text` follows
        the frontmatter."""
        return self._script.skill(name, text, description, files)

    def prompt(self, function: Callable[..., str]) -> Callable[..., str]:
        """Add a function that returns text as a prompt; its parameters are the prompt's arguments."""
        import inspect

        arguments = [
            {"name": parameter.name, "required": parameter.default is parameter.empty}
            for parameter in inspect.signature(function).parameters.values()
        ]
        name = function.__name__
        definition = {"name": name, "description": inspect.getdoc(function) or "", "arguments": arguments}
        self._script.prompts[name] = (definition, function)
        return function

    # --- requests and faults --------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """All received messages in order."""
        return self._script.requests

    def calls(self, tool: str) -> list[Mapping[str, Any]]:
        """Return the arguments of all calls of a tool in order."""
        called = [request.params for request in self.requests if request.method == "tools/call"]
        return [params.get("arguments") or EMPTY for params in called if params.get("name") == tool]

    def fail(self, where: str, fault: Fault, *, times: int | None = 1) -> None:
        """Apply a fault to the next `times` requests (None: all until `heal()`). `where` is the name of a
        tool or a method such as `tools/list`."""
        self._script.fail(where, fault, times)

    def heal(self) -> None:
        """Remove all faults."""
        self._script.heal()

    def rug_pull(self, tool: str, **changes: Any) -> None:
        """Change the definition of a tool (`description=…`, `inputSchema=…`) and announce a changed list."""
        self._script.tools[tool] = {**self._script.tools[tool], **changes}
        self.announce()

    @property
    def listening(self) -> int:
        """Number of clients that receive notifications."""
        return self._transports.listening

    def announce(self, method: str = "notifications/tools/list_changed") -> None:
        """Send a notification to every connected client."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._transports.announce, method)

    # --- configurations -------------------------------------------------------------------------

    def http(self, name: str | None = None, /, **settings: Any) -> ServerConfig:
        """Return the configuration for HTTP."""
        self._running()
        given: dict[str, Any] = {"name": name or self.name, "url": self.url}
        return ServerConfig(**{**given, **settings})

    def child(self, name: str | None = None, /, **settings: Any) -> ServerConfig:
        """Return the configuration of a child process for stdio."""
        self._running()
        args = ("-I", "-S", str(CHILD), str(self._transports.child_port))
        given: dict[str, Any] = {"name": name or self.name, "command": sys.executable, "args": args}
        return ServerConfig(**{**given, **settings})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._transports.port}/mcp"

    def _running(self) -> None:
        if self._loop is None:
            raise RuntimeError(f"the fake server {self.name!r} is not running; use it inside `with`")

    # --- lifecycle ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._transports.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        await self._transports.close()

    def __enter__(self) -> Self:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop,), name="fake server", daemon=True)
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


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


LOOP_ITERATIONS = 25
"""Iterations of the event loop for due timers and the tasks that they start."""


class VirtualClock:
    """Advances the clock of the running event loop: timeouts, backoffs, circuit breakers and idle sessions
    behave as if the time had passed. Children and sockets still take real time.

        clock = VirtualClock()
        await clock.advance(1800)

    The clock of a loop is never set back.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise RuntimeError(
                f"{type(loop).__name__} has a clock that cannot be advanced; use asyncio's own loop"
            )
        self._system = loop.time
        self._ahead = 0.0
        vars(loop)["time"] = self.time
        concurrency.turned()

    def time(self) -> float:
        """Return the time of the loop."""
        return self._system() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds` and run what is due."""
        self._ahead += seconds
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)
