"""A synchronous manager of servers, and the tools as a section of a prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self, cast

from mooring.config import GetSecret, from_document
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.core.catalog import Catalog
from mooring.core.discovery import prompt_section
from mooring.core.types import Result, Tool
from mooring.errors import ConnectError, UnknownTool
from mooring.sync import SyncHost

log = logger("mooring.agents")


Listener = Callable[[str, Mapping[str, Any]], None]


class EventBus:
    """Calls subscribers in the thread that emits the event. An exception in a subscriber is logged."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    def subscribe(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call `listener(name, payload)` for events with this name, or for all with `*`.

        Returns:
            A function that ends the subscription.
        """
        entry = (name, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def emit(self, name: str, **payload: Any) -> None:
        for wanted, listener in list(self._listeners):
            if wanted in (name, "*"):
                try:
                    listener(name, payload)
                except Exception:
                    log.exception("a subscriber for %r failed", name)


Servers = HostConfig | Iterable[ServerConfig] | Mapping[str, Any]
"""A configuration, or the content of `mcp` or `mcp.servers` in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolInfo:
    """One tool, for a prompt."""

    server_name: str
    name: str
    description: str
    input_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCallResult:
    """The result of a tool."""

    server_name: str
    tool_name: str
    content: list[Mapping[str, Any]]
    is_error: bool
    raw_text: str


class McpManager:
    """Connects servers and calls their tools, from any thread and without `await`.

        manager = McpManager()
        manager.connect_all({"files": {"command": "files-mcp"}})
        manager.call_tool("read_file", {"path": "README.md"}).raw_text
        manager.close_all()

    Tools keep their own names. If two servers have the same name, the server that connected last wins.
    """

    def __init__(self, *, get_secret: GetSecret | None = None) -> None:
        self._get_secret = get_secret
        self._host: SyncHost | None = None
        self.failures: Mapping[str, str] = {}
        """Error messages of the servers that could not be connected, by name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()

    def connect_all(self, servers: Servers) -> list[McpToolInfo]:
        """Connect all servers in parallel and return their tools. Earlier connections are closed first.

        Raises:
            ConfigError: the configuration cannot be used.
            ConnectError: no server could be connected.
        """
        self.close_all()
        config = as_config(servers)
        for warning in config.warnings:
            log.warning("%s", warning)
        self._host = SyncHost(config, style="raw", get_secret=self._get_secret)
        self._host.__enter__()
        try:
            self._wait(self._host, config)
        except BaseException:
            self.close_all()
            raise
        return self.tools

    def _wait(self, host: SyncHost, config: HostConfig) -> None:
        host.ready()
        if lazy := [server.name for server in config.active if server.start == "lazy"]:
            host.refresh(*lazy)
        states = [status for status in host.status() if status.state != "disabled"]
        failed = {one.name: one.error or one.state for one in states if one.state != "connected"}
        self.failures = failed
        if states and len(failed) == len(states):
            reasons = "; ".join(f"{name}: {error}" for name, error in failed.items())
            raise ConnectError(f"no server could be connected: {reasons}", server=states[0].name)

    @property
    def tools(self) -> list[McpToolInfo]:
        """The current tools."""
        if self._host is None:
            return []
        return [
            McpToolInfo(
                server_name=tool.server,
                name=name,
                description=tool.description,
                input_schema=tool.input_schema,
            )
            for name, tool in self._host.catalog.tools.items()
        ]

    @property
    def warnings(self) -> list[str]:
        """Which tools were hidden and why, for example a name that two servers have. Also logged."""
        return list(self._host.catalog.warnings) if self._host is not None else []

    @property
    def servers(self) -> list[str]:
        """Names of the connected servers."""
        states = self._host.status() if self._host is not None else ()
        return [status.name for status in states if status.state == "connected"]

    def call_tool(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> McpCallResult:
        """Call a tool. An unknown tool returns an error result that names the nearest ones.

        Raises:
            MooringError: the tool returned no result (timeout, lost connection …).
        """
        if self._host is None:
            return _error(tool_name, f"Unknown MCP tool {tool_name!r}: no server is connected.")
        result = self._host.call(tool_name, arguments, timeout=timeout)
        if isinstance(result.error, UnknownTool):
            return _error(tool_name, f"Unknown MCP tool: {result.error}")
        if result.error is not None:
            raise result.error
        return _call_result(result)

    def close_all(self) -> None:
        """Close every server. Idempotent; never raises."""
        host, self._host = self._host, None
        self.failures = {}
        if host is not None:
            try:
                host.close()
            except Exception:
                log.exception("error while closing the servers")


def as_config(servers: Servers) -> HostConfig:
    """Convert to a `HostConfig`.

    Raises:
        ConfigError: no entry is usable.
    """
    if isinstance(servers, HostConfig):
        return servers
    if not isinstance(servers, Mapping):
        return HostConfig.of(servers)
    document = cast("Mapping[str, Any]", servers)
    if "mcp" in document or "mcpServers" in document:
        return from_document(document)
    inner = document.get("servers")
    is_section = isinstance(inner, Mapping | list) or "enabled" in document
    return from_document({"mcp": document if is_section else {"servers": document}})


def _call_result(result: Result) -> McpCallResult:
    return McpCallResult(
        server_name=result.server,
        tool_name=result.tool,
        content=result.content,
        is_error=result.is_error,
        raw_text=result.text,
    )


def _error(tool: str, text: str) -> McpCallResult:
    content: list[Mapping[str, Any]] = [{"type": "text", "text": text}]
    return McpCallResult(server_name="", tool_name=tool, content=content, is_error=True, raw_text=text)


Tools = Catalog | Mapping[str, Tool] | Iterable[McpToolInfo | Tool]


def mcp_tools_section(tools: Tools) -> str:
    """Return `MCP_TOOLS:` and a JSON array of name, description, server and input schema.

    Args:
        tools: `manager.tools`, `host.catalog`, `host.catalog.tools`, `host.tools()`, or some of their tools.
    """
    listed: Any = tools.tools if isinstance(tools, Catalog) else tools
    if isinstance(listed, Mapping):
        listed = cast("Mapping[str, Tool]", listed).values()
    return prompt_section(map(_tool, cast("Iterable[McpToolInfo | Tool]", listed)))


def _tool(tool: McpToolInfo | Tool) -> Tool:
    if isinstance(tool, Tool):
        return tool
    return Tool(
        name=tool.name,
        server=tool.server_name,
        remote_name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
    )


ACTION = "mcp_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome of one action, for the agent."""

    status: Literal["completed", "failed"]
    output: str
    result: McpCallResult | None = None
    """The result of the tool; None if it returned none."""
    artifact: Path | None = None
    """The file with the result; None without `artifacts`."""


