"""An extension with a manifest: provides the tools of its servers as function tools."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from mooring.agents.engine import ContextProvider
from mooring.agents.manager import EventBus
from mooring.config import from_document
from mooring.config.documents import read_document
from mooring.config.logs import logger
from mooring.config.models import HostConfig
from mooring.core.types import Result, Tool
from mooring.errors import MooringError
from mooring.host import Host
from mooring.lock.cache import NAME as LOCK_NAME

log = logger("mooring.agents")

Manifest = str | os.PathLike[str] | Mapping[str, Any]
Invoke = Callable[[Any, str], Awaitable[str]]


class ExtensionContext(Protocol):
    """The context that the runtime passes to an extension."""

    def get_secret(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool with the fields of the OpenAI Agents SDK's class, used if that is not installed."""

    name: str
    description: str
    params_json_schema: dict[str, Any]
    on_invoke_tool: Invoke
    strict_json_schema: bool = False
    is_enabled: bool = True


class McpBridgeExtension:
    """Connects the servers in a manifest's `config.servers` to an agent.

        extension = McpBridgeExtension("manifest.yaml")
        await extension.initialize(context)
        await extension.start()
        agent = Agent(tools=extension.get_tools())

    A server that cannot be reached, or whose secret is missing, is left out. A failed call returns a text
    that starts with `Error:`. Events: `mcp.tool_called`, `mcp.tool_failed`. If the manifest is a file, the
    servers are compared with the `mooring.lock` beside it.
    """

    def __init__(
        self, manifest: Manifest, *, bus: EventBus | None = None, resources: Sequence[str] = ()
    ) -> None:
        self.bus = bus or EventBus()
        self._manifest = manifest
        self._resources = tuple(resources)
        """URIs or patterns for `get_context`."""
        self._config = HostConfig()
        self._context: ExtensionContext | None = None
        self._host: Host | None = None
        self._silent: set[str] = set()
        """Servers that did not answer the last health check."""
        self._tools: dict[str, tuple[Tool, Any]] = {}
        """By name: the tool of the catalog, and the function tool made from it."""

    async def initialize(self, context: ExtensionContext) -> None:
        """Read the manifest. Does not connect.

        Raises:
            ConfigError: an entry is wrong; the message names it.
        """
        if isinstance(self._manifest, Mapping):
            document, file = self._manifest, None
        else:
            document, file = read_document(Path(self._manifest)), str(self._manifest)
        self._config = from_document(document, file=file, scope="explicit", strict=True)
        self._context = context

    async def start(self) -> None:
        """Connect every server; those that cannot be reached are logged."""
        if self._context is None:
            raise RuntimeError("call initialize() before start()")
        if self._host is not None:
            return
        host = Host(self._config, lock=self._lock(), get_secret=self._context.get_secret)
        await host.__aenter__()
        self._host = host
        await host.ready()

    def _lock(self) -> Path | Literal[True]:
        """Return the lock beside the manifest, if that is a file."""
        return True if isinstance(self._manifest, Mapping) else Path(self._manifest).with_name(LOCK_NAME)

    def get_tools(self) -> list[Any]:
        """The current tools of all servers; empty before `start()` and after `stop()`.

        A tool that did not change is the same object as before.
        """
        if self._host is None:
            return []
        make, tools = _maker(), dict[str, tuple[Tool, Any]]()
        for name, tool in self._host.catalog.tools.items():
            entry = self._tools.get(name)
            if entry is None or entry[0] is not tool:
                entry = (tool, make(tool, self._invoker(tool)))
            tools[name] = entry
        self._tools = tools
        return [function for _, function in tools.values()]

    async def stop(self) -> None:
        """Close every server and cancel calls in progress. Idempotent."""
        host, self._host = self._host, None
        self._tools = {}
        if host is not None:
            await host.__aexit__(None, None, None)

    async def health_check(self, timeout: float = 5.0) -> bool:
        """Whether every server answers a ping within `timeout` seconds (default: 5); False before `start()`.

        Disabled servers, and lazy servers that were not started, are ignored.
        """
        if self._host is None:
            return False
        lazy = {server.name for server in self._config.servers if server.start == "lazy"}
        names = [
            status.name
            for status in self._host.status()
            if status.state != "disabled" and not (status.state == "pending" and status.name in lazy)
        ]
        return all(await asyncio.gather(*(self._answers(self._host, name, timeout) for name in names)))

    async def _answers(self, host: Host, name: str, timeout: float) -> bool:
        try:
            await host.ping(name, timeout=timeout)
        except MooringError as problem:
            if name not in self._silent:
                log.warning("server %r is down: %s", name, problem)
            self._silent.add(name)
            return False
        self._silent.discard(name)
        return True

    async def get_context(self) -> str:
        """The text of the selected resources, marked as data; unreadable ones are left out and logged."""
        if self._host is None:
            return ""
        context = await ContextProvider(self._host, self._resources).fetch()
        for uri, problem in context.failed.items():
            log.warning("cannot read resource %r: %s", uri, problem)
        for uri in context.left_out:
            log.warning("resource %r is left out: it exceeds `context.budget` or contains no text", uri)
        return context.text

    def _invoker(self, tool: Tool) -> Invoke:
        async def invoke(_context: Any, arguments: str) -> str:
            if self._host is None:
                return f"Error: {tool.name!r} cannot be called: the extension is stopped"
            try:
                values: Any = json.loads(arguments or "{}")
            except ValueError as problem:
                return f"Error: the arguments are not JSON: {problem}"
            result = await self._host.call(tool.name, values)
            self._emit(tool, result)
            return f"Error: {result.text}" if result.is_error else result.text

        return invoke

    def _emit(self, tool: Tool, result: Result) -> None:
        payload: dict[str, Any] = {
            "server": tool.server,
            "tool": tool.remote_name,
            "duration": result.duration,
        }
        if result.is_error:
            self.bus.emit("mcp.tool_failed", **payload, error=result.text[:500])
        else:
            self.bus.emit("mcp.tool_called", **payload)


def _maker() -> Callable[[Tool, Invoke], Any]:
    """Return a function that makes function tools: the SDK's if it is installed, else `FunctionTool`."""
    kind: Any = FunctionTool
    with suppress(ImportError):
        kind = getattr(import_module("agents"), "FunctionTool", FunctionTool)

    def make(tool: Tool, invoke: Invoke) -> Any:
        schema: dict[str, Any] = {"properties": {}, **tool.input_schema}
        return kind(
            name=tool.name,
            description=tool.description,
            params_json_schema=schema,
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    return make
