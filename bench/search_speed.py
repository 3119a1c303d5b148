"""Speed and size of the search at 10,000 tools: `python bench/search_speed.py`."""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from mooring.core.catalog import merge
from mooring.core.search import Index
from mooring.core.types import ServerInfo, Snapshot, Tool

SERVERS, TOOLS = 100, 100
VERBS = (
    "get",
    "list",
    "create",
    "delete",
    "update",
    "search",
    "send",
    "read",
    "write",
    "run",
    "export",
    "convert",
)
STARTS = (
    "mar",
    "ten",
    "vol",
    "sil",
    "cor",
    "pad",
    "lum",
    "fer",
    "gan",
    "zet",
    "bri",
    "hol",
    "dra",
    "nex",
    "pol",
)
MIDDLES = ("a", "en", "ic", "us", "or", "ib", "ad", "ow", "il", "um")
ENDS = ("ta", "ler", "gon", "mic", "sta", "vent", "port", "rick", "dle", "ra")
NOUNS = [start + middle + end for start in STARTS for middle in MIDDLES for end in ENDS]
random.Random(0).shuffle(NOUNS)


def word(rng: random.Random) -> str:
    """Return one of 1,500 nouns, the first ones far more often: as words are in a language."""
    return NOUNS[int(len(NOUNS) * rng.random() ** 3)]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(word(rng) for _ in range(length))


def tool(server: str, number: int, rng: random.Random) -> Tool:
    name = f"{rng.choice(VERBS)}_{word(rng)}_{word(rng)}_{number}"
    properties: dict[str, Any] = {
        f"{word(rng)}_{kind}": {"type": "string", "description": f"The {sentence(rng, 8)}."}
        for kind in ("id", "name", "filter")
    }
    return Tool(
        name=name,
        server=server,
        remote_name=name,
        description=f"{rng.choice(VERBS).title()} the {sentence(rng, 20)} and return it.",
        input_schema={"type": "object", "properties": properties},
    )


def snapshot(number: int, seed: int) -> Snapshot:
    rng, server = random.Random(seed), f"server{number}"
    return Snapshot(
        server=server,
        info=ServerInfo(description=f"Works with {sentence(rng, 15)}."),
        tools=tuple(tool(server, i, rng) for i in range(TOOLS)),
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
    rng = random.Random(7)
    queries = [f"{rng.choice(VERBS)} {sentence(rng, rng.randint(1, 6))}" for _ in range(400)]
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
