"""A thousand sessions, and clients without, while servers are killed and the configuration is reloaded.

    python -m tests.soak.gateway --seconds 300 [--clients 1500]

The gateway runs in a process of its own. Every call carries a canary that no other call has. The books must
show no wrong answer, none that went to another client, and no leak: of memory, files, tasks or children.
Calls that fail are counted by their reasons, since a server that is killed fails what it was doing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.lab.caller import Caller
from tests.lab.stdio import COMMAND

SERVERS = 6
RATE = 250.0
"""Calls per second, of all clients together."""
SLOW = 0.1
"""Part of the calls that take their time, so that some are under way whenever a server is killed."""
KILL_EVERY, RELOAD_EVERY, LOOK_EVERY = 2.0, 5.0, 10.0
WARM = 1 / 3
"""Of the time: then everything that every session needs is there, and memory must not grow any more."""
GROWTH = 24 * 2**20


class Gateway:
    """The process that serves."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self.url = ""

    @classmethod
    async def start(cls, file: Path) -> Gateway:
        words = [sys.executable, "-m", "tests.soak.served", str(file)]
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        gateway = cls(await asyncio.create_subprocess_exec(*words, **pipes))
        gateway.url = (await gateway._line())["url"]
        return gateway

    async def report(self) -> dict[str, Any]:
        async with self._turn:
            self.tell("report")
            return await self._line()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    def kill_one(self) -> None:
        """End one of its servers, without a warning."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        random.shuffle(children)
        for child in children:
            with suppress(psutil.NoSuchProcess):  # a reload may have ended it just now
                if "server.py" in " ".join(child.cmdline()):
                    child.kill()
                    return

    async def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(await self._process.stdout.readline())


class Soak:
    def __init__(self, file: Path, clients: int, seconds: float) -> None:
        self.file, self.clients, self.seconds = file, clients, seconds
        self.times: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.looks: list[tuple[float, dict[str, Any]]] = []
        self.good = self.wrong = self.kills = self.reloads = 0
        self._stop = asyncio.Event()

    def write(self, turn: int) -> None:
        """A configuration in which one server differs from turn to turn."""
        script = json.dumps({"tools": ["echo", "sleep"]})
        servers = {
            f"s{n}": {
                "command": COMMAND[0],
                "args": [*COMMAND[1:], script],
                "env": {"TURN": str(turn if n == turn % SERVERS else 0)},
            }
            for n in range(SERVERS)
        }
        # All clients come from one address, and count as one.
        gateway = {"concurrency": 2 * self.clients}
        self.file.write_text(json.dumps({"mcpServers": servers, "gateway": gateway}))

    async def run(self) -> bool:
        self.write(0)
        gateway = await Gateway.start(self.file)
        try:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as http:
                return await self._under(gateway, http)
        finally:
            assert await gateway.end() == 0

    async def _under(self, gateway: Gateway, http: aiohttp.ClientSession) -> bool:
        fresh = await gateway.report()
        callers = [Caller(http, gateway.url, modern=n % 3 == 2) for n in range(self.clients)]
        for start in range(0, len(callers), 50):
            await asyncio.gather(*(caller.begin() for caller in callers[start : start + 50]))
        began = time.monotonic()
        trouble = [
            asyncio.create_task(work)
            for work in (self._kill(gateway), self._reload(gateway), self._look(gateway, began))
        ]
        working = [asyncio.create_task(self._work(n, caller)) for n, caller in enumerate(callers)]
        await asyncio.sleep(self.seconds)
        self._stop.set()
        took = time.monotonic() - began
        await asyncio.gather(*working)
        for task in trouble:
            assert not task.done(), task.exception()
            task.cancel()
        sessions = (await gateway.report())["sessions"]
        for caller in callers:
            if caller.session:
                async with http.delete(gateway.url, headers={"Mcp-Session-Id": caller.session}):
                    pass
        await http.close()
        return self._told(took, sessions, fresh, await self._settled(gateway, fresh))

    async def _settled(self, gateway: Gateway, fresh: dict[str, Any]) -> dict[str, Any]:
        """What is left when nobody is there any more: closed connections take a moment to be gone."""
        left: dict[str, Any] = {}
        for _ in range(100):
            left = await gateway.report()
            if all(left[what] <= fresh[what] for what in ("files", "tasks", "children")):
                break
            await asyncio.sleep(0.1)
        return left

    async def _work(self, number: int, caller: Caller) -> None:
        chance = random.Random(number)
        while not self._stop.is_set():
            await asyncio.sleep(2 * chance.random() * self.clients / RATE)
            canary = f"{number}-{secrets.token_hex(8)}"
            started = time.monotonic()
            try:
                tool = "sleep" if chance.random() < SLOW else "echo"
                given = {"text": canary, **({"seconds": 0.3} if tool == "sleep" else {})}
                reply = await caller.call(f"mcp_s{chance.randrange(SERVERS)}_{tool}", given)
                if reply.status != 200 or "error" in reply.last or reply.result.get("isError"):
                    self.reasons[_reason(reply.last)] += 1
                elif reply.text == canary:
                    self.good += 1
                else:
                    self.wrong += 1
            except (aiohttp.ClientError, TimeoutError) as problem:
                self.reasons[f"cut: {type(problem).__name__}"] += 1
            self.times.append(time.monotonic() - started)

    async def _kill(self, gateway: Gateway) -> None:
        while True:
            await asyncio.sleep(KILL_EVERY)
            gateway.kill_one()
            self.kills += 1

    async def _reload(self, gateway: Gateway) -> None:
        for turn in range(1, 10**9):
            await asyncio.sleep(RELOAD_EVERY)
            self.write(turn)
            gateway.tell("reload")
            self.reloads += 1

    async def _look(self, gateway: Gateway, began: float) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.looks.append((time.monotonic() - began, await gateway.report()))

    def _told(self, took: float, sessions: int, fresh: dict[str, Any], left: dict[str, Any]) -> bool:
        times, calls, failed = sorted(self.times), len(self.times), sum(self.reasons.values())
        warm = [look["memory"] for at, look in self.looks if at >= self.seconds * WARM]
        growth = warm[-1] - warm[0] if warm else 0
        print(f"{self.clients} clients ({sessions} sessions), {took:.0f} s")
        print(f"{calls} calls ({calls / took:.0f}/s): {self.good} good, {self.wrong} WRONG, {failed} failed")
        print(f"failed: {100 * failed / calls:.2f} %, by reason:")
        for reason, count in self.reasons.most_common(12):
            print(f"  {count:6}  {reason}")
        print(f"{self.kills} kills, {self.reloads} reloads")
        print(f"p50 {times[calls // 2] * 1e3:.1f} ms, p99 {times[calls * 99 // 100] * 1e3:.1f} ms")
        print("memory (MiB):", *(f"{look['memory'] / 2**20:.0f}" for _, look in self.looks))
        print(f"after warming up: {growth / 2**20:+.1f} MiB")
        counted = ("files", "tasks", "children", "sessions", "under_way")
        print("before:", *(f"{fresh[what]} {what}" for what in counted))
        print("after: ", *(f"{left[what]} {what}" for what in counted))
        clean = all(left[what] <= fresh[what] for what in counted)
        return not self.wrong and clean and growth < GROWTH and failed < calls * 0.1


def _reason(message: dict[str, Any]) -> str:
    error: Any = message.get("error")
    if isinstance(error, str):
        return error
    said = error["message"] if error else message["result"]["content"][0]["text"]
    return re.sub(
        r"\b(mcp_)?s\d+(_echo|_sleep)?\b", "S", re.sub(r"\d+(\.\d+)? s\b", "N s", said.split("\n")[0])
    )[:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=1500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORING_HOME"] = folder
        good = asyncio.run(Soak(Path(folder, "mcp.json"), args.clients, args.seconds).run())
    print("every promise held" if good else "A PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
