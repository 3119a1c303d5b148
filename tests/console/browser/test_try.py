"""The page Try with calls that are cancelled, tools that change while they are shown, and texts that deceive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mooring.testing import FakeServer, hang
from tests.console.browser.chromium import Chromium
from tests.console.browser.running import console
from tests.console.browser.test_data import good, opened
from tests.console.browser.test_pages import post, show

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(240)]

CONNECTED = "fetch('api/state').then((r) => r.json()).then((s) => s.values.totals.connected === 1)"


def shop(**properties: Any) -> FakeServer:
    server = FakeServer("shop")
    schema = {"type": "object", "properties": properties}
    server.define({"name": "price", "description": "What an item costs.", "inputSchema": schema}, "9.5 EUR")
    return server


async def test_a_call_is_cancelled_and_made_again(browser: Chromium, config: Any, project: Path) -> None:
    async with shop() as server:
        path = config({"mcpServers": {"shop": {"url": server.http().url}}})
        async with console(project, path) as here:
            page = await opened(browser, here.url)
            await page.until(CONNECTED)
            server.fail("price", hang)
            await show(page, "try/mcp_shop_price")
            await page.click("button[type=submit]", "Call")
            await page.click("[aria-label=Result] button", "Cancel")
            await page.shows("Cancelled", "[aria-label=Result]")
            await page.shows("No content", "[aria-label=Result]")
            await good(page, "cancelled")
            await page.click("[aria-label=Result] button", "Call again")
            await page.shows("9.5 EUR", "[aria-label=Result]")
            assert page.problems == []


async def test_the_form_follows_a_tool_that_changes_while_it_is_shown(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with shop(item={"type": "string"}) as server:
        path = config({"mcpServers": {"shop": {"url": server.http().url}}})
        async with console(project, path) as here:
            page = await opened(browser, here.url)
            await page.until(CONNECTED)
            await show(page, "try/mcp_shop_price")
            await page.until("document.querySelector(\"form [id$='/item']\") !== null")
            changed = {"article": {"type": "string"}, "amount": {"type": "integer"}}
            server.rug_pull("price", inputSchema={"type": "object", "properties": changed})
            await post(page, "refresh", server="shop")
            await page.until("document.querySelector(\"form [id$='/article']\") !== null")
            assert await page.js("document.querySelector(\"form [id$='/item']\")") is None
            assert page.problems == []


async def test_no_text_of_a_server_reverses_its_order_unseen(
    browser: Chromium, config: Any, project: Path
) -> None:
    turned = "\u202egnp.ecapsnoc"
    field = {"title": turned, "description": turned, "enum": ["a", turned], "examples": [turned]}
    async with shop(**{turned: field, "note": {"type": "string", "examples": [turned]}}) as server:
        server.rug_pull("price", title=turned, description=turned)
        server.define({"name": "fails", "inputSchema": {"type": "object"}}, lambda _: 1 / 0)
        path = config({"mcpServers": {"shop": {"url": server.http().url}}})
        async with console(project, path) as here:
            page = await opened(browser, here.url)
            await page.until(CONNECTED)
            for address in ("servers/shop", "tools/mcp_shop_price", "try/mcp_shop_price", "wire", "activity"):
                await show(page, address)
                await page.shows("shop", "main")
                seen = await page.js(
                    "document.body.innerText + [...document.querySelectorAll('*')].map((e) =>"
                    " ['title', 'aria-label', 'placeholder'].map((n) => e.getAttribute(n))).join()"
                )
                assert "\u202e" not in seen, address
            await show(page, "try/mcp_shop_price")
            await page.shows("‹U+202E›gnp.ecapsnoc", "form")
