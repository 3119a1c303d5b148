"""What a synchronous call costs over an awaited one, and how 32 threads fare.

Run it: `python bench/sync_overhead.py`.

Exits with 1 when the median overhead is 0.5 ms or more, or when any thread got a wrong answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from mooring import Host, ServerConfig, SyncHost
from mooring.demo import command

ROUNDS, CALLS, THREADS, EACH = 9, 300, 32, 200
TOOL = "mcp_clock_convert"
LIMIT = 0.5


def _server() -> ServerConfig:
    program, *args = command("clock")
    return ServerConfig(name="clock", command=program, args=tuple(args))


def _arguments(minute: int) -> dict[str, str | int]:
    return {"time": f"2026-01-01T12:{minute % 60:02d}+00:00", "offset_hours": 0}


async def _awaited(calls: int) -> float:
    async with Host([_server()], lock=False) as host:
        await host.ready()
        taken: list[float] = []
        for number in range(calls):
            started = time.perf_counter()
            await host.call(TOOL, _arguments(number), check=True)
            taken.append(time.perf_counter() - started)
        return median(taken)


def _blocking(host: SyncHost, calls: int) -> float:
    taken: list[float] = []
    for number in range(calls):
        started = time.perf_counter()
        host.call(TOOL, _arguments(number), check=True)
        taken.append(time.perf_counter() - started)
    return median(taken)


def _crowd(host: SyncHost) -> tuple[float, int]:
    """Seconds that 32 threads take for 200 calls each, and how many answers were not their own."""

    def work(thread: int) -> int:
        minutes = [(thread * 7 + turn) % 60 for turn in range(EACH)]
        texts = [host.call(TOOL, _arguments(minute), check=True).text for minute in minutes]
        return sum(f":{minute:02d}" not in text for minute, text in zip(minutes, texts, strict=True))

    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        wrong = sum(threads.map(work, range(THREADS)))
    return time.perf_counter() - started, wrong


def main() -> int:
    with SyncHost([_server()], lock=False) as host:
        host.ready()
        # In turns, so that a busy machine is fair to both.
        pairs = [(asyncio.run(_awaited(CALLS)) * 1000, _blocking(host, CALLS) * 1000) for _ in range(ROUNDS)]
        seconds, wrong = _crowd(host)
    overhead = median(blocking - awaited for awaited, blocking in pairs)
    print(f"awaited p50     {median(pair[0] for pair in pairs):.3f} ms")
    print(f"blocking p50    {median(pair[1] for pair in pairs):.3f} ms")
    print(f"overhead        {overhead:.3f} ms (limit {LIMIT} ms)")
    print(
        f"{THREADS} x {EACH} calls  {seconds:.2f} s, {THREADS * EACH / seconds:.0f} a second, {wrong} wrong"
    )
    return int(overhead >= LIMIT or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
