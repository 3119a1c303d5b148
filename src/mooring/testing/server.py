"""A scripted MCP server for tests: a real one on the loopback, or a real child process."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from mooring.core.config import ServerConfig
from mooring.core.types import EMPTY
from mooring.testing.faults import Fault
from mooring.testing.script import Answer, Era, Request, Script
from mooring.testing.wires import Wires

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
