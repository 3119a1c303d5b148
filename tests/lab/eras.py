"""Servers that speak both eras and ask their user during a call, on every wire."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from bench.listening import free_port
from mooring import ServerConfig

HERE = Path(__file__).parent / "servers"
DUALS = ("sdk stdio", "sdk http", "sdk sse", "handwritten stdio")


@asynccontextmanager
async def dual_at(
    place: str, *words: str, name: str = "dual", **settings: Any
) -> AsyncIterator[ServerConfig]:
    """The configuration of a server of both eras."""
    kind, wire = place.split()
    script = str(HERE / ("dual.py" if kind == "sdk" else "locking.py"))
    if wire == "stdio":
        yield ServerConfig(name=name, command=sys.executable, args=(script, wire, *words), **settings)
        return
    port = free_port()
    path, transport = ("mcp", "streamable-http") if wire == "http" else ("sse", "sse")
    async with await anyio.open_process([sys.executable, script, wire, str(port)], stdout=None) as process:
        try:
            with anyio.fail_after(30):
                while True:
                    try:
                        async with await anyio.connect_tcp("127.0.0.1", port):
                            break
                    except OSError:
                        await anyio.sleep(0.05)  # no event says that a port is open
            url = f"http://127.0.0.1:{port}/{path}"
            yield ServerConfig(name=name, url=url, transport=transport, **settings)
        finally:
            process.kill()
