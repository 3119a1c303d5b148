"""The tools as a section of a prompt, for models that answer with actions instead of tool calls."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.agents.manager import McpToolInfo
from mooring.core.discovery import prompt_section
from mooring.core.types import Tool


def mcp_tools_section(tools: Iterable[McpToolInfo]) -> str:
    """`MCP_TOOLS:` and a JSON array of name, description, server and input schema."""
    return prompt_section(
        Tool(
            name=tool.name,
            server=tool.server_name,
            remote_name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
        )
        for tool in tools
    )
