"""Cost of nodes and workers: `python -m bench.cluster [--seconds S]`. Writes bench/results/cluster.md.

The load comes from one process that keeps connections open and does nothing else; CPU per call is that of the
gateway processes alone, without the servers behind them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.fixtures.start import stdio_servers
from bench.gateways import Front
from bench.listening import free_port

RESULTS = Path(__file__).with_name("results") / "cluster.md"
SOURCE = str(Path(__file__).resolve().parents[1] / "src")
NAMES = "abc"
IN_FLIGHT = 32


def cpu(processes: Sequence[psutil.Process]) -> float:
    """Seconds of CPU that the processes have used, without their children."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


@contextmanager
def serving(folder: Path, nodes: int, workers: int = 1) -> Generator[tuple[list[str], list[psutil.Process]]]:
    """Gateways in front of a stdio echo server each: their URLs and processes."""
    [server] = stdio_servers(1, tools=10)
    ports = [free_port() for _ in range(nodes)]
    gateway: dict[str, object] = {"max_sessions": 50_000, "client_sessions": 50_000}
    if nodes > 1:
        table = {name: f"http://127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=False)}
        gateway |= {"key": "${NODE_KEY}", "nodes": table}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s0": server}, "gateway": gateway}))
    words = [sys.executable, "-m", "mooring", "--config", str(config), "--no-lock", "serve", "--style", "raw"]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "NODE_KEY": "k" * 40}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, port in zip(NAMES, ports, strict=False):
            more = ["--node", name] if nodes > 1 else ["--workers", str(workers)] if workers > 1 else []
            started.append(
                subprocess.Popen(
                    [*words, "--http", f"127.0.0.1:{port}", *more],
                    env=environment,
                    stderr=subprocess.DEVNULL,
                )
            )
        for port in ports:
            _until_ready(port)
        time.sleep(2 if workers > 1 else 1)
        processes = [psutil.Process(one.pid) for one in started]
        if workers > 1:
            processes = [one for one in processes[0].children() if "mooring" in one.cmdline()]
        yield [f"http://127.0.0.1:{port}/mcp" for port in ports], processes
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(30)


def _until_ready(port: int) -> None:
    import urllib.request

    for _ in range(300):
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError("a gateway did not become ready")


async def opened(url: str) -> Front:
    front = Front(url, "echo")
    await front.open()
    return front


def through(front: Front, url: str) -> Front:
    """The same session, asked at another node."""
    other = Front(url, front.tool)
    other.session, other._ids = front.session, itertools.count(1_000_000)
    return other


async def latency(front: Front, calls: int) -> float:
    return statistics.median([await front.call() for _ in range(calls)]) * 1000


