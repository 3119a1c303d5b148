"""mooring: one `Host` for all servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
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
            return (await host.call(names[server, tool], arguments, check=True)).text

        yield Clients(tools=len(names), call=call)
