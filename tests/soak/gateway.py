"""A thousand sessions, and clients without, while servers are killed and the configuration is reloaded.

    python -m tests.soak.gateway --seconds 300 [--clients 1500] [--idle 10000]

Every call carries a canary that no other call has. The books must show no wrong answer, none that went to
another client, and no leak; failed calls are counted, since killed servers fail calls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from mooring import Host
from mooring.gateway.serve import Serving, serve_http
from mooring.net.passage import Relay
from tests.lab.caller import Caller
from tests.lab.stdio import COMMAND

SERVERS = 6
PAUSE = 0.5
KILL_EVERY, RELOAD_EVERY = 2.0, 5.0
GROWTH = 40 * 2**20


class Soak:
    def __init__(self, file: Path, clients: int, seconds: float, idle: int) -> None:
        self.file, self.clients, self.seconds, self.idle = file, clients, seconds, idle
        self.times: list[float] = []
        self.good = self.failed = self.wrong = self.kills = self.reloads = self.refused = 0
        self._stop = asyncio.Event()

    def write(self, turn: int) -> None:
        """A configuration in which one server differs from turn to turn."""
        script = json.dumps({"tools": ["echo", "pid"]})
        servers = {
            f"s{n}": {
                "command": COMMAND[0],
                "args": [*COMMAND[1:], script],
                "env": {"TURN": str(turn if n == turn % SERVERS else 0)},
            }
            for n in range(SERVERS)
        }
        self.file.write_text(json.dumps({"mcpServers": servers}))

    async def run(self) -> bool:
        self.write(0)
        async with Host.from_config(self.file, lock=False, relay=Relay()) as host:
            await host.ready(30)
            async with serve_http(host) as serving:
                return await self._under(host, serving)

    async def _under(self, host: Host, serving: Serving) -> bool:
        connector = aiohttp.TCPConnector(limit=256)
        async with aiohttp.ClientSession(connector=connector) as http:
            callers = [Caller(http, serving.url, modern=n % 3 == 2) for n in range(self.clients)]
            for start in range(0, len(callers), 50):
                await asyncio.gather(*(caller.begin() for caller in callers[start : start + 50]))
            idle = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(self.idle)]
            began = time.monotonic()
            trouble = [asyncio.create_task(self._kill()), asyncio.create_task(self._reload(host))]
            working = [asyncio.create_task(self._work(n, caller)) for n, caller in enumerate(callers)]
            await asyncio.sleep(self.seconds / 2)
            gc.collect()
            before = memory()  # what every session needs is there by now
            await asyncio.sleep(self.seconds / 2)
            self._stop.set()
            for task in trouble:
                task.cancel()
            await asyncio.gather(*working, *trouble, return_exceptions=True)
            for _, writer in idle:
                writer.close()
            sessions = len(serving.gateway.registry)
            for caller in callers:
                if caller.session:
                    headers = {"Mcp-Session-Id": caller.session}
                    async with http.delete(serving.url, headers=headers):
                        pass
            gc.collect()
            left, under_way = len(serving.gateway.registry), serving.gateway.under_way
            return self._report(time.monotonic() - began, sessions, left, under_way, memory() - before)

    async def _work(self, number: int, caller: Caller) -> None:
        chance = random.Random(number)
        while not self._stop.is_set():
            canary = f"{number}-{secrets.token_hex(8)}"
            started = time.monotonic()
            try:
                reply = await caller.call(f"mcp_s{chance.randrange(SERVERS)}_echo", {"text": canary})
                if reply.status != 200 or "error" in reply.last or reply.result.get("isError"):
                    self.failed += 1
                elif reply.text == canary:
                    self.good += 1
                else:
                    self.wrong += 1
            except (aiohttp.ClientError, TimeoutError):
                self.refused += 1
            self.times.append(time.monotonic() - started)
            await asyncio.sleep(chance.random() * PAUSE * self.clients / 250)

    async def _kill(self) -> None:
        me = psutil.Process()
        while True:
            await asyncio.sleep(KILL_EVERY)
            children = [child for child in me.children() if "server.py" in " ".join(child.cmdline())]
            if children:
                os.kill(random.choice(children).pid, signal.SIGKILL)
                self.kills += 1

    async def _reload(self, host: Host) -> None:
        for turn in range(1, 10**9):
            await asyncio.sleep(RELOAD_EVERY)
            self.write(turn)
            await host.reload()
            self.reloads += 1

    def _report(self, seconds: float, sessions: int, left: int, under_way: int, growth: int) -> bool:
        times = sorted(self.times)
        calls = len(times)
        print(f"{self.clients} clients ({sessions} sessions), {self.idle} idle connections, {seconds:.0f} s")
        print(
            f"{calls} calls ({calls / seconds:.0f}/s): {self.good} good, {self.failed} failed with a reason,"
        )
        print(f"{self.refused} cut, {self.wrong} WRONG; {self.kills} kills, {self.reloads} reloads")
        print(f"p50 {times[calls // 2] * 1e3:.1f} ms, p99 {times[calls * 99 // 100] * 1e3:.1f} ms")
        print(f"left: {left} sessions, {under_way} under way; memory {growth / 2**20:+.1f} MiB")
        lost = self.failed + self.refused
        return not self.wrong and not left and not under_way and growth < GROWTH and lost < calls * 0.1


def memory() -> int:
    return psutil.Process().memory_info().rss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=1500)
    parser.add_argument("--idle", type=int, default=0)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    idle = min(args.idle, max(0, (most - 2000) // 2))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORING_HOME"] = folder
        good = asyncio.run(Soak(Path(folder, "mcp.json"), args.clients, args.seconds, idle).run())
    print("every promise held" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