async def steady(
    fronts: Sequence[Front], seconds: float, processes: list[psutil.Process]
) -> tuple[float, float]:
    """Calls per second of all fronts together, and microseconds of CPU per call."""
    each = max(IN_FLIGHT // len(fronts), 1)
    before, started = cpu(processes), time.perf_counter()
    end, count = started + seconds, 0

    async def work(front: Front) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await front.call()
            count += 1

    await asyncio.gather(*(work(front) for front in fronts for _ in range(each)))
    spent = time.perf_counter() - started
    return count / spent, (cpu(processes) - before) / count * 1e6


async def hop(folder: Path, seconds: float) -> list[str]:
    with serving(folder, 2) as (urls, processes):
        here = await opened(urls[0])
        there = through(here, urls[1])
        await latency(here, 200), await latency(there, 200)
        direct, hopped = await latency(here, 1000), await latency(there, 1000)
        own = await steady([here], seconds, processes)
        forwarded = await steady([there], seconds, processes)
        return [
            "| | through the owner | through another node | difference |",
            "|---|---|---|---|",
            f"| p50, one call in flight | {direct:.2f} ms | {hopped:.2f} ms | {hopped - direct:.2f} ms |",
            f"| CPU per call of all gateways | {own[1]:.0f} µs | {forwarded[1]:.0f} µs "
            f"| {forwarded[1] - own[1]:.0f} µs |",
        ]


async def nodes_table(folder: Path, seconds: float) -> list[str]:
    lines = ["| nodes | calls/s | CPU per call | sessions asked |", "|---|---|---|---|"]
    for count in (1, 2, 3):
        with serving(folder, count) as (urls, processes):
            fronts = [await opened(url) for url in urls]
            rate, cost = await steady(fronts, seconds, processes)
            lines.append(f"| {count} | {rate:,.0f} | {cost:.0f} µs | at their owners |")
            if count > 1:
                moved = [through(front, urls[(n + 1) % count]) for n, front in enumerate(fronts)]
                rate, cost = await steady(moved, seconds, processes)
                lines.append(f"| {count} | {rate:,.0f} | {cost:.0f} µs | at another node |")
    return lines


async def workers_table(folder: Path, seconds: float) -> list[str]:
    """With one connection a session stays at the worker that opened it; of two, each second one may hop."""
    lines = ["| workers | connections of a session | calls/s | CPU per call |", "|---|---|---|---|"]
    for count in (1, 2):
        for connections in (1, 2):
            with serving(folder, 1, count) as (urls, processes):
                fronts = [await opened(urls[0]) for _ in range(IN_FLIGHT // connections)]
                rate, cost = await steady(fronts, seconds, processes)
                lines.append(f"| {count} | {connections} | {rate:,.0f} | {cost:.0f} µs |")
    return lines


async def sessions(folder: Path, count: int) -> list[str]:
    with serving(folder, 3) as (urls, processes):
        pilot = [await opened(url) for url in urls]
        for front in pilot:
            await front.call()
        before = [one.memory_info().rss for one in processes]
        ids: list[tuple[int, str]] = []
        for number in range(count):
            front = pilot[number % 3]
            front.session = None
            await front.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}, number)
            assert front.session is not None
            ids.append((number % 3, front.session))
        grown = sum(one.memory_info().rss for one in processes) - sum(before)
        wrong = 0
        askers = [Front(url, "echo") for url in urls]
        for number, (owner, session) in enumerate(ids):
            asker = askers[(owner + number) % 3]
            asker.session = session
            try:
                await asker.call()
            except (KeyError, ValueError, TypeError):
                wrong += 1
        return [
            f"{count:,} sessions over 3 nodes: {grown / count / 1024:.1f} KiB each; asked through "
            f"alternating nodes, {count - wrong:,} answered, {wrong} not."
        ]


def others() -> list[str]:
    """What one process of other gateways does, from the last run of the gateway benchmark."""
    known = json.loads(RESULTS.with_name("gateways.json").read_text())
    lines = [
        "One process each, one session, from [gateways.json](gateways.json). Several were not compared.",
        "",
        "| gateway | p50 | calls/s |",
        "|---|---|---|",
    ]
    return lines + [
        f"| {name} | {one['p50_us'] / 1000:.2f} ms | {one['calls_per_second']:,} |"
        for name, one in known.items()
    ]


async def main(seconds: float, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {
            "A hop to the owner": await hop(folder, seconds),
            "Nodes": await nodes_table(folder, seconds),
            "Workers": await workers_table(folder, seconds),
            "Sessions": await sessions(folder, count),
            "Other gateways": others(),
        }
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    text = [
        "# Nodes and workers",
        "",
        f"Written by `python -m bench.cluster` ({machine}). The load generator and the echo servers run on "
        "the same cores, so calls/s is what is left for the gateways; CPU per call is theirs alone.",
    ]
    for title, lines in parts.items():
        text += ["", f"## {title}", "", *lines]
    RESULTS.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--sessions", type=int, default=10_000)
    given = parser.parse_args()
    asyncio.run(main(given.seconds, given.sessions))
