# pyright: basic
"""Strands Agents.

Agent(model=model, tools=strands.tools(session))       # the current tools
Agent(model=model, hooks=[strands.live(session)])      # lists them before each turn
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra

with extra("strands"):
    from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
    from strands.types._events import ToolResultEvent
    from strands.types.tools import AgentTool, ToolSpec, ToolUse

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[AgentTool]:
    """Return the tools that the model sees now, for `Agent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_StrandsTool(bridge, entry) for entry in bridge.tools()]


def live(source: AnySource) -> HookProvider:
    """Return the current tools before each turn, for `Agent(hooks=[…])`."""
    return _Hook(Bridge(source, "plain", unlisted=True))


class _StrandsTool(AgentTool):
    def __init__(self, bridge: Bridge, entry: CompiledTool) -> None:
        super().__init__()
        self._bridge = bridge
        self._entry = entry

    @property
    def tool_name(self) -> str:
        return self._entry.name

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def tool_spec(self) -> ToolSpec:
        return {
            "name": self._entry.name,
            "description": self._entry.description(),
            "inputSchema": {"json": self._entry.schema},
        }

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any
    ) -> AsyncGenerator[Any, None]:
        result = await self._bridge.call(self._entry.name, tool_use["input"], self._entry.compiled)
        content: list[Any] = [
            {"image": {"format": part.mime_type.removeprefix("image/"), "source": {"bytes": part.raw}}}
            if part.mime_type
            else {"text": part.text}
            for part in content_parts(result)
        ]
        status = "error" if result.is_error else "success"
        yield ToolResultEvent({"toolUseId": tool_use["toolUseId"], "status": status, "content": content})


class _Hook(HookProvider):
    """Updates an agent's registry to the visible tools; other tools stay."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeModelCallEvent, self._update)
        registry.add_callback(BeforeToolCallEvent, self._find)

    def _find(self, event: BeforeToolCallEvent) -> None:
        """Run an unlisted tool of the catalog."""
        if event.selected_tool is None and (entry := self._bridge.named(event.tool_use["name"])) is not None:
            event.selected_tool = _StrandsTool(self._bridge, entry)

    async def _update(self, event: BeforeModelCallEvent) -> None:
        known = event.agent.tool_registry.registry
        entries = {entry.name: entry for entry in await self._bridge.fresh_tools()}
        for name, tool in list(known.items()):
            if isinstance(tool, _StrandsTool) and tool._bridge is self._bridge and name not in entries:
                del known[name]
        for name, entry in entries.items():
            if name not in known or isinstance(known[name], _StrandsTool):
                known[name] = _StrandsTool(self._bridge, entry)