class McpRun:
    """The servers of one run: connected at the start of the block and closed at its end.

        with McpRun(config, bus=bus, artifacts=folder) as run:
            prompt += run.prompt
            step = run.execute(action)

    The run continues without MCP if no server can be connected. Events: `mcp_servers_connected`,
    `mcp_connection_failed`, `mcp_tool_call_started`, `…_completed`, `…_failed`, `mcp_servers_disconnected`.
    """

    def __init__(
        self,
        servers: Servers,
        *,
        bus: EventBus | None = None,
        artifacts: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        make_manager: Callable[[], McpManager] = McpManager,
    ) -> None:
        self._servers = servers
        self._bus = bus or EventBus()
        self._artifacts = Path(artifacts) if artifacts is not None else None
        self._timeout = timeout
        self._make_manager = make_manager
        self._numbers = count(1)
        self.manager: McpManager | None = None
        """None if no server is configured or connected."""
        self.tools: list[McpToolInfo] = []

    def __enter__(self) -> Self:
        manager = None
        try:
            config = as_config(self._servers)
            if not config.active:
                return self
            manager = self._make_manager()
            self.tools = manager.connect_all(config)
        except Exception as problem:
            log.warning("the run continues without MCP: %s", problem)
            self._bus.emit("mcp_connection_failed", error=str(problem))
            return self
        self.manager = manager
        for server, error in manager.failures.items():
            self._bus.emit("mcp_connection_failed", server=server, error=error)
        names = [tool.name for tool in self.tools]
        self._bus.emit("mcp_servers_connected", servers=manager.servers, tools=names)
        return self

    def __exit__(self, *_: object) -> None:
        manager, self.manager = self.manager, None
        if manager is not None:
            try:
                manager.close_all()
            except Exception:
                log.exception("error while closing the servers")
            self._bus.emit("mcp_servers_disconnected")

    @property
    def prompt(self) -> str:
        """The `MCP_TOOLS` section; empty if there are no tools."""
        return mcp_tools_section(self.tools) if self.tools else ""

    def execute(self, action: Mapping[str, Any]) -> StepResult:
        """Run one `mcp_call` action. Never raises: an error is a failed step."""
        tool, arguments = _parse(action)
        if not tool:
            return self._failed("", "the action is not an `mcp_call` with `params.tool_name`")
        if self.manager is None:
            return self._failed(tool, "no MCP server is connected")
        self._bus.emit("mcp_tool_call_started", tool=tool)
        try:
            result = self.manager.call_tool(tool, arguments, self._timeout)
            artifact = self._save(result)
        except Exception as problem:
            return self._failed(tool, str(problem))
        status: Literal["completed", "failed"] = "failed" if result.is_error else "completed"
        self._bus.emit("mcp_tool_call_completed", tool=tool, server=result.server_name, status=status)
        return StepResult(status=status, output=result.raw_text, result=result, artifact=artifact)

    def _failed(self, tool: str, error: str) -> StepResult:
        self._bus.emit("mcp_tool_call_failed", tool=tool, error=error)
        return StepResult(status="failed", output=error)

    def _save(self, result: McpCallResult) -> Path | None:
        """Write the result to a numbered file: a tool's name may not be a valid file name."""
        if self._artifacts is None:
            return None
        self._artifacts.mkdir(parents=True, exist_ok=True)
        path = self._artifacts / f"mcp_call_{next(self._numbers):04d}.json"
        path.write_text(json.dumps(asdict(result), ensure_ascii=False, indent=1), encoding="utf-8")
        return path


def _parse(action: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """The tool of an action and its arguments; an empty name if it is not an `mcp_call`."""
    params: Any = action.get("params")
    if action.get("type") != ACTION or not isinstance(params, Mapping):
        return "", None
    fields = cast("Mapping[str, Any]", params)
    tool = fields.get("tool_name")
    return tool if isinstance(tool, str) else "", fields.get("arguments")
