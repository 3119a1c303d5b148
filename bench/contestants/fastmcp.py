"""fastmcp: `ClientGroup`, one client for each server and no router between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "fastmcp"
PACKAGES = ("fastmcp", "mcp")
REQUIRES = ("fastmcp==4.1.2",)
IMPORT = "from fastmcp.client import Client"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from fastmcp.client.client import Client
    from fastmcp.client.group import ClientGroup
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    def transport(server: Server) -> Any:
        if "url" in server:
            return StreamableHttpTransport(server["url"])
        return StdioTransport(server["command"], server["args"], keep_alive=False)

    group = ClientGroup({server["name"]: Client(transport(server)) for server in servers})
    async with group:
        tools = len(await group.list_tools())

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await group.clients[server].call_tool(tool, arguments)).content[0].text

        yield Clients(tools=tools, call=call)


async def searcher(servers: Sequence[tuple[str, list[dict[str, Any]]]]) -> Callable[[str], Awaitable[object]]:
    """The search step of its BM25 transform, without the server around it."""
    from fastmcp.server.transforms.search.bm25 import BM25SearchTransform
    from fastmcp.tools.base import Tool

    transform = BM25SearchTransform(max_results=5)
    tools = [
        Tool(
            name=f"s{number}_{tool['name']}", description=tool["description"], parameters=tool["inputSchema"]
        )
        for number, (_, listed) in enumerate(servers)
        for tool in listed
    ]

    async def ask(query: str) -> object:
        return await transform._search(tools, query)

    return ask
