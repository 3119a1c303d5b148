"""Cost of access log, audit log, metrics, rules and a transform together, at 64 calls in flight.

Run it: `python bench/team_overhead.py`. Two gateways serve the same server, one with everything switched on;
rounds alternate between them. Writes bench/results/team_overhead.json. Exits with 1 above 15 %.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psutil

from mooring.demo import command

ROUNDS, CALLS, IN_FLIGHT, LIMIT = 9, 1_000, 64, 15.0
RESULTS = Path(__file__).with_name("results") / "team_overhead.json"
RULES = [
    {"when": f'tool == "convert" && arguments.time.startsWith("19{n}") && principal != "ana"', "then": "deny"}
    for n in range(10)
]
SHAPE = {"convert": {"description": "Convert a time.", "arguments": {"offset_hours": {"default": 0}}}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ARGUMENTS = {"time": "2026-01-01T12:00+00:00", "offset_hours": 0}
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
    text = b""
    while b"}" not in text:
        text += await process.stdout.readline()
    return process, json.loads(text)["url"]


async def rate(
    http: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process
) -> tuple[float, float]:
    """Return calls a second, and microseconds of the gateway's CPU for one call."""
    left = CALLS

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            params = {"name": "convert", "arguments": ARGUMENTS, "_meta": META}
            body = {"jsonrpc": "2.0", "id": left + 1, "method": "tools/call", "params": params}
            async with http.post(url, json=body, headers=HEADERS) as answer:
                found = await answer.json(content_type=None)
            if found["result"].get("isError"):
                raise RuntimeError(found)

    gateway = psutil.Process(process.pid)
    before, started = gateway.cpu_times(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    took, after = time.perf_counter() - started, gateway.cpu_times()
    spent = after.user + after.system - before.user - before.system
    return CALLS / took, spent / CALLS * 1e6


async def measure(folder: Path) -> dict[str, float]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[float]] = {False: [], True: []}
    served = {full: await serve(configuration(folder, full=full)) for full in (False, True)}
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            for number in range(ROUNDS + 1):
                for full, (process, url) in served.items():
                    found = await rate(http, url, process)
                    if number:  # the first round warms up
                        rates[full].append(found[0])
                        spent[full].append(found[1])
    finally:
        for process, _ in served.values():
            process.terminate()
            await process.wait()
    plain, full = median(rates[False]), median(rates[True])
    return {
        "calls_per_second_plain": round(plain, 1),
        "calls_per_second_full": round(full, 1),
        "overhead_percent": round((1 - full / plain) * 100, 1),
        "cpu_us_per_call_plain": round(median(spent[False]), 1),
        "cpu_us_per_call_full": round(median(spent[True]), 1),
    }


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder)))
    RESULTS.write_text(f"{json.dumps(found, indent=2)}\n")
    print(json.dumps(found, indent=2))
    return int(found["overhead_percent"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
