"""The soak itself: warm-up, faults, recovery, and the check of every call."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from mooring import Event, Host
from tests.soak.ledger import Ledger
from tests.soak.mischief import LONGEST, Mischief
from tests.soak.servers import Servers

CALLERS = 64
GROWTH = 0.05
FRESH = 2.0
TICK = 0.1


class Soak:
    def __init__(self, servers: Servers, seconds: float, seed: int, pause: float) -> None:
        self.servers, self.seconds, self.seed, self.pause = servers, seconds, seed, pause
        self.ledger = Ledger()
        # Allocated at the start: what the soak itself records must not look like growth of the host.
        ticks = int((seconds + LONGEST + 60) / TICK)
        self.times, self.lags, self.sizes = (array("d", bytes(8 * ticks)) for _ in range(3))
        self.ticks = 0
        self._due = time.monotonic()
        self._stalls = deque([(0.0, 0.0)], maxlen=200)
        """Recent times, and the seconds that the loop had been late in all until then."""
        self.fresh_after = 0.0
        self.faults: dict[str, int] = {}
        self._stop = asyncio.Event()

    async def run(self) -> None:
        before = resources()
        host = Host(self.servers.configs())
        events = host.events()
        watching = [
            asyncio.create_task(self._watch_events(events)),
            asyncio.create_task(self._watch_process()),
        ]
        async with host:
            await host.ready(30)
            self.ticks = 0
            mischief = Mischief(host, self.servers, self.seed, self.pause)
            callers = [asyncio.create_task(self._caller(host, n)) for n in range(CALLERS)]
            trouble = asyncio.create_task(mischief.run())
            await asyncio.sleep(self.seconds)
            trouble.cancel()
            await asyncio.gather(trouble, return_exceptions=True)
            await asyncio.sleep(LONGEST)  # the faults under way run out
            await self._check_catalog(host, mischief)
            self._stop.set()
            await asyncio.gather(*callers)
            self.faults = dict(mischief.done)
        watching[1].cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._check_leaks(before)
        self._check_memory()
        self.ledger.check_ends(self.lags[: self.ticks])
        self.ledger.check_effects(self.servers.effects())

    # --- callers --------------------------------------------------------------------------------

    async def _caller(self, host: Host, number: int) -> None:
        chance = random.Random(self.seed * 1000 + number)
        while not self._stop.is_set():
            await asyncio.sleep(chance.uniform(0.02, 0.15))
            await self._one_call(host, chance)

    async def _one_call(self, host: Host, chance: random.Random) -> None:
        n, server = self.ledger.begin(), chance.choice(self.servers.names)
        tool = chance.choices(("effect", "echo", "sleep"), (7, 2, 1))[0]
        arguments = {"n": n, "text": str(n), "seconds": chance.uniform(0, 0.3)}
        if server in self.servers.stdio and tool == "effect":
            arguments["fate"] = chance.choices(("live", "die before", "die after"), (300, 1, 1))[0]
        deadline, started = chance.choice((0.3, 0.5, 1.0, 2.0)), time.monotonic()
        call = asyncio.create_task(host.call(f"mcp_{server}_{tool}", arguments, timeout=deadline))
        if chance.random() < 0.03:
            asyncio.get_running_loop().call_later(chance.uniform(0, 0.1), call.cancel)
        try:
            result = await call
        except asyncio.CancelledError:
            self.ledger.end(n, "cancelled", "cancelled", 0.0)
            return
        overshoot = time.monotonic() - started - deadline
        overshoot -= self._stalled_since(started + deadline)
        if result.error is None:
            wanted = {"effect": f"done {n}", "echo": str(n)}.get(tool, result.text)
            if result.is_error or result.text != wanted:
                self.ledger.breach(f"call {n} of {tool} on {server} was answered with {result.text[:80]!r}")
            self.ledger.end(n, "answered", "answered", overshoot)
        else:
            outcome = getattr(result.error, "outcome", "not sent")
            self.ledger.end(n, outcome, f"{type(result.error).__name__}, {outcome}", overshoot)

    # --- watching -------------------------------------------------------------------------------

    async def _watch_events(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self.ledger.hear(event)

    async def _watch_process(self) -> None:
        started = time.monotonic()
        while True:
            self._due = time.monotonic() + TICK
            await asyncio.sleep(TICK)
            now, n = time.monotonic(), self.ticks
            self.times[n], self.lags[n], self.sizes[n] = now - started, now - self._due, rss()
            self._stalls.append((now, self._stalls[-1][1] + self.lags[n]))
            self.ticks += 1

    def _stalled_since(self, moment: float) -> float:
        """Seconds for which the loop stood still since then: no call can end meanwhile."""
        before = next((total for at, total in reversed(self._stalls) if at <= moment), 0.0)
        return self._stalls[-1][1] - before + max(time.monotonic() - self._due, 0.0)

    async def _check_catalog(self, host: Host, mischief: Mischief) -> None:
        for name in self.servers.names:
            mischief.change(name)
        wanted, started = self.servers.offered(), time.monotonic()
        while set(host.catalog.tools) != wanted:
            if time.monotonic() - started > FRESH:
                wrong = {name.split("_")[1] for name in set(host.catalog.tools) ^ wanted}
                states = {status.name: status for status in host.status() if status.name in wrong}
                shown = ", ".join(f"{name} ({s.state}, {s.breaker})" for name, s in sorted(states.items()))
                self.ledger.breach(f"the catalog was wrong {FRESH:g} s after the last fault: {shown}")
                return
            await asyncio.sleep(0.02)
        self.fresh_after = time.monotonic() - started

    def _check_leaks(self, before: dict[str, int]) -> None:
        gc.collect()
        after = resources()
        for what, count in before.items():
            if after[what] > count:
                self.ledger.breach(f"{what}: {count} before, {after[what]} after")

    def growth(self) -> tuple[float, float, float]:
        """MiB after warming up, MiB at the end, and the growth between them."""
        warm = self.seconds / 3
        memory = list(zip(self.times[: self.ticks], self.sizes, strict=False))
        early = [size for at, size in memory if warm <= at < warm * 1.3]
        late = [size for at, size in memory if warm * 2.7 <= at < self.seconds]
        first, last = statistics.median(early) / 2**20, statistics.median(late) / 2**20
        return first, last, last / first - 1

    def _check_memory(self) -> None:
        first, last, growth = self.growth()
        if growth > GROWTH:
            self.ledger.breach(f"memory grew from {first:.1f} to {last:.1f} MiB")


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resources() -> dict[str, int]:
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    return {
        "tasks": len(asyncio.all_tasks()),
        "file descriptors": len(os.listdir("/proc/self/fd")),
        # anyio keeps a thread or two for the next piece of work, and ends them by itself.
        "threads": sum(thread.name != "AnyIO worker thread" for thread in threading.enumerate()),
        "children": sum(map(len, children)),
    }


def report(soak: Soak, elapsed: float, cpu: float) -> None:
    ledger, (first, last, growth) = soak.ledger, soak.growth()
    calls = len(ledger.outcomes)
    print(
        f"soak of {soak.seconds:g} s, seed {soak.seed}: {len(soak.servers.names)} servers, {CALLERS} callers"
    )
    print(f"  calls       {calls} ({calls / elapsed:.0f}/s)")
    for label, count in ledger.spread.most_common():
        print(f"    {count:8} {label}")
    print(f"  faults      {sum(soak.faults.values())}")
    for label, count in sorted(soak.faults.items()):
        print(f"    {count:8} {label}")
    late = [f"{1000 * ledger.overshoot(share):.0f}" for share in (0.99, 0.999)]
    print(f"  overshoot   p99 {late[0]} ms, p99.9 {late[1]} ms, worst {1000 * max(ledger.worst, 0):.0f} ms")
    lags = sorted(soak.lags[: soak.ticks])
    print(f"  loop lag    p95 {1000 * lags[int(len(lags) * 0.95)]:.0f} ms, worst {1000 * lags[-1]:.0f} ms")
    print(f"  effects     {sum(soak.servers.effects().values())}")
    print(f"  memory      {first:.1f} MiB warm, {last:.1f} MiB at the end ({growth:+.1%})")
    print(f"  catalog     right {soak.fresh_after:.2f} s after the last fault")
    print(f"  processor   {cpu:.1f} s of {elapsed:.0f} s")
    for breach in ledger.broken:
        print(f"  BROKEN      {breach}")
    print("every promise held" if not ledger.broken else f"{len(ledger.broken)} promises were broken")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--pause", type=float, default=0.3, help="mean seconds between two faults")
    chosen = options.parse_args()
    logging.getLogger("mooring").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:
        started, cpu = time.monotonic(), time.process_time()

        async def run() -> Soak:
            soak = Soak(servers, chosen.seconds, chosen.seed, chosen.pause)
            await soak.run()
            return soak

        soak = asyncio.run(run())
        report(soak, time.monotonic() - started, time.process_time() - cpu)
    return 1 if soak.ledger.broken else 0


if __name__ == "__main__":
    sys.exit(main())
