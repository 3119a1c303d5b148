"""mcp-use: `MCPClient.create_all_sessions()` (one after the other), telemetry off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "mcp-use"
PACKAGES = ("mcp-use", "mcp")
REQUIRES = ("mcp-use==1.7.1",)
IMPORT = "from mcp_use import MCPClient"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"
    from mcp_use import MCPClient

    client = MCPClient({"mcpServers": {server["name"]: _entry(server) for server in servers}})
    sessions = await client.create_all_sessions()
    try:
        listings = await asyncio.gather(*(session.list_tools() for session in sessions.values()))

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await sessions[server].call_tool(tool, arguments)).content[0].text

        yield Clients(tools=sum(map(len, listings)), call=call)
    finally:
        await client.close_all_sessions()


def _entry(server: Server) -> dict[str, Any]:
    return {key: value for key, value in server.items() if key != "name"}
