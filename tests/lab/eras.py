"""Servers that speak both eras and ask their user during a call, on every wire."""

from __future__ import annotations

import atexit
import signal
import subprocess
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


_shared: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
"""Running servers over HTTP and SSE: the import of the SDK is most of the cost of a test that needs one."""


@asynccontextmanager
async def dual_at(
    place: str, *words: str, name: str = "dual", **settings: Any
) -> AsyncIterator[ServerConfig]:
    """The configuration of a server of both eras. Over HTTP and SSE, tests share the process: its list of
    effects is empty at the beginning of each."""
    kind, wire = place.split()
    script = str(HERE / ("dual.py" if kind == "sdk" else "locking.py"))
    if wire == "stdio":
        yield ServerConfig(name=name, command=sys.executable, args=(script, wire, *words), **settings)
        return
    path, transport = ("mcp", "streamable-http") if wire == "http" else ("sse", "sse")
    if place not in _shared:
        _shared[place] = await _started(script, wire)
    process, port = _shared[place]
    process.send_signal(signal.SIGUSR1)  # forget the effects of earlier tests
    yield ServerConfig(name=name, url=f"http://127.0.0.1:{port}/{path}", transport=transport, **settings)


async def _started(script: str, wire: str) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, script, wire, str(port)])  # noqa: ASYNC220 (returns at once)
    atexit.register(process.kill)
    with anyio.fail_after(30):
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    return process, port
            except OSError:
                await anyio.sleep(0.05)  # no event says that a port is open
