"""Speed and size of the search at 10,000 tools: `python bench/search_speed.py`."""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `bench` is a package

from bench.vocabulary import SERVERS, definitions, questions
from mooring.core.catalog import merge
from mooring.core.search import Index
from mooring.core.types import ServerInfo, Snapshot, Tool


def snapshot(number: int, seed: int) -> Snapshot:
    server = f"server{number}"
    about, tools = definitions(number, seed)
    return Snapshot(
        server=server,
        info=ServerInfo(description=about),
        tools=tuple(
            Tool(
                name=entry["name"],
                server=server,
                remote_name=entry["name"],
                description=entry["description"],
                input_schema=entry["inputSchema"],
            )
            for entry in tools
        ),
    )


def timed(what: str, run: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    value = run()
    print(f"{what}: {(time.perf_counter() - start) * 1000:.1f} ms")
    return value


def main() -> None:
    snapshots = [snapshot(number, number) for number in range(SERVERS)]
    catalog = timed("merge", lambda: merge(snapshots))
    index = timed("index", lambda: Index.build(catalog.tools, catalog.groups))
    queries = questions(400)
    times: list[float] = []
    for query in queries * 2:
        start = time.perf_counter()
        index.search(query, 10)
        times.append((time.perf_counter() - start) * 1000)
    warm = sorted(times[len(queries) :])
    print(f"query: p50 {statistics.median(warm):.3f} ms, p95 {warm[int(len(warm) * 0.95)]:.3f} ms")
    snapshots[3] = snapshot(3, 1_000)
    changed = timed("merge again, one server changed", lambda: merge(snapshots, previous=catalog))
    timed("index again, one server changed", lambda: index.updated(changed))
    tracemalloc.start()
    kept = Index.build(catalog.tools, catalog.groups)
    for query in queries:
        kept.search(query, 10)
    print(f"memory: {tracemalloc.get_traced_memory()[0] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
