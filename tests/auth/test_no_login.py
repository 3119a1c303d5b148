"""Servers that refuse access and have no OAuth login: the tool `authenticate` explains what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from mooring import AuthNeeded, ServerConfig

pytestmark = pytest.mark.anyio


@pytest.fixture
async def closed() -> AsyncIterator[str]:
    """The address of a server that answers every request with 401."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", refuse)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    await runner.cleanup()


@pytest.mark.parametrize(
    "settings",
    [{}, {"headers": {"Authorization": "Bearer wrong"}}, {"auth": {"type": "none"}}, {"transport": "sse"}],
    ids=["nothing", "headers", "no auth", "sse"],
)
async def test_a_server_without_oauth_offers_authenticate_with_an_explanation(
    settings: dict[str, Any], closed: str, hosting: Any
) -> None:
    server = ServerConfig(name="web", url=closed, **settings)
    async with hosting(server, style="double") as host:
        assert [status.state for status in host.status()] == ["needs-auth"]
        assert list(host.catalog.tools) == ["mcp__web__authenticate"]
        assert "not possible" in host.catalog.tools["mcp__web__authenticate"].description
        result = await host.call("mcp__web__authenticate")
        assert isinstance(result.error, AuthNeeded)
        assert "HTTP 401" in result.text
        assert "`headers`" in result.text
        assert "login in a browser is not possible" in result.text
        assert [status.state for status in host.status()] == ["needs-auth"]
        await host.remove("web")
        assert list(host.catalog.tools) == []
