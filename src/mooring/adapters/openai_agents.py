# pyright: basic
"""OpenAI's Agents SDK.

Agent(name=…, mcp_servers=[openai_agents.live(session)])   # asks for the tools before each turn
Agent(name=…, tools=openai_agents.tools(session))          # those of this moment
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, ContentPart, extra, parsed, pieces
from mooring.core.types import Result

with extra("openai_agents"):
    from agents import FunctionTool, ToolOutputImage, ToolOutputText, ToolSearchTool
    from agents.mcp import MCPServer
    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        ImageContent,
        ListPromptsResult,
        TextContent,
    )
    from mcp.types import Tool as McpTool

__all__ = ["live", "tools"]

_DESCRIPTION = 1_024


def tools(source: AnySource, *, deferred: bool = False) -> list[Any]:
    """The tools that the model sees now, for `Agent(tools=…)`.

    Args:
        source: A host or a session.
        deferred: All tools of the catalog, where those that the session does not show are found by
            OpenAI's own tool search (Responses models only).
    """
    bridge = Bridge(source, "openai")
    found = [_tool(bridge, offer) for offer in bridge.offers(deferred=deferred)]
    return [*found, ToolSearchTool()] if deferred else found


def live(source: AnySource) -> MCPServer:
    """The tools of each moment, for `Agent(mcp_servers=[…])`. Nothing needs to be connected."""
    return _Server(Bridge(source, "openai"))


def _tool(bridge: Bridge, offer: CompiledTool) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> Any:
        result = await bridge.call(offer.name, parsed(arguments), offer.compiled)
        return [_output(result, piece) for piece in pieces(result)]

    return FunctionTool(
        name=offer.name,
        description=offer.description(_DESCRIPTION),
        params_json_schema=offer.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
        defer_loading=offer.deferred,
    )


def _output(result: Result, piece: ContentPart) -> ToolOutputText | ToolOutputImage:
    """The SDK has no mark for errors that leaves the run going: the text says it."""
    if piece.mime_type:
        return ToolOutputImage(image_url=piece.url)
    return ToolOutputText(text=f"Error: {piece.text}" if result.is_error else piece.text)


class _Server(MCPServer):
    """The host behind the interface that the SDK has for one MCP server."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    @property
    def name(self) -> str:
        return "mooring"

    async def connect(self) -> None:
        """The host connects its servers itself."""

    async def cleanup(self) -> None:
        """The host ends its servers itself."""

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        return [
            McpTool(name=offer.name, description=offer.description(_DESCRIPTION), input_schema=offer.schema)
            for offer in await self._bridge.fresh_offers()
        ]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        result = await self._bridge.call(tool_name, arguments or {})
        return CallToolResult(
            content=[_content(result, piece) for piece in pieces(result)],
            structured_content=result.structured if isinstance(result.structured, dict) else None,
            is_error=result.is_error,
        )

    async def list_prompts(self) -> ListPromptsResult:
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise LookupError(f"there is no prompt {name!r}: prompts are asked for at the host")


def _content(result: Result, piece: ContentPart) -> TextContent | ImageContent:
    if piece.mime_type:
        return ImageContent(type="image", data=piece.data, mime_type=piece.mime_type)
    return TextContent(type="text", text=f"Error: {piece.text}" if result.is_error else piece.text)
