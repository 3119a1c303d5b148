"""Ten thousand idle connections at one gateway: are other clients served, and what does each connection cost?

    python -m tests.soak.crowd [--idle 10000]

The gateway is `mooring serve` in a process of its own; the connections are held by further processes, each
from a few loopback addresses, since neither file descriptors nor ports of one would do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from mooring.gateway.http_server import FIRST_REQUEST_TIMEOUT
from tests.lab.caller import Caller
from tests.lab.stdio import COMMAND

HOLDERS = 4
PATIENCE = 5.0
"""Seconds within which a real client must be answered."""


async def hold(port: int, count: int, first_address: int) -> None:
    """Open connections that never say anything; print how many are open, then how many were ended."""
    at_once = asyncio.Semaphore(64)

    async def one(number: int) -> asyncio.StreamReader:
        source = (f"127.0.{first_address}.{1 + number % 8}", 0)
        async with at_once:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
        writers.append(writer)
        return reader

    writers: list[asyncio.StreamWriter] = []
    readers = await asyncio.gather(*(one(number) for number in range(count)))
    print(len(readers), flush=True)
    ended = await asyncio.gather(*(_end(reader) for reader in readers))
    print(sum(ended), flush=True)


async def _end(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(FIRST_REQUEST_TIMEOUT * 4):
            return not await reader.read(1)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


class Crowd:
    """The processes that hold connections."""

    def __init__(self, port: int, count: int) -> None:
        words = [sys.executable, "-m", "tests.soak.crowd", "--hold", str(port)]
        self._holders = [
            subprocess.Popen(
                [*words, "--idle", str(count // HOLDERS), "--address", str(n)], stdout=subprocess.PIPE
            )
            for n in range(1, HOLDERS + 1)
        ]

    async def told(self) -> int:
        """The sum of what each says next."""

        def line(holder: subprocess.Popen[bytes]) -> int:
            assert holder.stdout is not None
            return int(holder.stdout.readline())

        return sum(await asyncio.gather(*(asyncio.to_thread(line, holder) for holder in self._holders)))

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.communicate()


async def check(idle: int, gateway: subprocess.Popen[bytes]) -> bool:
    assert gateway.stdout is not None
    url = json.loads(await asyncio.to_thread(gateway.stdout.readline))["url"]
    port, process = int(url.split(":")[2].split("/")[0]), psutil.Process(gateway.pid)
    async with aiohttp.ClientSession() as http:
        before, alone = process.memory_info().rss, await answered(http, url)
        started = time.monotonic()
        crowd = Crowd(port, idle)
        try:
            opened = await crowd.told()
            took, memory = time.monotonic() - started, process.memory_info().rss - before
            open_now = await connections(http, port)
            times = [await answered(http, url) for _ in range(50)]
            ended = await crowd.told()
        finally:
            crowd.close()
        left = await connections(http, port)
    print(f"{opened} idle connections opened in {took:.1f} s, {open_now} open at the gateway")
    print(f"{memory / max(open_now, 1) / 1024:.1f} KiB of memory each")
    among = f"at most {max(times) * 1e3:.0f} ms among them"
    print(f"a call on a new connection: {alone * 1e3:.0f} ms alone, {among}")
    print(f"{ended} were closed by the gateway after {FIRST_REQUEST_TIMEOUT:g} s; {left} left")
    return ended == opened == idle and open_now > idle * 0.95 and max(times) < PATIENCE and left < 5


async def answered(http: aiohttp.ClientSession, url: str) -> float:
    """Seconds until a call of a client that has just come is answered."""
    started = time.monotonic()
    reply = await Caller(http, url, modern=True, headers={"Connection": "close"}).call(
        "mcp_lab_echo", {"text": "hi"}
    )
    assert reply.text == "hi"
    return time.monotonic() - started


async def connections(http: aiohttp.ClientSession, port: int) -> int:
    async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    line = next(line for line in text.splitlines() if line.startswith("mooring_gateway_connections "))
    return int(float(line.split()[1]))


def run(idle: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mcp.json")
        lab = {"command": COMMAND[0], "args": [*COMMAND[1:], "{}"]}
        config.write_text(json.dumps({"mcpServers": {"lab": lab}}))
        serve = ["--config", str(config), "--no-lock", "serve", "--http", "127.0.0.1:0", "--json"]
        with subprocess.Popen([sys.executable, "-m", "mooring", *serve], stdout=subprocess.PIPE) as gateway:
            try:
                return asyncio.run(check(idle, gateway))
            finally:
                gateway.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--hold", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--address", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hold:
        asyncio.run(hold(args.hold, args.idle, args.address))
        return 0
    good = run(args.idle)
    print("every promise held" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
