"""The HTTP servers of the soak, in a process of their own: `python -m tests.soak.web '[…]'`.

Prints the port of each, then obeys one JSON command a line:
`{"server": 3, "fault": "reset after", "for": 0.5}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.lab.http import HttpLab

STATUSES = {"429": 429, "500": 500, "502": 502, "503": 503}


class SoakLab(HttpLab):
    """A laboratory whose tools stand in a file, whose effects are counted, and which fails on command."""

    def __init__(self, folder: str, name: str, **options: Any) -> None:
        self.file, self.effects = Path(folder, f"{name}.tools"), Path(folder, f"{name}.effects")
        super().__init__(tools=tuple(self.file.read_text().split()), **options)
        self.trouble: str | None = None
        self.faults["tools/call"] = self._fault

    async def follow_file(self) -> None:
        while True:
            wanted = self.file.read_text().split()
            if wanted != self.tools:
                self.tools = wanted
                self.publish_change()
                self.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            await asyncio.sleep(0.05)

    async def obey(self, fault: str, seconds: float) -> None:
        if fault == "forget":
            self.live_sessions.clear()
        elif fault == "cut":
            self.cut_subscriptions()
            for queue in [*self._streams, *self._old.values()]:
                queue.put_nowait(None)
        elif fault == "restart":
            await self.__aexit__()
            self.live_sessions.clear()
            await asyncio.sleep(seconds)
            await self.__aenter__()
        else:
            self.trouble = fault
            await asyncio.sleep(seconds)
            self.trouble = None

    async def _fault(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        trouble = self.trouble
        if trouble is None:
            return None
        if trouble in STATUSES:
            return web.Response(status=STATUSES[trouble], text="on purpose", headers={"Retry-After": "0"})
        if trouble == "page":
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        if trouble == "hang":
            await asyncio.sleep(30)
        if trouble == "reset after":
            await self.reply(message, modern=False)
        if trouble == "half an answer":
            await self.reply(message, modern=False)
            assert request.transport is not None
            request.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "effect":
            with self.effects.open("a") as file:
                file.write(f"{arguments['n']}\n")
            return {"content": [{"type": "text", "text": f"done {arguments['n']}"}]}
        return await super()._call(name, arguments)


async def main(folder: str, plans: list[dict[str, Any]]) -> None:
    labs = [SoakLab(folder, **plan) for plan in plans]
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    for lab in labs:
        await lab.__aenter__()
        tasks.add(asyncio.create_task(lab.follow_file()))
    print(json.dumps([lab.port for lab in labs]), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        task = asyncio.create_task(labs[command["server"]].obey(command["fault"], command["for"]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    for lab in labs:
        await lab.__aexit__()


if __name__ == "__main__":
    logging.disable()  # it complains about connections that are cut on purpose
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
