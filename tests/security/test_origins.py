"""TH15: data for one origin is sent to no other."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.lab.http import HttpLab

pytestmark = pytest.mark.anyio

HEADERS = {"Authorization": "Bearer planted-4711", "X-Api-Key": "planted-4712"}


async def test_TH15_credentials_do_not_follow_a_redirect_to_another_origin(hosting: Any) -> None:
    async with HttpLab() as lab, HttpLab() as other:

        async def away(request: web.Request, message: dict[str, Any]) -> web.Response:
            return web.Response(status=307, headers={"Location": other.url})

        for method in ("server/discover", "initialize"):
            lab.faults[method] = away
        async with hosting(lab.config(headers=HEADERS, transport="streamable-http")) as host:
            [status] = host.status()
            assert status.state == "failed"
            assert "points to another origin" in (status.error or "")
        assert other.seen == []


async def test_TH15_an_old_server_cannot_send_requests_to_another_origin(hosting: Any) -> None:
    async with HttpLab() as other:

        async def stream(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            await answer.write(f"event: endpoint\ndata: {other.url}\n\n".encode())
            await answer.write_eof()
            return answer

        app = web.Application()
        app.router.add_get("/sse", stream)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/sse"
            async with hosting(other.config(url=url, headers=HEADERS, transport="sse")) as host:
                [status] = host.status()
                assert status.state == "failed"
                assert "another origin" in (status.error or "")
        finally:
            await runner.cleanup()
        assert other.seen == []
