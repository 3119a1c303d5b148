"""Compare this checkout with an earlier revision: `python -m bench.revisions 8d19d4b`.

Every scenario runs in new processes of both, in turn and in changing order, with the same dependencies. Each
revision has a cache of its own. Writes bench/results/house.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.fixtures.start import http_servers, stdio_servers

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results") / "house.md"
LOCKED = 30
CALLS = """
import asyncio, json, sys, time
from mooring import Host, ServerConfig
server, count = json.loads(sys.argv[1]), int(sys.argv[2])
async def main():
    async with Host([ServerConfig(**server)], lock=False) as host:
        await host.ready()
        name = next(name for name in host.catalog.tools if name.endswith("echo"))
        arguments, times = {"text": "x" * 100}, []
        for _ in range(300):
            await host.call(name, arguments)
        cpu = time.process_time()
        for _ in range(count):
            started = time.perf_counter()
            await host.call(name, arguments)
            times.append(time.perf_counter() - started)
        alone = (time.process_time() - cpu) / count * 1e6
        limit, cpu, started = asyncio.Semaphore(64), time.process_time(), time.perf_counter()
        async def one():
            async with limit:
                await host.call(name, arguments)
        await asyncio.gather(*(one() for _ in range(count)))
        rate = count / (time.perf_counter() - started)
        together = (time.process_time() - cpu) / count * 1e6
        print(json.dumps({
            "p50 µs": sorted(times)[count // 2] * 1e6, "CPU per call µs": alone,
            "calls/s, 64 in flight": rate, "CPU per call µs, 64 in flight": together,
        }))
asyncio.run(main())
"""
LIST = """
import asyncio, json, sys, time
from mooring import Host, ServerConfig
servers = [ServerConfig(**one) for one in json.loads(sys.argv[1])]
async def main():
    cpu = time.process_time()
    async with Host(servers, lock=False) as host:
        await host.ready(timeout=60)
        assert len(host.catalog.tools) >= 10_000, len(host.catalog.tools)
        print(json.dumps({"CPU s": time.process_time() - cpu}))
asyncio.run(main())
"""
OPEN = """
import asyncio
from mooring import Host
async def main():
    async with Host.from_config("mooring.json") as host:
        assert len(host.catalog.tools) >= 300 and host.search("echo text")
asyncio.run(main())
"""
Figures = dict[str, float]


class Revision:
    """The sources of one revision, and a folder with a locked project."""

    def __init__(self, name: str, source: Path, folder: Path) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        home = {"MOORING_HOME": str(folder / "home"), "PYTHONPATH": str(source), "NO_COLOR": "1"}
        self.environment = {**os.environ, **home}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *words: str) -> tuple[str, float]:
        """Return the output of a program, and milliseconds of CPU of it and its children."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if ran.returncode:
            raise SystemExit(f"{self.name}: {ran.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return ran.stdout, spent * 1000

    def lock(self) -> None:
        """Write a project of locked servers that start on first use."""
        entries = {one.pop("name"): {**one, "start": "lazy"} for one in stdio_servers(LOCKED, tools=10)}
        (self.folder / "mooring.json").write_text(json.dumps({"mcpServers": entries}))
        self.run("-m", "mooring", "--config", "mooring.json", "lock")


def calls(server: Any, count: int) -> Callable[[Revision], Figures]:
    return lambda one: json.loads(one.run("-c", CALLS, json.dumps(server), str(count))[0])


def listing(one: Revision) -> Figures:
    return json.loads(one.run("-c", LIST, json.dumps(stdio_servers(10, tools=1000)))[0])


def started(*words: str) -> Callable[[Revision], Figures]:
    """CPU of a program beyond that of Python itself."""

    def measure(one: Revision) -> Figures:
        bare = one.run("-c", "pass")[1]
        return {"CPU over bare Python ms": one.run(*words)[1] - bare}

    return measure


def measured(
    revisions: Sequence[Revision], scenarios: dict[str, Callable[[Revision], Figures]], rounds: int
) -> list[str]:
    lines = ["| scenario | figure | before | now | ratio |", "| --- | --- | ---: | ---: | ---: |"]
    for title, scenario in scenarios.items():
        known: dict[str, list[Figures]] = {one.name: [] for one in revisions}
        for number in range(rounds):
            for one in revisions if number % 2 else revisions[::-1]:
                known[one.name].append(scenario(one))
        for place, figure in enumerate(known["now"][0]):
            before, now = ([one[figure] for one in known[name]] for name in ("before", "now"))
            ratios = [new / old for old, new in zip(before, now, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            digits = 0 if statistics.median(now) > 1000 else 1 if statistics.median(now) > 10 else 2
            values = [f"{statistics.median(one):,.{digits}f}" for one in (before, now)]
            lines.append(
                f"| {'' if place else title} | {figure} | {values[0]} | {values[1]} "
                f"| {middle:.2f} [{low:.2f}–{high:.2f}] |"
            )
            print(lines[-1], flush=True)
    return lines


def main(base: str, rounds: int) -> None:
    load = os.getloadavg()[0]
    packed = subprocess.run(["git", "archive", base, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as temporary, http_servers(1, tools=10) as (web,):
        folder = Path(temporary)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder / "base", filter="data")
        revisions = [
            Revision("before", folder / "base/src", folder / "before"),
            Revision("now", ROOT / "src", folder / "now"),
        ]
        for one in revisions:
            one.lock()
        scenarios = {
            "one server, stdio": calls(stdio_servers(1, tools=10)[0], 2000),
            "one server, HTTP": calls(web, 1000),
            "list 10 × 1,000 tools": listing,
            f"all tools of {LOCKED} locked servers, nothing started": started("-c", OPEN),
            f"`mooring tools`, {LOCKED} locked servers": started(
                "-m", "mooring", "--config", "mooring.json", "tools"
            ),
            "`mooring --help`": started("-m", "mooring", "--help"),
            "`import mooring`": started("-c", "import mooring"),
        }
        lines = measured(revisions, scenarios, rounds)
    text = [
        "# Before the rebuild and now",
        "",
        f"Written by `python -m bench.revisions {base}` on {time.strftime('%Y-%m-%d')}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, {platform.system()}; load of the machine "
        f'before: {load:.1f}. "Before" is revision {base}, the code before modules moved into rooms.',
        "",
        f"Both run with the same dependencies, one after the other in {rounds} rounds, in changing order; "
        "each has a cache of its own. A figure is the median of its rounds. The ratio (now / before) is the "
        "median of the ratios, with the quartiles in brackets. CPU is that of the process that uses mooring.",
        "",
        *lines,
    ]
    RESULTS.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="a revision of this repository")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    main(given.base, given.rounds)
