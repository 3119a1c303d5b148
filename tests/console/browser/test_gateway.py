"""The console of a gateway with tokens, in real Chromium: log in, see clients, make and revoke a token."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.console.browser.chromium import Chromium
from tests.console.browser.pictures import pictures
from tests.console.browser.running import demo
from tests.console.browser.test_journey import terminal
from tests.console.browser.test_pages import post, settle, show, too_wide

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(240)]

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "agent", "version": "1"},
    },
}


@asynccontextmanager
async def gateway(project: Path, path: Path) -> AsyncIterator[str]:
    """The address of the console of a running gateway."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "mooring",
            "--config",
            str(path),
            "serve",
            "--http",
            "127.0.0.1:0",
            "--console",
        ),
        cwd=project,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    try:
        async with asyncio.timeout(60):
            while "Console at " not in (line := (await process.stderr.readline()).decode()):
                assert line, "the gateway ended"
        yield line.split("Console at ")[1].split()[0]
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(30):
            await process.communicate()


async def test_a_gateway_with_tokens_asks_for_one_and_shows_its_clients(
    browser: Chromium, config: Any, project: Path
) -> None:
    document = demo("clock", "notes")
    document["gateway"] = {
        "profiles": {"reading": {"servers": ["notes"], "allow": ["notes/read_*", "notes/list_*"]}}
    }
    path = config(document)
    made = {}
    for name, scope in (("ana", "admin"), ("agent", "tools")):
        printed = await terminal(
            project, "--config", str(path), "--json", "token", "create", name, "--scope", scope
        )
        made[name] = json.loads(printed[printed.index("{") :])["token"]
    async with gateway(project, path) as address:
        origin = address.split("/console")[0]
        page = await browser.page()
        await page.open(address)
        assert await page.js("document.querySelector('#app') === null")
        # The form has the style of the console, although its policy allows no script.
        assert await page.js("getComputedStyle(document.querySelector('.login-page')).maxWidth") == "460px"
        assert [*await page.axe(), *await too_wide(page), *page.problems] == []
        # A token without the scope is refused; the form stays.
        for token, text in ((made["agent"], "admin"), (made["ana"], "")):
            await page.fill("input[name=token]", token)
            await page.press("Enter")
            if text:
                await page.shows(text)
        await page.until("document.querySelector('.link.live') !== null")
        assert made["ana"] not in await page.js(
            "location.href + document.cookie + JSON.stringify(localStorage)"
        )

        headers = {
            "Authorization": f"Bearer {made['agent']}",
            "Accept": "application/json, text/event-stream",
        }
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(f"{origin}/mcp", json=HELLO) as response:
                assert response.status == 200
            await page.js("location.hash = '#/gateway'")
            await page.shows("token:agent", "main")
            await page.shows("reading", "main")
            assert "\nall\n" in await page.text("[aria-label=Profiles]")
            await page.click("button", "Create a token")
            await page.fill("#token-name", "ci")
            await page.fill("#token-profiles", "reading")
            await page.click("dialog button[type=submit]", "Create")
            await page.shows("It is not shown again", "dialog")
            secret = await page.text("dialog .command code")
            await page.click("dialog button", "Done")
            await page.until("document.querySelector('[aria-label=\"Revoke ci\"]') !== null")
            assert secret not in await page.text("body")
            await settle(page)
            await pictures(browser, page, "gateway")
            assert await page.axe() == []
            await page.look(width=400, height=800)
            await settle(page)
            assert [*await page.axe(), *await too_wide(page)] == []
            await page.look()
            await page.click("button", "Revoke ci")
            await page.click("dialog button", "Revoke")
            await page.until("document.querySelector('[aria-label=\"Revoke ci\"]') === null")
            async with http.post(
                f"{origin}/mcp", json=HELLO, headers={"Authorization": f"Bearer {secret}"}
            ) as response:
                assert response.status == 401
        # A token becomes no right to start programs on this machine.
        said = await post(page, "edit", edits=[{"op": "demo"}])
        assert "not allowed at a gateway" in said["error"]["message"]
        assert "403" in " ".join(page.problems)
        # The page does not offer what is refused.
        await show(page, "add")
        await page.shows("are added on its machine", "main")
        assert await page.js("[...document.querySelectorAll('main form, main .choices')].length") == 0
        await show(page, "servers")
        assert "Add a server" not in await page.text()
        await show(page, "settings")
        assert "Add a setting" not in await page.text()
        await page.click(".grid-row", "reading.servers")
        await page.shows("changed in the file on its machine", ".split-detail")
        assert await page.js("document.querySelector('#setting-value')") is None
        # Its revocation ends the session of the browser.
        await terminal(project, "--config", str(path), "token", "revoke", "ana")
        await page.shows("You are logged out", "main")
