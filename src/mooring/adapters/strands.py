# pyright: basic
"""Strands Agents.

Agent(model=model, tools=strands.tools(session))       # those of this moment
Agent(model=model, hooks=[strands.live(session)])      # asks for them before each turn
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces

with extra("strands"):
    from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
    from strands.types._events import ToolResultEvent
    from strands.types.tools import AgentTool, ToolSpec, ToolUse

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[AgentTool]:
    """The tools that the model sees now, for `Agent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_StrandsTool(bridge, offer) for offer in bridge.offers()]


def live(source: AnySource) -> HookProvider:
    """The tools of each moment, for `Agent(hooks=[…])`."""
    return _Hook(Bridge(source, "plain", unlisted=True))


class _StrandsTool(AgentTool):
    def __init__(self, bridge: Bridge, offer: CompiledTool) -> None:
        super().__init__()
        self._bridge = bridge
        self._offer = offer

    @property
    def tool_name(self) -> str:
        return self._offer.name

    @property
    def tool_type(self) -> str:
        return "python"

    @property
    def tool_spec(self) -> ToolSpec:
        return {
            "name": self._offer.name,
            "description": self._offer.description(),
            "inputSchema": {"json": self._offer.schema},
        }

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any
    ) -> AsyncGenerator[Any, None]:
        result = await self._bridge.call(self._offer.name, tool_use["input"], self._offer.compiled)
        content: list[Any] = [
            {"image": {"format": piece.mime_type.removeprefix("image/"), "source": {"bytes": piece.raw}}}
            if piece.mime_type
            else {"text": piece.text}
            for piece in pieces(result)
        ]
        status = "error" if result.is_error else "success"
        yield ToolResultEvent({"toolUseId": tool_use["toolUseId"], "status": status, "content": content})


class _Hook(HookProvider):
    """Keeps an agent's registry equal to what the model is to see; tools of others stay."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeModelCallEvent, self._update)
        registry.add_callback(BeforeToolCallEvent, self._find)

    def _find(self, event: BeforeToolCallEvent) -> None:
        """Run a tool of the catalog that is not listed."""
        if event.selected_tool is None and (offer := self._bridge.named(event.tool_use["name"])) is not None:
            event.selected_tool = _StrandsTool(self._bridge, offer)

    async def _update(self, event: BeforeModelCallEvent) -> None:
        known = event.agent.tool_registry.registry
        offers = {offer.name: offer for offer in await self._bridge.fresh_offers()}
        for name, tool in list(known.items()):
            if isinstance(tool, _StrandsTool) and tool._bridge is self._bridge and name not in offers:
                del known[name]
        for name, offer in offers.items():
            if name not in known or isinstance(known[name], _StrandsTool):
                known[name] = _StrandsTool(self._bridge, offer)
