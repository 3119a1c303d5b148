"""A gateway in a process of its own for the soak: it reads commands from standard input, one per line.

    python -m tests.soak.served FILE

`report` prints what the process holds, as one line of JSON; `reload` reads the file again. The first line
says where it serves.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

import psutil

from mooring import Host
from mooring.gateway.serve import Serving, serve_http
from mooring.transport.forwarding import ClientBridge


def report(serving: Serving) -> dict[str, Any]:
    gc.collect()
    me = psutil.Process()
    return {
        "memory": me.memory_info().rss,
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "children": len(me.children(recursive=True)),
        "sessions": len(serving.gateway.registry),
        "under_way": serving.gateway.under_way,
    }


async def serve(file: str) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with Host.from_config(file, lock=False, relay=ClientBridge()) as host:
        await host.ready(30)
        async with serve_http(host) as serving:
            print(json.dumps({"url": serving.url, "port": serving.port}), flush=True)
            async for line in reader:
                if line == b"report\n":
                    print(json.dumps(report(serving)), flush=True)
                elif line == b"reload\n":
                    await host.reload()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
