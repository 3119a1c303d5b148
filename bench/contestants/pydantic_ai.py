"""pydantic-ai: an `MCPToolset` for each server, entered as an agent does it: one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "pydantic-ai"
PACKAGES = ("pydantic-ai-slim", "fastmcp-slim", "mcp")
REQUIRES = ("pydantic-ai-slim[mcp]==2.66.0",)
IMPORT = "from pydantic_ai.mcp import MCPToolset"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.toolsets import CombinedToolset

    def toolset(server: Server) -> Any:
        if "url" in server:
            return MCPToolset(StreamableHttpTransport(server["url"]))
        return MCPToolset(StdioTransport(server["command"], server["args"], keep_alive=False))

    toolsets = {server["name"]: toolset(server) for server in servers}
    async with CombinedToolset(list(toolsets.values())):
        listings = await asyncio.gather(*(toolset.list_tools() for toolset in toolsets.values()))

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return await toolsets[server].direct_call_tool(tool, arguments)

        yield Clients(tools=sum(map(len, listings)), call=call)
