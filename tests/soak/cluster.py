"""Three nodes that are killed and stopped on a seeded schedule, with a ledger at the server behind them.

    python -m tests.soak.cluster --seconds 300 [--seed N]

Each numbered call is sent once. The server appends its number to a file. At the end: no number twice, each
answer matches its question, each answered call is in the ledger, and each session was answered by one process
only.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.cluster.lab import Nodes, lab_entry, static_nodes
from tests.lab.caller import Caller

CLIENTS = 24
LIMIT = 60.0
"""Seconds within which each request must end."""


@dataclass
class Ledger:
    """What clients saw."""

    seed: int
    next: int = 0
    answered: set[int] = field(default_factory=set[int])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    owners: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    slowest_404: float = 0.0

    def number(self) -> int:
        self.next += 1
        return self.next


async def called(client: Caller, tool: str, arguments: dict[str, int]) -> tuple[int, str]:
    """The status and the text of one call; status 0 if the connection was lost."""
    try:
        async with asyncio.timeout(LIMIT):
            reply = await client.call(tool, arguments)
    except (aiohttp.ClientError, ConnectionError):
        return 0, ""
    if reply.status != 200 or "result" not in reply.last:
        return reply.status if reply.status != 200 else -1, ""
    return 200, reply.text


async def visit(nodes: Nodes, ledger: Ledger, source: random.Random, modern: bool, until: float) -> None:
    """One client: asks any node, and begins again when its session is gone."""
    client: Caller | None = None
    while time.monotonic() < until:
        chosen = source.randrange(len(nodes))
        if client is None:
            try:
                async with asyncio.timeout(LIMIT):
                    client = await nodes.caller(chosen, modern=modern)
            except (aiohttp.ClientError, ConnectionError, KeyError):
                await asyncio.sleep(0.05)
            if client is not None and not modern and client.session is None:
                client = None
            continue
        through = nodes.through(client, chosen)
        if not modern and source.random() < 0.2:
            status, pid = await called(through, "pid", {})
            if status == 200:
                ledger.owners.setdefault(str(client.session), set()).add(pid)
        else:
            number = ledger.number()
            started = time.monotonic()
            status, text = await called(through, "effect", {"n": number})
            if status == 200:
                ledger.answered.add(number)
                if text != f"done {number}":
                    ledger.wrong.append(f"call {number} was answered {text[:60]!r}")
            elif status == 404:
                ledger.slowest_404 = max(ledger.slowest_404, time.monotonic() - started)
        ledger.outcomes[f"{'2026' if modern else '2025'} {status or 'lost'}"] += 1
        if status == 404 and not modern:
            client = None
        elif status != 200:
            await asyncio.sleep(0.05)


async def trouble(nodes: Nodes, ledger: Ledger, source: random.Random, until: float) -> None:
    """Kill and stop one node after the other; never two at once."""
    while time.monotonic() + 8 < until:
        await asyncio.sleep(source.uniform(1, 4))
        node = nodes[source.randrange(len(nodes))]
        if source.random() < 0.6:
            ledger.outcomes["killed"] += 1
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(source.uniform(0, 1))
            node.start()
            with suppress(TimeoutError):
                await node.ready(nodes.http, 60)
        else:
            ledger.outcomes["stopped"] += 1
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(source.uniform(0.2, 3))
            node.signal(signal.SIGCONT)


def problems(ledger: Ledger, effects: Path) -> list[str]:
    done = Counter(int(line) for line in effects.read_text().split()) if effects.exists() else Counter[int]()
    found = [f"call {number} had its effect {count} times" for number, count in done.items() if count > 1]
    found += [
        f"call {number} was answered and had no effect" for number in ledger.answered if number not in done
    ]
    found += ledger.wrong
    found += [
        f"a session was answered by the processes {sorted(pids)}"
        for pids in ledger.owners.values()
        if len(pids) > 1
    ]
    if not ledger.answered:
        found.append("no call was answered")
    return found


async def main(seconds: float, seed: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder, ledger = Path(name), Ledger(seed)
        effects = folder / "effects"
        servers = {"lab": lab_entry(tools=["effect", "pid"], effects=str(effects))}
        async with static_nodes(folder, 3, servers=servers) as nodes:
            until = time.monotonic() + seconds
            sources = [random.Random(f"{seed}/{number}") for number in range(CLIENTS + 1)]
            await asyncio.gather(
                trouble(nodes, ledger, sources[-1], until),
                *(visit(nodes, ledger, sources[number], number % 2 == 0, until) for number in range(CLIENTS)),
            )
        found = problems(ledger, effects)
    print(f"seed {seed}: {ledger.next} numbered calls, {len(ledger.answered)} answered,")
    print(f"{len(ledger.owners)} sessions asked for their owner, slowest 404 {ledger.slowest_404:.2f} s")
    print(", ".join(f"{name}: {count}" for name, count in sorted(ledger.outcomes.items())))
    for line in found[:20]:
        print("PROBLEM", line)
    return 1 if found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    raise SystemExit(asyncio.run(main(given.seconds, given.seed)))
