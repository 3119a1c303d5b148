"""A real host behind a real gateway on a loopback port, and raw clients of both eras in front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import anyio
import pytest

from mooring import Host, HostConfig
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.gateway.serve import Serving, serve_http
from mooring.transport.forwarding import ClientBridge
from tests.lab.caller import Caller


@dataclass
class Setting:
    """A gateway that runs, and clients for it."""

    host: Host
    serving: Serving
    http: aiohttp.ClientSession

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.serving.port}"

    async def caller(
        self,
        *,
        modern: bool = True,
        path: str = "/mcp",
        token: str | None = None,
        capabilities: dict[str, Any] | None = None,
    ) -> Caller:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        caller = Caller(self.http, self.base + path, modern=modern, headers=headers)
        await caller.begin(capabilities)
        return caller


@asynccontextmanager
async def _serving(
    *servers: Any,
    style: Any = "raw",
    whole: ProfileSettings | None = None,
    gateway: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    cache: bool = False,
    **more: Any,
) -> AsyncIterator[Setting]:
    config = HostConfig(
        servers=tuple(servers), style=style, gateway=GatewaySettings(**(gateway or {})), **more
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(90))
        host = await stack.enter_async_context(Host(config, lock=cache, relay=ClientBridge()))
        await host.ready(20)
        serving = await stack.enter_async_context(serve_http(host, default_profile=whole, **(options or {})))
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)))
        yield Setting(host, serving, http)


@pytest.fixture
def serving() -> Callable[..., Any]:
    """`async with serving(server, …) as here`: a gateway in front of these servers, ready."""
    return _serving
