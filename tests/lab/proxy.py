"""A small real proxy on loopback: tunnels (CONNECT) and forwards (plain HTTP), counts what passes, and wants
a login if configured. It resolves some names that DNS does not have."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import suppress
from urllib.parse import urlsplit


class ProxyLab:
    def __init__(self, *, login: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.login, self.tls = login, tls
        self.asked: list[tuple[str, str]] = []
        """The method and the `host:port` of each first request on a connection."""
        self.refused = 0
        self.names: dict[str, str] = {}
        """Name -> the address it means."""
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ProxyLab:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def targets(self) -> set[str]:
        return {target for _, target in self.asked}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._pass(reader, writer)
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        place = urlsplit(f"//{target}" if method == "CONNECT" else target)
        self.asked.append((method, f"{place.hostname}:{place.port}"))
        if self.login is not None:
            wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
            if headers.get("proxy-authorization") != wanted:
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                return
        host = self.names.get(place.hostname or "", place.hostname or "")
        there, back = await asyncio.open_connection(host, place.port or 80)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            path = place._replace(scheme="", netloc="").geturl() or "/"
            kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:"))]
            whole = [f"{method} {path} HTTP/1.1", "Connection: close", *kept]  # so that each request is seen
            back.write("\r\n".join(whole).encode("latin-1"))
        async with asyncio.TaskGroup() as both:
            both.create_task(_pour(reader, back))
            both.create_task(_pour(there, writer))


async def _pour(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            drain.write(data)
            await drain.drain()
    with suppress(OSError):
        drain.close()
