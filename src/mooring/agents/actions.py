"""`mcp_call` actions, and the servers of one agent run.

{"type": "mcp_call", "params": {"tool_name": "read_file", "arguments": {"path": "/tmp/x"}}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self, cast

from mooring.agents.manager import (
    EventBus,
    McpCallResult,
    McpManager,
    McpToolInfo,
    Servers,
    as_config,
    mcp_tools_section,
)
from mooring.config.logs import logger

log = logger("mooring.agents")

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
