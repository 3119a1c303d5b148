"""The long proofs about scripts: `make test-scripts`. Short forms of them run in the suite.

python -m tests.scripts.proofs [corpus] [kills] [exits] [cost] [--count N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from statistics import median
from typing import Any

from mooring.core.events import ScriptCalled
from mooring.host import runtime_of
from tests.scripts.programs import HARMLESS, HOSTILE
from tests.scripts.shop import made, shop, shop_host

LAG = 0.050
"""Seconds that the event loop may be blocked by a hostile program."""
FIRST, NEXT, RATIO = 0.150, 0.010, 2.5
TRIES = 3


class LoopMeter:
    """Measures the longest time that the event loop was blocked."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            self.worst = max(self.worst, time.perf_counter() - before - 0.002)


async def corpus() -> dict[str, Any]:
    """Run every hostile program; return the failures and the worst lag of the loop for each."""
    failed: list[str] = []
    lags: dict[str, float] = {}
    async with shop() as server:
        limits = {"time": 1.0, "memory": 50 * 2**20, "calls": 50}
        async with shop_host(server, scripts=limits, on_approval=lambda request: True) as host:
            await host.session().run_script("await mcp_shop_get(id=1)")
            for name, code in HOSTILE.items():
                lags[name] = float("inf")
                for _ in range(
                    TRIES
                ):  # a program that blocks the loop does so each time, a busy machine does not
                    meter = LoopMeter()
                    measuring = asyncio.ensure_future(meter.run())
                    result = await host.session().run_script(code, timeout=10)
                    measuring.cancel()
                    lags[name] = min(lags[name], meter.worst)
                    if lags[name] <= LAG:
                        break
                if (not result.is_error and name not in HARMLESS) or (
                    result.is_error and not result.text.strip()
                ):
                    failed.append(f"{name}: {result.structured!r:.80}")
            alive = await host.session().run_script("1 + 1")
            if alive.structured != 2:
                failed.append(f"the host: {alive.text}")
        if server.calls("note"):
            failed.append(f"{len(server.calls('note'))} writes were made")
    worst = sorted(lags.items(), key=lambda one: -one[1])[:3]
    failed += [f"{name}: the loop was blocked for {lag * 1000:.0f} ms" for name, lag in worst if lag > LAG]
    return {
        "programs": len(HOSTILE),
        "worst lag ms": {name: round(lag * 1000, 1) for name, lag in worst},
        "failed": failed,
    }


SCRIPT = """\
import asyncio
seen = await asyncio.gather(*[mcp_shop_get(id=i) for i in range(4)])
for row in seen:
    await mcp_shop_note(id=row["id"], text=f"n{row['id']}")
total = 0
for i in range(4):
    total += (await mcp_shop_get(id=10 + i))["price"]
    await mcp_shop_note(id=10 + i)
total
"""


async def kills(count: int, seed: int = 7) -> dict[str, Any]:
    """Kill the worker of a script at random points: no call is made twice, and the result is right."""
    chance = random.Random(seed)
    failed: list[str] = []
    survived = died = 0
    for number in range(count):
        async with shop() as server:
            async with shop_host(server, on_approval=lambda request: True) as host:
                await host.session().run_script("1")
                workers = runtime_of(host).workers
                point, delay = chance.randint(0, 23), chance.choice((0.0, 0.0, 0.001, 0.003))

                async def kill(
                    host: Any = host, workers: Any = workers, point: int = point, delay: float = delay
                ) -> None:
                    passed = 0
                    async for _ in host.events(ScriptCalled):
                        passed += 1
                        if passed > point:
                            break
                    await asyncio.sleep(delay)
                    for worker in list(workers._all):
                        # The worker, or only the interpreter inside it.
                        target = _child(worker.pid) if chance.random() < 0.3 else None
                        os.kill(target or worker.pid, signal.SIGKILL)

                killing = asyncio.ensure_future(kill())
                await asyncio.sleep(0)
                result = await host.session().run_script(SCRIPT)
                killing.cancel()
            notes = [call["id"] for call in server.calls("note")]
            if len(notes) != len(set(notes)):
                failed.append(f"kill {number}: a write was made twice: {notes}")
            known = [tool for tool, state in made(result) if tool == "mcp_shop_note" and state != "queued"]
            if not set(notes) <= set(range(20)) or len(notes) > len(known):
                failed.append(
                    f"kill {number}: the server saw {len(notes)} writes, the result says {len(known)}"
                )
            if result.is_error:
                died += 1
                if "ended" not in result.text:
                    failed.append(f"kill {number}: {result.text:.200}")
            else:
                survived += 1
                if len(notes) != 8:
                    failed.append(f"kill {number}: it succeeded with {len(notes)} writes")
    if died * 3 < count:
        failed.append(f"only {died} of {count} kills hit a running script: this proves nothing")
    return {"kills": count, "ended the script": died, "came too late": survived, "failed": failed}


