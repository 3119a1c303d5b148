"""openai-agents: `MCPServerManager` with parallel connecting switched on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "openai-agents"
PACKAGES = ("openai-agents", "mcp")
REQUIRES = ("openai-agents==0.24.0",)
IMPORT = "from agents.mcp import MCPServerManager, MCPServerStdio"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp

    def client(server: Server) -> Any:
        if "url" in server:
            return MCPServerStreamableHttp({"url": server["url"]}, name=server["name"])
        return MCPServerStdio({"command": server["command"], "args": server["args"]}, name=server["name"])

    clients = {server["name"]: client(server) for server in servers}
    async with MCPServerManager(clients.values(), connect_in_parallel=True, strict=True):
        listings = await asyncio.gather(*(client.list_tools() for client in clients.values()))

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await clients[server].call_tool(tool, arguments)).content[0].text

        yield Clients(tools=sum(map(len, listings)), call=call)
