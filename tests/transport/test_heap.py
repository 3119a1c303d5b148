"""Large answers do not fetch their memory from the system anew each time."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# In a process of its own: what it is about belongs to a process, and earlier tests have had large answers.
CODE = """
import asyncio, resource
from bench.fixtures.start import http_servers
from mooring import Host, ServerConfig

SIZE, CALLS = 1_000_000, 20

def fetched():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

async def main(server):
    async with Host([ServerConfig(**server)], lock=False) as host:
        await host.ready(20)
        async def calls():
            for _ in range(CALLS):
                await host.call(name, {}, check=True, budget=0)
        name = next(name for name, tool in host.catalog.tools.items() if tool.remote_name == "payload")
        await calls()
        before = fetched()
        await calls()
        print((fetched() - before) // CALLS)

with http_servers(1, tools=10, payload=SIZE) as servers:
    asyncio.run(main(servers[0]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's heap")
def test_the_second_large_answer_uses_the_memory_of_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    a_megabyte = 1_000_000 // 4_096
    assert int(done.stdout) < a_megabyte, "pages fetched from the system for each answer of a megabyte"
