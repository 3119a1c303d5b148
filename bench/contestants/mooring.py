"""mooring: one `Host` for all servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.clients import Clients, Server

LABEL = "mooring"
PACKAGES = ("mooring", "aiohttp")
REQUIRES = ()
IMPORT = "from mooring import Host, ServerConfig"


@asynccontextmanager
async def connect(servers: Sequence[Server]) -> AsyncGenerator[Clients]:
    from mooring import Host, ServerConfig

    async with Host([ServerConfig(**server) for server in servers]) as host:
        await host.ready()
        names = {(tool.server, tool.remote_name): name for name, tool in host.catalog.tools.items()}

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> str:
            return (await host.call(names[server, tool], arguments, check=True, budget=0)).text

        yield Clients(tools=len(names), call=call)


async def searcher(servers: Sequence[tuple[str, list[dict[str, Any]]]]) -> Callable[[str], Awaitable[object]]:
    from mooring.core.catalog import merge
    from mooring.core.search import Index
    from mooring.core.types import ServerInfo, Snapshot
    from mooring.transport import wire

    catalog = merge(
        Snapshot(
            server=f"s{number}",
            info=ServerInfo(description=about),
            tools=tuple(wire.tool(f"s{number}", tool) for tool in tools),
        )
        for number, (about, tools) in enumerate(servers)
    )
    index = Index.build(catalog.tools, catalog.groups)

    async def ask(query: str) -> object:
        return index.search(query, 5)

    return ask