def _child(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError):
        return None


EXIT = """
import asyncio, sys
import mooring
from mooring.testing import FakeServer
async def main():
    def get(id: int) -> int:
        return id
    config = mooring.HostConfig(policy=mooring.Policy(allow=("get",)))
    how = sys.argv[1]
    async with mooring.Host(config, local=[get], lock=False, home=None) as host:
        code = "import asyncio\\nawait asyncio.gather(*[get(id=i) for i in range(20)])"
        runs = [asyncio.ensure_future(host.session(str(n)).run_script(code)) for n in range(3)]
        if how == "cancel":
            await asyncio.sleep(0.05)
            for run in runs: run.cancel()
        done = await asyncio.gather(*runs, return_exceptions=True)
        if how == "leave":
            import os
            print("ok", flush=True)
            sys.exit(0)
        if how != "cancel":
            assert all(not one.is_error and len(one.structured) == 20 for one in done), done
    print("ok", flush=True)
asyncio.run(main())
"""


def exits(count: int) -> dict[str, Any]:
    """Run scripts in a process and let it end, in several ways; count the processes that did not end well."""
    failed: list[str] = []
    for number in range(count):
        how = ("normal", "cancel", "leave")[number % 3]
        done = subprocess.run(
            [sys.executable, "-c", EXIT, how], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0 or "ok" not in done.stdout:
            failed.append(f"{how}: exit code {done.returncode}: {done.stderr[-300:]}")
    return {"processes": count, "crashed": len(failed), "failed": failed[:5]}


async def cost() -> dict[str, Any]:
    """Measure the first and the next script of a process, and 200 calls inside and outside a script."""
    figures: dict[str, Any] = {}
    async with shop() as server:
        async with shop_host(server, more={"max_queue": 1000}) as host:
            session = host.session()
            started = time.perf_counter()
            await session.run_script("1 + 1")
            figures["first script ms"] = round((time.perf_counter() - started) * 1000, 1)
            times = []
            for number in range(20):
                started = time.perf_counter()
                await session.run_script(f"{number} + 1")
                times.append(time.perf_counter() - started)
            figures["next script ms"] = round(median(times) * 1000, 2)
            code = "for i in range(200):\n    await mcp_shop_get(id=i)"
            inside, again, outside = [], [], []
            for number in range(5):
                new = f"{code}  # program {number}: its types are checked first"
                started = time.perf_counter()
                for item in range(200):
                    await session.call("mcp_shop_get", {"id": item})
                outside.append(time.perf_counter() - started)
                for times in (inside, again):
                    started = time.perf_counter()
                    result = await session.run_script(new)
                    assert not result.is_error, result.text
                    times.append(time.perf_counter() - started)
            figures["200 calls directly ms"] = round(min(outside) * 1000, 1)
            figures["200 calls in a script ms"] = round(min(inside) * 1000, 1)
            figures["200 calls in a script that ran before ms"] = round(min(again) * 1000, 1)
            figures["ratio"] = round(min(inside) / min(outside), 2)
    failed = []
    if figures["first script ms"] > FIRST * 1000:
        failed.append("the first script took too long")
    if figures["next script ms"] > NEXT * 1000:
        failed.append("the next script took too long")
    if figures["ratio"] > RATIO:
        failed.append("calls inside a script cost too much")
    return {**figures, "failed": failed}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["corpus", "kills", "exits", "cost"])
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    proofs = {
        "corpus": lambda: asyncio.run(corpus()),
        "kills": lambda: asyncio.run(kills(min(given.count, 100))),
        "exits": lambda: exits(given.count),
        "cost": lambda: asyncio.run(cost()),
    }
    bad = False
    for name in given.what:
        started = time.monotonic()
        found = proofs[name]()
        bad = bad or bool(found["failed"])
        print(name, json.dumps(found, ensure_ascii=False), f"{time.monotonic() - started:.0f} s", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
