"""Pages of tools (MCP Apps): served once, on another origin, without any rights of the console."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import anyio
import pytest

from mooring.console.views import MOST_VIEWS
from mooring.testing import FakeServer

pytestmark = pytest.mark.anyio

MIME = "text/html;profile=mcp-app"
HTML = "<!doctype html><p>the page</p><script>parent.postMessage(1, '*')</script>"


def with_page(server: FakeServer) -> None:
    meta = {"ui": {"resourceUri": "ui://shop/chart"}}
    definition = {
        "name": "chart",
        "description": "A chart.",
        "inputSchema": {"type": "object"},
        "_meta": meta,
    }
    server.define(definition, "shown")
    server.define({"name": "plain", "description": "No page.", "inputSchema": {"type": "object"}}, "x")
    server.resource("ui://shop/chart", HTML, name="chart", mime_type=MIME)


async def messages(page: Any, view: str) -> Any:
    async with page.http.get(f"{page.address}api/view?view={view}") as answer:
        assert answer.status == 200, await answer.text()
        kind = ""
        async for raw in answer.content:
            line = raw.decode().strip()
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                yield kind, json.loads(line[6:])


async def test_the_page_of_a_tool_speaks_with_its_server_through_the_console(opened: Any) -> None:
    async with FakeServer("shop") as shop:
        with_page(shop)
        async with opened(shop.http()) as page:
            await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
            assert (await page.until(lambda _: page.row("tools", "mcp_shop_chart")))["app"] is True
            key = (await page.do("call", tool="mcp_shop_chart", arguments={"n": 1}))["id"]
            await page.until(lambda _: page.row("tries", key)["state"] == "ok")
            opened_view = await page.do("view-open", tool="mcp_shop_chart", id=key)
            sandbox = (await page.get("session"))["sandbox"]
            assert opened_view["url"].startswith(f"{sandbox}/view/")
            assert sandbox.rpartition(":")[2] != page.origin.rpartition(":")[2]
            async with aiohttp.ClientSession() as plain, plain.get(opened_view["url"]) as answer:
                assert (answer.status, await answer.text()) == (200, HTML)
                policy = answer.headers["Content-Security-Policy"]
                assert "sandbox allow-scripts;" in policy
                assert f"frame-ancestors {page.origin}" in policy
                assert "allow-same-origin" not in policy
                assert "Set-Cookie" not in answer.headers
            async with aiohttp.ClientSession() as plain, plain.get(opened_view["url"]) as answer:
                assert answer.status == 404, "an address of a page works once"
            view = opened_view["view"]
            said: list[Any] = []

            async def send(**message: Any) -> None:
                await page.do("view-message", view=view, message={"jsonrpc": "2.0", **message})

            with anyio.fail_after(20):
                stream = messages(page, view)
                await send(id=1, method="ui/initialize", params={})
                said.append(await anext(stream))
                await send(method="ui/notifications/initialized", params={})
                said += [await anext(stream), await anext(stream)]
                await send(id=2, method="tools/call", params={"name": "plain", "arguments": {}})
                said.append(await anext(stream))
                await send(id=3, method="ui/open-link", params={"url": "https://example.com/"})
                said += [await anext(stream), await anext(stream)]
                await send(id=4, method="tools/call", params={"name": "other", "arguments": {}})
                said.append(await anext(stream))
            kinds = [kind for kind, _ in said]
            assert kinds == ["message"] * 4 + ["link", "message", "message"]
            assert said[0][1]["result"]["hostInfo"]["name"] == "mooring"
            assert said[1][1]["params"] == {"arguments": {"n": 1}}
            assert said[2][1]["params"]["content"][0]["text"] == "shown"
            assert said[3][1]["result"]["content"][0]["text"] == "x"
            assert said[4][1] == {"url": "https://example.com/"}
            assert "error" in said[6][1]
            await page.do("view-close", view=view)
            assert (await page.post("view-message", {"view": view, "message": {}}))[0] == 404
            await stream.aclose()


async def test_a_page_is_shown_around_the_address_at_which_the_console_is_open(opened: Any) -> None:
    async with FakeServer("shop") as shop:
        with_page(shop)
        async with opened(shop.http()) as page:
            await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
            local = page.origin.replace("127.0.0.1", "localhost")
            for origin in (page.origin, local):
                view = await page.do("view-open", tool="mcp_shop_chart", origin=origin)
                async with aiohttp.ClientSession() as plain, plain.get(view["url"]) as answer:
                    assert answer.headers["Content-Security-Policy"].endswith(f"frame-ancestors {origin}")
            tunnel = page.origin.rpartition(":")[0] + ":1"
            for origin in (tunnel, "https://console.example", local.replace("localhost", "[::1]"), "", "*"):
                status, why = await page.refused("view-open", tool="mcp_shop_chart", origin=origin)
                assert (status, f"opened at {page.origin}/" in why) == (409, True)


async def test_the_second_port_serves_nothing_else(opened: Any) -> None:
    async with FakeServer("shop") as shop:
        with_page(shop)
        async with opened(shop.http()) as page:
            sandbox = (await page.get("session"))["sandbox"]
            for path in ("/", "/console/", "/console/api/state", "/view/", "/view/x", "/mcp", "/view/../"):
                async with page.http.get(sandbox + path) as answer:
                    assert answer.status == 404, path
                    assert "sandbox" in answer.headers["Content-Security-Policy"]
            await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
            view = await page.do("view-open", tool="mcp_shop_chart")
            async with page.http.get(view["url"], headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
            async with page.http.post(view["url"]) as answer:
                assert answer.status == 404


async def test_pages_are_limited_and_end_with_the_page_of_the_console(opened: Any) -> None:
    async with FakeServer("shop") as shop:
        with_page(shop)
        async with opened(shop.http()) as page:
            await page.until(lambda state: state["values"]["totals"].get("connected") == 1)
            status, why = await page.refused("view-open", tool="mcp_shop_plain")
            assert (status, "has no page" in why) == (409, True)
            views = [(await page.do("view-open", tool="mcp_shop_chart"))["view"] for _ in range(MOST_VIEWS)]
            assert (await page.refused("view-open", tool="mcp_shop_chart"))[0] == 429
            stream = messages(page, views[0])
            await page.do(
                "view-message", view=views[0], message={"jsonrpc": "2.0", "id": 1, "method": "ping"}
            )
            assert (await anext(stream))[1]["result"] == {}
            assert (await page.get_status(f"api/view?view={views[0]}")) == 404, "one reader of each page"
            await stream.aclose()
            with anyio.fail_after(20):
                while (await page.post("view-message", {"view": views[0], "message": {}}))[0] != 404:
                    await anyio.sleep(0.05)
