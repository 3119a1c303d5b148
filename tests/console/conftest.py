"""A console over real servers, and a client that has logged in with the printed address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from mooring import Host
from mooring.console.app import Console, add_console, serve_console
from mooring.console.inbox import Inbox
from mooring.console.journal import apply
from mooring.console.wire import Wire
from mooring.gateway.serve import serve_http
from mooring.transport.forwarding import ClientBridge


@dataclass
class Page:
    """A browser at the console, as far as HTTP goes."""

    console: Console
    address: str
    http: aiohttp.ClientSession
    host: Host
    csrf: str = ""
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return self.address.removesuffix("/console/")

    async def log_in(self) -> None:
        async with self.http.get(f"{self.address}?token={self.console.access.ticket()}") as answer:
            assert answer.status == 200, await answer.text()
        self.csrf = (await self.get("session"))["csrf"]

    async def get(self, name: str) -> Any:
        async with self.http.get(f"{self.address}api/{name}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def get_status(self, name: str) -> int:
        async with self.http.get(f"{self.address}{name}") as answer:
            return answer.status

    async def post(self, verb: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = {"X-Mooring-CSRF": self.csrf, "Content-Type": "application/json", **headers}
        async with self.http.post(
            f"{self.address}api/{verb}", data=json.dumps(body or {}), headers=sent
        ) as answer:
            return answer.status, await answer.json()

    async def do(self, verb: str, **body: Any) -> Any:
        status, said = await self.post(verb, body)
        assert status == 200, said
        return said

    async def refused(self, verb: str, **body: Any) -> tuple[int, str]:
        status, said = await self.post(verb, body)
        assert status >= 400, said
        return status, said["error"]["message"]

    async def events(self, since: str = "") -> AsyncIterator[tuple[str, str, Any]]:
        """Id, kind and data of each event."""
        async with self.http.get(f"{self.address}api/events?since={since}") as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, str] = {}
            async for raw in answer.content:
                line = raw.decode().rstrip("\n")
                if line and not line.startswith(":"):
                    key, _, value = line.partition(": ")
                    found[key] = value
                elif not line and found:
                    yield found["id"], found["event"], json.loads(found["data"])
                    found = {}

    async def until(self, wanted: Callable[[Mapping[str, Any]], Any], seconds: float = 30.0) -> Any:
        """Follow the stream from a snapshot until the state is as wanted; return what `wanted` returned."""
        self.state = await self.get("state")
        if found := wanted(self.state):
            return found
        with anyio.fail_after(seconds):
            async for _, kind, data in self.events(f"{self.state['epoch']}-{self.state['rev']}"):
                if kind == "reset":
                    self.state = data
                else:
                    apply(self.state, data["ops"])
                    self.state["rev"] = data["rev"]
                if found := wanted(self.state):
                    return found
        raise AssertionError("the stream ended")

    def row(self, table: str, key: str) -> dict[str, Any] | None:
        return next((row for row in self.state["tables"][table] if row["id"] == key), None)


@asynccontextmanager
async def _opened(
    *servers: Any,
    config: Path | None = None,
    gateway: bool = False,
    login: bool = True,
    cluster: Any = None,
    large: int = 2**20,
    **options: Any,
) -> AsyncIterator[Page]:
    inbox, wire = Inbox(), Wire()
    asked = {"on_approval": inbox.approve, "on_elicit": inbox.elicit, "on_auth": inbox.log_in}
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(90))
        stack.enter_context(wire.following())
        given: Any = {"relay": ClientBridge(), **asked, **options}
        host = Host(servers, **given) if config is None else Host.from_config(config, **given)
        host = await stack.enter_async_context(host)
        files = None if config is None else [config]
        if gateway:
            serving = await stack.enter_async_context(serve_http(host))
            shown = add_console(serving, inbox, wire, files=files, cluster=cluster)
        else:
            shown = serve_console(host, inbox, wire, files=files, cluster=cluster)
        console, address = await stack.enter_async_context(shown)
        timeout = aiohttp.ClientTimeout(total=60)
        jar = aiohttp.CookieJar(unsafe=True)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=timeout, cookie_jar=jar, read_bufsize=large)
        )
        page = Page(console, address, http, host)
        if login:
            await page.log_in()
        yield page


@pytest.fixture
def opened() -> Callable[..., Any]:
    """`async with opened(server, …) as page`: a console over these servers, logged in."""
    return _opened


from tests.gateway.conftest import serving as serving  # noqa: E402
