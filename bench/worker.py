"""One contestant in a process of its own: `python -m bench.worker NAME`.

Reads one JSON command per line from standard input and answers each with one JSON line on standard output:
`open` (servers), `burst` (calls on what is open), `idle`, `close`. A command that fails answers `error`.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from bench.clients import Clients
from bench.vocabulary import SERVERS, definitions, questions

Answer = dict[str, Any]


class Holding:
    """A set of connected servers. One task enters and leaves the contestant's context."""

    def __init__(self, contestant: ModuleType, servers: list[dict[str, Any]]) -> None:
        self._leave = asyncio.Event()
        self._clients: asyncio.Future[Clients] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(contestant, servers))

    async def opened(self) -> Clients:
        await asyncio.wait({self._clients, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not self._clients.done():
            await self._task
        return self._clients.result()

    async def close(self) -> None:
        self._leave.set()
        await self._task

    async def _hold(self, contestant: ModuleType, servers: list[dict[str, Any]]) -> None:
        async with contestant.connect(servers) as clients:
            self._clients.set_result(clients)
            await self._leave.wait()


class Worker:
    """Carries out the commands."""

    def __init__(self, contestant: ModuleType) -> None:
        self._contestant = contestant
        self._held: dict[str, tuple[Holding, Clients]] = {}

    async def do(self, command: dict[str, Any]) -> Answer:
        verb: Callable[..., Awaitable[Answer]] = getattr(self, f"do_{command.pop('do')}")
        return await verb(**command)

    async def do_hello(self) -> Answer:
        return {"versions": {name: _version(name) for name in self._contestant.PACKAGES}}

    async def do_open(self, key: str, servers: list[dict[str, Any]]) -> Answer:
        """Connect and list `servers`; memory is compared after a full collection on both sides."""
        gc.collect()
        memory, meter = _memory(), Meter()
        holding = Holding(self._contestant, servers)
        clients = await holding.opened()
        spent = meter.read()
        self._held[key] = holding, clients
        finished = {"at": time.monotonic(), "cpu_since_start": time.process_time()}
        gc.collect()
        return {
            **spent,
            **finished,
            "tools": clients.tools,
            "memory": _memory() - memory,
        }

    async def do_burst(
        self, key: str, tool: str, arguments: dict[str, Any], calls: int, in_flight: int, expect: int
    ) -> Answer:
        """`calls` calls with `in_flight` of them at any time. Each must bring `expect` characters."""
        _, clients = self._held[key]
        times: list[float] = []

        async def lane() -> None:
            for _ in range(calls // in_flight):
                begun = time.perf_counter()
                text = await clients.call("s0", tool, arguments)
                times.append(time.perf_counter() - begun)
                if len(text) != expect:
                    raise ValueError(f"{tool!r} brought {len(text)} characters instead of {expect}")

        meter = Meter()
        if in_flight == 1:
            await lane()
        else:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(in_flight):
                    tasks.create_task(lane())
        return {**meter.read(), "times": times}

    async def do_search(self, queries: int) -> Answer:
        """Index ten thousand tools and ask: the first question pays for the index where that is made late."""
        asked, servers = questions(queries), [definitions(number, number) for number in range(SERVERS)]
        meter = Meter()
        ask = await self._contestant.searcher(servers)
        await ask(asked[0])
        built = meter.read()
        times: list[float] = []
        for query in asked[1:]:
            begun = time.perf_counter()
            await ask(query)
            times.append(time.perf_counter() - begun)
        return {"index": built["wall"], "times": times}

    async def do_idle(self, seconds: float) -> Answer:
        meter = Meter()
        await asyncio.sleep(seconds)
        return meter.read()

    async def do_close(self, key: str) -> Answer:
        meter = Meter()
        holding, _ = self._held.pop(key)
        await holding.close()
        return meter.read()


class Meter:
    """Wall and CPU seconds (user and system, all threads, no children) since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Answer:
        return {"wall": time.perf_counter() - self._wall, "cpu": time.process_time() - self._cpu}


def _memory() -> float:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from its sources
        return getattr(importlib.import_module(distribution), "__version__", "?")


async def serve(worker: Worker, answers: BinaryIO) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    while line := await reader.readline():
        try:
            answer = await worker.do(json.loads(line))
        except Exception as problem:
            answer = {"error": _problem(problem)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _problem(problem: BaseException) -> str:
    while inner := getattr(problem, "exceptions", None):  # a group says nothing by itself
        problem = inner[0]
    return f"{type(problem).__name__}: {problem}"


def main() -> None:
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    contestant = importlib.import_module(f"bench.contestants.{sys.argv[1]}")
    asyncio.run(serve(Worker(contestant), answers))


if __name__ == "__main__":
    main()
