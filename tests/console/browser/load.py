"""A console over many servers, for the tests of speed: python -m tests.console.browser.load SERVERS TOOLS

Prints `{"url": …}`. A line `calls SECONDS RATE` on standard input makes that many calls per second; it prints
`{"calls": N, "gap": MS}` when they are done: `gap` is the most CPU time that the event loop spent since the console was
started without running a timer that was due. The end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

from mooring import Host
from mooring.console.app import serve_console
from mooring.console.inbox import Inbox
from mooring.console.wire import Wire
from mooring.gateway.shutdown import collect_seldom
from mooring.testing import FakeServer

WORDS = "list create update delete search export merge review archive assign close open read write copy move".split()
THINGS = (
    "issue branch file note page ticket invoice booking contact message image chart build release".split()
)


def server(number: int, tools: int) -> FakeServer:
    made = FakeServer(f"server{number:02}")
    properties = {"id": {"type": "string", "description": "Which one"}, "limit": {"type": "integer"}}
    for index in range(tools):
        verb, thing = WORDS[index % len(WORDS)], THINGS[index // len(WORDS) % len(THINGS)]
        description = f"{verb.title()} the {thing} that the identifier names, number {index}."
        schema = {"type": "object", "properties": properties}
        made.define(
            {"name": f"{verb}_{thing}_{index}", "description": description, "inputSchema": schema}, "ok"
        )
    return made


async def calls(host: Host, seconds: float, rate: float) -> int:
    """Make calls at a steady rate, at most 100 at a time."""
    names = [name for name in host.catalog.tools if "_server00_" in name or "_server01_" in name]
    limit, made, began = asyncio.Semaphore(100), 0, time.monotonic()
    running: set[asyncio.Task[None]] = set()

    async def one(name: str) -> None:
        async with limit:
            await host.call(name, {"id": "x"})

    while (now := time.monotonic() - began) < seconds:
        while made < now * rate:
            task = asyncio.create_task(one(names[made % len(names)]))
            running.add(task)
            task.add_done_callback(running.discard)
            made += 1
        await asyncio.sleep(0.02)
    await asyncio.gather(*running)
    return made


class Gaps:
    """Measures how long the event loop is busy, in CPU time: other programs do not count."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def follow(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.worst, last = max(self.worst, now - last), now


async def main(servers: int, tools: int) -> None:
    collect_seldom()
    inbox, wire, gaps = Inbox(), Wire(), Gaps()
    async with AsyncExitStack() as stack:
        stack.enter_context(wire.following())
        offers = [server(number, tools // servers + (number < tools % servers)) for number in range(servers)]
        for one in offers:
            await stack.enter_async_context(one)
        host = await stack.enter_async_context(Host([one.http() for one in offers], lock=False, home=None))
        await host.ready(120)
        following = asyncio.create_task(gaps.follow())
        stack.callback(following.cancel)
        running, address = await stack.enter_async_context(serve_console(host, inbox, wire, 0))
        print(json.dumps({"url": f"{address}?token={running.access.ticket()}"}), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            _, seconds, rate = line.split()
            made = await calls(host, float(seconds), float(rate))
            print(json.dumps({"calls": made, "gap": gaps.worst * 1000}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
