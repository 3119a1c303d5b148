"""strands-agents: an `MCPClient` for each server, started one after the other as an agent does it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "strands"
PACKAGES = ("strands-agents", "mcp")
REQUIRES = ("strands-agents==1.62.0",)
IMPORT = "from strands.tools.mcp import MCPClient"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from mcp import StdioServerParameters, stdio_client
    from strands.tools.mcp import MCPClient

    def client(server: Server) -> Any:
        if "url" in server:
            return MCPClient(url=server["url"])
        return MCPClient(
            lambda: stdio_client(StdioServerParameters(command=server["command"], args=server["args"]))
        )

    with ExitStack() as stack:
        clients = {server["name"]: stack.enter_context(client(server)) for server in servers}
        tools = sum(len(client.list_tools_sync()) for client in clients.values())

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await clients[server].call_tool_async("bench", tool, arguments))["content"][0]["text"]

        yield Clients(tools=tools, call=call)
