"""The library server as a child process or on loopback HTTP, and configurations for it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from mooring import ServerConfig
from tests.lab.http import HttpLab
from tests.lab.library import Library, reply

SCRIPT = Path(__file__).with_name("library.py")
PLACES = ("stdio legacy", "stdio modern", "http legacy", "http modern")
"""Every wire with every era."""


def library_server(
    name: str = "lib", /, *, settings: dict[str, Any] | None = None, **script: Any
) -> ServerConfig:
    """A library over stdio that follows `script`."""
    args = ("-I", "-S", str(SCRIPT), json.dumps(script))
    return ServerConfig(name=name, command=sys.executable, args=args, **(settings or {}))


@asynccontextmanager
async def library_at(place: str, name: str = "lib", /, **script: Any) -> AsyncIterator[ServerConfig]:
    """The configuration of a library on one of the wires, in one of the eras."""
    wire, era = place.split()
    settings = script.pop("settings", {})
    if wire == "stdio":
        yield library_server(name, settings=settings, era=era, **script)
        return
    async with HttpLibrary(era=era, **script) as lab:
        yield lab.config(name, **settings)


class HttpLibrary(HttpLab):
    """The library on a real loopback socket."""

    def __init__(self, *, era: str = "dual", **script: Any) -> None:
        super().__init__(era=era)
        self.library = Library({"era": era, **script}, self._push)
        self.library.finish = self._finish
        self._unfinished: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._held: dict[Any, asyncio.Queue[dict[str, Any] | None]] = {}
        self.faults["answer"] = self._take_answer

    def _push(self, message: dict[str, Any]) -> None:
        key = message.get("params", {}).get("_meta", {}).get("io.modelcontextprotocol/subscriptionId")
        if key in self._held:
            self._held[key].put_nowait(message)
        else:
            self.announce(message)

    def _finish(self, request_id: Any, result: dict[str, Any]) -> None:
        self._unfinished[request_id].set_result(result)

    async def _take_answer(self, request: web.Request, message: dict[str, Any]) -> None:
        self.library.answered(message)

    async def _listen(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        queue = self._held[message["id"]] = asyncio.Queue()
        self.library.listen(message["id"], message["params"]["notifications"])
        try:
            while (said := await queue.get()) is not None:
                await stream.write(f"data: {json.dumps(said)}\n\n".encode())
        finally:
            del self._held[message["id"]], self.library.listening[message["id"]]
        assert request.transport is not None
        request.transport.abort()
        return stream

    def cut_subscriptions(self) -> None:
        for queue in self._held.values():
            queue.put_nowait(None)

    async def reply(self, message: dict[str, Any], modern: bool) -> tuple[dict[str, Any], int]:
        request_id = message["id"]
        self._unfinished[request_id] = asyncio.get_running_loop().create_future()
        try:
            answer = reply(self.library, message)
            if answer is None:
                answer = {"jsonrpc": "2.0", "id": request_id, "result": await self._unfinished[request_id]}
        finally:
            del self._unfinished[request_id]
        return answer, 200


__all__ = ["PLACES", "HttpLibrary", "library_at", "library_server"]
