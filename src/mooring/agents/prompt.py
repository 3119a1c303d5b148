"""The tools as a section of a prompt, for models that answer with actions instead of tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from mooring.agents.manager import McpToolInfo
from mooring.core.catalog import Catalog
from mooring.core.discovery import prompt_section
from mooring.core.types import Tool

Tools = Catalog | Mapping[str, Tool] | Iterable[McpToolInfo | Tool]


def mcp_tools_section(tools: Tools) -> str:
    """`MCP_TOOLS:` and a JSON array of name, description, server and input schema.

    Args:
        tools: `manager.tools`, `host.catalog`, `host.catalog.tools`, `host.tools()`, or any of their tools.
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
