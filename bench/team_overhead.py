"""Cost of access log, audit log, metrics, rules and a transform together, at 64 calls in flight.

Run it: `python bench/team_overhead.py` (Linux). Two gateways serve the same server, one with everything
switched on. Short rounds alternate between them, and each figure is the median of the rounds' ratios, so that
a busy machine is fair to both. The full gateway is measured twice: with arguments that occurred before, and
with new arguments in every call. Writes bench/results/team_overhead.md. Exits with 1 if one of the two is
above 15 %.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from mooring.demo import command

ROUNDS, CALLS, IN_FLIGHT, LIMIT = 31, 400, 64, 15.0
RESULTS = Path(__file__).with_name("results") / "team_overhead.md"
RULES = [
    {"when": f'tool == "convert" && arguments.time.startsWith("19{n}") && principal != "ana"', "then": "deny"}
    for n in range(10)
]
SHAPE = {"convert": {"description": "Convert a time.", "arguments": {"offset_hours": {"default": 0}}}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ARGUMENTS = {"time": "2026-01-01T12:00:00.000000+00:00", "offset_hours": 0}
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "convert",
}


def configuration(folder: Path, *, full: bool) -> Path:
    """Write the configuration of one of the two gateways."""
    program = command("clock")
    server: dict[str, Any] = {"command": program[0], "args": list(program[1:]), "max_concurrency": 64}
    document: dict[str, Any] = {"mcpServers": {"clock": server}, "style": "raw"}
    if full:
        server["transforms"] = SHAPE
        document["policy"] = {"rules": RULES}
        document["gateway"] = {
            "access_log": {"path": str(folder / "access.log"), "format": "json"},
            "audit": {"path": str(folder / "audit.log")},
            "metrics": {"principals": True},
        }
    file = folder / ("full.json" if full else "plain.json")
    file.write_text(json.dumps(document))
    return file


async def serve(file: Path) -> tuple[asyncio.subprocess.Process, str]:
    words = ["--config", str(file), "--no-lock", "--json", "serve", "--http", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", *words), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())["url"]


def cpu_seconds(process: asyncio.subprocess.Process) -> float:
    """Return the CPU time of another process, all threads, in nanosecond steps: its clock in Linux."""
    return time.clock_gettime((~process.pid << 3) | 2)


Rate = tuple[float, float]
_numbers = count(1)


async def rate(
    http: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process, *, new: bool = False
) -> Rate:
    """Return calls a second, and microseconds of the gateway's CPU for one call; `new`: each call has a time
    that did not occur before."""
    left = CALLS

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            moment = f"2026-01-01T12:00:00.{next(_numbers):06}+00:00"
            arguments = {**ARGUMENTS, "time": moment} if new else ARGUMENTS
            params = {"name": "convert", "arguments": arguments, "_meta": META}
            body = {"jsonrpc": "2.0", "id": left + 1, "method": "tools/call", "params": params}
            async with http.post(url, json=body, headers=HEADERS) as answer:
                found = await answer.json(content_type=None)
            if found["result"].get("isError"):
                raise RuntimeError(found)

    before, started = cpu_seconds(process), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    took, spent = time.perf_counter() - started, cpu_seconds(process) - before
    return CALLS / took, spent / CALLS * 1e6


async def measure(folder: Path) -> list[tuple[Rate, Rate, Rate]]:
    """Return for each round the rate and the CPU of the plain gateway, and those of the full one: with known
    and with new arguments."""
    served = [await serve(configuration(folder, full=full)) for full in (False, True)]
    rounds = list[tuple[Rate, Rate, Rate]]()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            for number in range(ROUNDS + 1):
                plain, full = [await rate(http, url, process) for process, url in served]
                process, url = served[1]
                fresh = await rate(http, url, process, new=True)
                if number:  # the first round warms up
                    rounds.append((plain, full, fresh))
    finally:
        for process, _ in served:
            process.terminate()
            await process.wait()
    return rounds


def report(rounds: list[tuple[Rate, Rate, Rate]]) -> tuple[str, float]:
    """Return a table, and the larger loss of calls a second in percent."""
    rates = [median(one[side][0] for one in rounds) for side in range(3)]
    spent = [median(one[side][1] for one in rounds) for side in range(3)]
    loss, loss_new = [(1 - median(one[side][0] / one[0][0] for one in rounds)) * 100 for side in (1, 2)]
    more, more_new = [(median(one[side][1] / one[0][1] for one in rounds) - 1) * 100 for side in (1, 2)]
    lines = [
        "# Cost of logs, metrics, rules and a transform together",
        "",
        f"Written by `python bench/team_overhead.py`: {ROUNDS} rounds of {CALLS} calls to each of two",
        f"gateways, in turns, {IN_FLIGHT} in flight. Access log, audit log with hashed arguments, metrics by",
        "principal, ten rules that all look at the arguments of the tool, and a transform with a default.",
        "The last row has new values in every call. Medians; percentages are medians of the ratios of the",
        "rounds.",
        "",
        "| | calls a second | | CPU of the gateway for a call | |",
        "|---|---|---|---|---|",
        f"| switched off | {rates[0]:.0f} | | {spent[0]:.0f} µs | |",
        f"| switched on | {rates[1]:.0f} | {-loss:+.1f} % (goal: at most -{LIMIT:g} %) | {spent[1]:.0f} µs "
        f"| {more:+.1f} % |",
        f"| switched on, new arguments | {rates[2]:.0f} | {-loss_new:+.1f} % (goal: the same) "
        f"| {spent[2]:.0f} µs | {more_new:+.1f} % |",
    ]
    return "\n".join(lines) + "\n", max(loss, loss_new)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        text, loss = report(asyncio.run(measure(Path(folder))))
    RESULTS.write_text(text)
    print(text)
    return int(loss > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
