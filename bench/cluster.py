"""Cost of nodes and workers: `python -m bench.cluster [--part hop]`. Writes bench/results/cluster.md.

The load comes from one process that keeps connections open and does nothing else; CPU per call is that of the
gateway processes alone, without the servers behind them. Each part is kept in bench/results/cluster.json, so
that they can be measured one by one. `make bench-tools` installs wrk, the generator of the part `workers`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.fixtures.start import stdio_servers
from bench.gateways import Front
from bench.listening import free_port

RESULTS = Path(__file__).with_name("results") / "cluster.md"
KEPT = RESULTS.with_suffix(".json")
ECHO = Path(__file__).with_name("fixtures") / "echo.pl"
SOURCE = str(Path(__file__).resolve().parents[1] / "src")
NAMES = "abc"
IN_FLIGHT = 32


def cpu(processes: Sequence[psutil.Process]) -> float:
    """Seconds of CPU that the processes have used, without their children."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


@contextmanager
def serving(
    folder: Path, nodes: int, workers: int = 1, server: dict[str, Any] | None = None
) -> Generator[tuple[list[str], list[psutil.Process]]]:
    """Gateways in front of a stdio echo server each: their URLs and processes."""
    server = server or stdio_servers(1, tools=10)[0]
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


WRK_CONNECTIONS = 32
WRK_ROUNDS = 3
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"text": "x" * 100},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
SCRIPT = """
wrk.method = "POST"
wrk.body = [==[{body}]==]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept"] = "application/json, text/event-stream"
wrk.headers["MCP-Protocol-Version"] = "2026-07-28"
wrk.headers["Mcp-Method"] = "tools/call"
wrk.headers["Mcp-Name"] = "echo"
"""


async def workers_table(folder: Path, seconds: float) -> list[str]:
    """Calls of 2026 clients, with the same generator and the same load for each number of workers."""
    if not all(map(shutil.which, ("wrk", "chrt", "perl"))):
        raise SystemExit("the part `workers` needs perl, chrt (util-linux), and wrk: make bench-tools")
    script = folder / "call.lua"
    script.write_text(SCRIPT.replace("{body}", json.dumps(CALL)))
    server = {"name": "s0", "command": shutil.which("perl"), "args": [str(ECHO)]}
    measured: dict[int, list[Load]] = {1: [], 2: []}
    for _ in range(WRK_ROUNDS):
        for count, known in measured.items():
            with serving(folder, 1, count, server) as (urls, processes):
                loaded(script, urls[0], 1, processes)
                known.append(loaded(script, urls[0], seconds, processes))
    best = {count: max(known, key=lambda one: one.rate) for count, known in measured.items()}
    lines = [
        f"Generator: wrk, one thread, {WRK_CONNECTIONS} connections, the same request each time, in the "
        f"batch class of the scheduler (`chrt --batch 0`): a generator on another machine does not interrupt "
        f"a gateway for each answer either. Server: an echo in perl for each worker. All of it runs on "
        f"{os.cpu_count()} cores. The best of {WRK_ROUNDS} rounds of {seconds:g} s, in turn.",
        "",
        "| workers | calls/s | p50 | CPU per call: gateways | servers | wrk |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {count} | {one.rate:,.0f} | {one.p50} | {one.gateways:.0f} µs | {one.servers:.0f} µs "
        f"| {one.generator:.0f} µs |"
        for count, one in best.items()
    ]
    rates = {count: [f"{one.rate:,.0f}" for one in known] for count, known in measured.items()}
    return [
        *lines,
        "",
        f"Two workers: {best[2].rate / best[1].rate:.2f} × the calls/s of one. All rounds: one worker "
        f"{', '.join(rates[1])}; two workers {', '.join(rates[2])}.",
    ]


@dataclass(frozen=True)
class Load:
    """What one run of wrk measured; CPU is in microseconds per call."""

    rate: float
    p50: str
    gateways: float
    servers: float
    generator: float


def loaded(script: Path, url: str, seconds: float, processes: Sequence[psutil.Process]) -> Load:
    """Run wrk; refuse a run with errors."""
    servers = [child for one in processes for child in one.children(recursive=True)]
    before, children = (cpu(processes), cpu(servers)), os.times()
    # In the batch class the generator uses what it needs, but does not interrupt a gateway for each answer.
    words = ["chrt", "--batch", "0", "wrk", "-t1", f"-c{WRK_CONNECTIONS}", f"-d{seconds:g}s"]
    words += ["--latency", "-s", str(script), url]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds + 30).stdout
    after = os.times()
    found = re.search(r"(\d+) requests in", said)
    if found is None or "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"wrk reports errors:\n{said}")
    count = int(found[1])
    spent = after.children_user + after.children_system - children.children_user - children.children_system
    rate, p50 = re.search(r"Requests/sec:\s*([\d.]+)", said), re.search(r"50%\s+([\d.]+\w+)", said)
    assert rate is not None
    assert p50 is not None
    return Load(
        float(rate[1]),
        p50[1],
        (cpu(processes) - before[0]) / count * 1e6,
        (cpu(servers) - before[1]) / count * 1e6,
        spent / count * 1e6,
    )


