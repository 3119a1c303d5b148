"""The official SDK as it is: a `ClientSession` over its own transport for each server. The reference."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.clients import Clients, Server, together

LABEL = "mcp (raw SDK)"
PACKAGES = ("mcp", "httpx2")
REQUIRES = ()
IMPORT = "from mcp import ClientSession, StdioServerParameters, stdio_client"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from mcp import ClientSession, StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def one(server: Server) -> AsyncGenerator[tuple[Any, int]]:
        async with AsyncExitStack() as stack:
            if "url" in server:
                transport = streamable_http_client(server["url"])
            else:
                transport = stdio_client(
                    StdioServerParameters(command=server["command"], args=server["args"])
                )
            read, write, *_ = await stack.enter_async_context(transport)
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            yield session, len((await session.list_tools()).tools)

    async with together(one, servers) as opened:

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await opened[server][0].call_tool(tool, arguments)).content[0].text

        yield Clients(tools=sum(count for _, count in opened.values()), call=call)
