"""langchain-mcp-adapters: a session held open for each server and its tools as LangChain tools.

Its default, `get_tools()`, opens a new session (on stdio: a new process) for each call; that is not measured.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server, together

LABEL = "langchain-mcp-adapters"
PACKAGES = ("langchain-mcp-adapters", "mcp")
REQUIRES = ("langchain-mcp-adapters==0.3.2",)
IMPORT = "from langchain_mcp_adapters.client import MultiServerMCPClient"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    client = MultiServerMCPClient({server["name"]: _connection(server) for server in servers})

    @asynccontextmanager
    async def one(server: Server) -> AsyncGenerator[dict[str, Any]]:
        async with client.session(server["name"]) as session:
            yield {tool.name: tool for tool in await load_mcp_tools(session)}

    async with together(one, servers) as opened:

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await opened[server][tool].ainvoke(arguments))[0]["text"]

        yield Clients(tools=sum(map(len, opened.values())), call=call)


def _connection(server: Server) -> Any:
    if "url" in server:
        return {"transport": "streamable_http", "url": server["url"]}
    return {"transport": "stdio", "command": server["command"], "args": server["args"]}