SESSIONS = 10_000


async def sessions(folder: Path, seconds: float) -> list[str]:
    count = SESSIONS
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


ENGINE_KEYS = 50_000


async def engine(folder: Path, seconds: float) -> list[str]:
    """What a key of an owner costs: one nats-server with file storage, one node that claims and reads."""
    from mooring.cluster.engine import EngineAccess, NatsEngine
    from mooring.cluster.placement import LeaseRules

    async def connected(_generation: str) -> None:
        return

    port, here = free_port(), psutil.Process()
    program = str(Path(sys.executable).with_name("nats-server"))
    words = [program, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(folder / "js")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    server = psutil.Process(process.pid)
    nats = NatsEngine(EngineAccess(urls=(f"nats://127.0.0.1:{port}",)), connected, lambda: None)
    try:
        while not _listens(port):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await nats.open()
        numbers, value = itertools.count(), b"x" * 170  # about an owner record

        async def claim() -> float:
            started = time.perf_counter()
            assert await nats.write("owners", f"key.{next(numbers)}", value, 0) is not None
            return time.perf_counter() - started

        before = cpu([here]), cpu([server])
        times = [await claim() for _ in range(3000)]
        after = cpu([here]), cpu([server])
        node, own = ((end - begin) / len(times) * 1e6 for begin, end in zip(before, after, strict=True))
        memory, disk = server.memory_info().rss, _size(folder / "js")
        claims = await _rate(claim, ENGINE_KEYS)
        memory, disk = server.memory_info().rss - memory, _size(folder / "js") - disk
        reading = itertools.cycle(range(3000))
        reads = await _rate(lambda: nats.read("owners", f"key.{next(reading)}"), 20_000)
    finally:
        await nats.close()
        process.terminate()
        process.wait(10)
    rules = LeaseRules()
    return [
        f"One nats-server with file storage, one node: {len(times):,} claims one after another, then "
        f"{ENGINE_KEYS:,} with 64 in flight. A record has {len(value)} bytes. By default a lease is renewed "
        f"every {rules.renew:g} s and repeated in a heartbeat every {rules.heartbeat:g} s.",
        "",
        "| | |",
        "|---|---|",
        f"| a claim, p50 | {statistics.median(times) * 1000:.2f} ms |",
        f"| CPU of a claim: node, engine | {node:.0f} µs, {own:.0f} µs |",
        f"| claims, reads of owners per second, 64 in flight | {claims:,.0f}, {reads:,.0f} |",
        f"| memory, disk of the engine per key | {memory / ENGINE_KEYS / 1024:.1f} KiB, "
        f"{disk / ENGINE_KEYS / 1024:.1f} KiB |",
    ]


async def _rate(work: Callable[[], Awaitable[object]], count: int) -> float:
    """How often something is done per second, 64 at once."""
    started, left = time.perf_counter(), iter(range(count))

    async def some() -> None:
        for _ in left:
            await work()

    await asyncio.gather(*(some() for _ in range(64)))
    return count / (time.perf_counter() - started)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def others(folder: Path, seconds: float) -> list[str]:
    """What one process of other gateways does, from the last run of the gateway benchmark."""
    known = json.loads(RESULTS.with_name("gateways.json").read_text())
    lines = [
        "One process each, one session, from [gateways.json](gateways.json) (`python -m bench.gateways`).",
        "",
        "| gateway | p50 | calls/s |",
        "|---|---|---|",
    ]
    return lines + [
        f"| {name} | {one['p50_us'] / 1000:.2f} ms | {one['calls_per_second']:,} |"
        for name, one in known.items()
    ]


Part = Callable[[Path, float], Awaitable[list[str]]]
PARTS: dict[str, tuple[str, Part]] = {
    "hop": ("A hop to the owner", hop),
    "nodes": ("Nodes", nodes_table),
    "workers": ("Workers", workers_table),
    "sessions": ("Sessions", sessions),
    "engine": ("The engine", engine),
    "others": ("Other gateways", others),
}


async def main(names: Sequence[str], seconds: float) -> None:
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in names:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            lines = await PARTS[name][1](Path(folder), seconds)
        print("\n".join(lines), flush=True)
        kept[name] = {"lines": lines, "when": time.strftime("%Y-%m-%d"), "load": round(load, 1)}
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    text = [
        "# Nodes and workers",
        "",
        f"Written by `python -m bench.cluster` ({os.cpu_count()} cores, Python {platform.python_version()}). "
        "The load generator and the echo servers run on the same cores, so calls/s is what is left for the "
        "gateways; CPU per call is theirs alone.",
    ]
    for name, (title, _) in PARTS.items():
        if name in kept:
            one = kept[name]
            about = f"{one['when']}; load of the machine before: {one['load']}."
            text += ["", f"## {title}", "", *one["lines"], "", about]
    RESULTS.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    given = parser.parse_args()
    asyncio.run(main(given.part or list(PARTS), given.seconds))
