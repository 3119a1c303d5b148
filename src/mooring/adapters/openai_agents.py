# pyright: basic
"""OpenAI's Agents SDK.

Agent(name=…, mcp_servers=[openai_agents.live(session)])   # lists the tools before each turn
Agent(name=…, tools=openai_agents.tools(session))          # the current tools
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import (
    AnySource,
    Bridge,
    CompiledTool,
    ContentPart,
    extra,
    marked_parts,
    parsed,
)

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
    """Return the tools that the model sees now, for `Agent(tools=…)`.

    Args:
        source: A host or a session.
        deferred: Return all tools of the catalog; those that the session does not show are found by
            OpenAI's own tool search (Responses models only).
    """
    bridge = Bridge(source, "openai")
    found = [_tool(bridge, entry) for entry in bridge.tools(deferred=deferred)]
    return [*found, ToolSearchTool()] if deferred else found


def live(source: AnySource) -> MCPServer:
    """Return the current tools before each turn, for `Agent(mcp_servers=[…])`."""
    return _Server(Bridge(source, "openai"))


def _tool(bridge: Bridge, entry: CompiledTool) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> Any:
        result = await bridge.call(entry.name, parsed(arguments), entry.compiled)
        # Errors are marked in the text: an exception would end the run.
        return [_output(part) for part in marked_parts(result)]

    return FunctionTool(
        name=entry.name,
        description=entry.description(_DESCRIPTION),
        params_json_schema=entry.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
        defer_loading=entry.deferred,
    )


def _output(part: ContentPart) -> ToolOutputText | ToolOutputImage:
    if part.mime_type:
        return ToolOutputImage(image_url=part.url)
    return ToolOutputText(text=part.text)


class _Server(MCPServer):
    """The host as one MCP server of the SDK."""

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
            McpTool(name=entry.name, description=entry.description(_DESCRIPTION), input_schema=entry.schema)
            for entry in await self._bridge.fresh_tools()
        ]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        result = await self._bridge.call(tool_name, arguments or {})
        return CallToolResult(
            content=[_content(part) for part in marked_parts(result)],
            structured_content=result.structured if isinstance(result.structured, dict) else None,
            is_error=result.is_error,
        )

    async def list_prompts(self) -> ListPromptsResult:
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise LookupError(f"unknown prompt {name!r}: use the prompts of the host")


def _content(part: ContentPart) -> TextContent | ImageContent:
    if part.mime_type:
        return ImageContent(type="image", data=part.data, mime_type=part.mime_type)
    return TextContent(type="text", text=part.text)
