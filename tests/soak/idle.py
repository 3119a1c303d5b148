"""The cost of ten connected servers without calls: `python -m tests.soak.idle`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from mooring import Host
from tests.soak.servers import Servers

SECONDS = 10.0
GOAL = 0.005


async def measure(servers: Servers) -> float:
    """Seconds of processor time that the host's process used within `SECONDS`."""
    configs = servers.configs()
    async with Host([*configs[:5], *configs[-8:-3]]) as host:
        await host.ready(30)
        await asyncio.sleep(2)  # subscriptions and streams come up
        assert all(status.state == "connected" for status in host.status())
        before = time.process_time()
        await asyncio.sleep(SECONDS)
        return time.process_time() - before


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:
        used = asyncio.run(measure(servers))
    print(f"10 servers, {SECONDS:g} s of idleness: {1000 * used:.2f} ms of processor time")
    return 0 if used < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
