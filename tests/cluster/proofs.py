"""Proof that a node is fenced before another one takes over: `python -m tests.cluster.proofs --runs 100`.

Three nodes and a nats-server run as real processes. In each run the owner of a private server is stopped
(SIGSTOP), cut off from the engine, or hears nothing more from it. A thread waits for the end of the old
server process through its pidfd. The new process must have started after that, by the clock of the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.cluster.engine_lab import EngineCluster, engine_nodes, errors_of, joined, owner_number
from tests.lab.caller import Caller

TICK = os.sysconf("SC_CLK_TCK")
FAULTS = ("stop", "cut", "silent")


def ended_at(pid: int) -> float:
    """Wait for the end of a process; return when it was noticed, in seconds since the machine started."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0.0
    try:
        select.select([handle], [], [])
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    finally:
        os.close(handle)


def started_at(pid: int) -> float:
    """When a process was started, in seconds since the machine started."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / TICK


async def ask(client: Caller) -> int | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(1.5):
            reply = await client.call("pid")
            if reply.status == 200 and not reply.result.get("isError"):
                return int(reply.text)
    return None


async def run(cluster: EngineCluster, number: int) -> float:
    """One fault. Return how many seconds before the start of the new process the old one had ended."""
    client = await cluster.nodes.caller(number % 3, modern=True)
    while (pid := await ask(client)) is None:
        await asyncio.sleep(0.05)
    owner = await owner_number(cluster)
    fault = FAULTS[number % len(FAULTS)]
    end = asyncio.get_running_loop().run_in_executor(None, ended_at, pid)
    await asyncio.sleep((number * 37 % 100) / 100)  # at any phase of the renewals
    if fault == "stop":
        cluster[owner].signal(signal.SIGSTOP)
    elif fault == "cut":
        cluster.proxies[owner].cut()
    else:
        cluster.proxies[owner].silent = True
    others = [cluster.nodes.through(client, (owner + one) % 3) for one in (1, 2)]
    new, turn = None, 0
    async with asyncio.timeout(90):
        while new is None or new == pid:
            new, turn = await ask(others[turn % 2]), turn + 1
    begun, over = started_at(new), await end
    if fault == "stop":
        cluster[owner].signal(signal.SIGCONT)
        late = await ask(cluster.nodes.through(client, owner))  # what it kept must not answer any more
        assert late in (new, None), f"the stopped node answered from process {late}"
    cluster.proxies[owner].heal()
    for one in range(3):
        await joined(cluster, one, 3)
    return begun - over


async def main(first: int, runs: int, ttl: float) -> int:
    gaps: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with engine_nodes(Path(folder), ttl=ttl, gateway={"log": {"level": "warning"}}) as cluster:
            for number in range(first, first + runs):
                try:
                    gap = await run(cluster, number)
                except Exception:
                    print(errors_of(cluster), file=sys.stderr)
                    raise
                gaps[FAULTS[number % len(FAULTS)]].append(gap)
                if gap < -1 / TICK:
                    print(f"run {number}: NOT fenced: the new process began {-gap:.3f} s too early")
    bad = Counter({fault: sum(gap < -1 / TICK for gap in known) for fault, known in gaps.items()})
    for fault, known in gaps.items():
        if known:
            print(
                f"{fault}: fenced before takeover in {len(known) - bad[fault]} of {len(known)} runs; "
                f"smallest gap {min(known):.2f} s, ttl {ttl:g} s"
            )
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if sum(bad.values()) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--ttl", type=float, default=3.0)
    given = parser.parse_args()
    raise SystemExit(asyncio.run(main(given.first, given.runs, given.ttl)))
