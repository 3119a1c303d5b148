"""mooring's own side of the scenario `instant`: a locked project, opened in a new process.

python -m bench.instant prepare FOLDER < servers.json   connect once and write mooring.lock
python -m bench.instant open FOLDER                     list and search, nothing started
"""

from __future__ import annotations

import sys
import time

STARTED = time.perf_counter()


def prepare(folder: str) -> None:
    """A configuration of the servers on standard input, all lazy, and its lock."""
    import asyncio
    import json
    from pathlib import Path

    from mooring import Host
    from mooring.config.plan import fingerprint
    from mooring.lock.cache import save_lock
    from mooring.lock.compare import build

    file = Path(folder) / "mooring.json"
    entries = {server.pop("name"): {**server, "start": "lazy"} for server in json.load(sys.stdin)}
    file.write_text(json.dumps({"mcpServers": entries}))

    async def lock() -> None:
        async with Host.from_config(file, lock=False) as host:
            await host.refresh()
            snapshots = [host.provider(server.name).snapshot for server in host.config.servers]
            prints = {server.name: fingerprint(server) for server in host.config.servers}
            save_lock(file.with_name("mooring.lock"), build(snapshots, prints))

    asyncio.run(lock())


def open_locked(folder: str) -> None:
    """Prints the number of tools, whether search finds one, and the seconds since the first line."""
    import asyncio

    from mooring import Host

    async def look() -> None:
        async with Host.from_config(f"{folder}/mooring.json") as host:
            tools, found = len(host.catalog.tools), bool(host.search("echo text"))
            print(tools, found, time.perf_counter() - STARTED, flush=True)

    asyncio.run(look())


if __name__ == "__main__":
    {"prepare": prepare, "open": open_locked}[sys.argv[1]](sys.argv[2])
