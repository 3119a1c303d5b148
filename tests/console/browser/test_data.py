"""Pages with data that only some servers and clients make: scripts, logins, addresses, imports, edits, nodes, media.

With MOORING_PICTURES=DIRECTORY, every view that is checked is also written there as a picture.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import wave
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring.testing import FakeServer
from tests.cluster.lab import free_ports, running, static_node, written
from tests.console.browser import world
from tests.console.browser.chromium import Chromium, Page
from tests.console.browser.pictures import pictures
from tests.console.browser.running import console, demo
from tests.console.browser.test_gateway import HELLO, gateway
from tests.console.browser.test_pages import settle, show, too_wide
from tests.gateway.test_addresses import PAGE as ADDRESS
from tests.gateway.test_addresses import Wanting
from tests.lab.oauth import AuthLab, browse
from tests.scripts.shop import shop

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(240)]


async def opened(browser: Chromium, url: str) -> Page:
    page = await browser.page()
    await page.open(url)
    await page.until("document.querySelector('.link.live') !== null")
    return page


async def good(page: Page, name: str) -> None:
    """What is shown is accessible, has no error, and fits a narrow screen."""
    folder = os.environ.get("MOORING_PICTURES")
    for width in (1280, 400):
        await page.look(width=width, height=800)
        await settle(page)
        if folder:
            await page.picture(Path(folder) / f"{name}-{width}.png")
        assert [*await page.axe(), *await too_wide(page)] == [], f"{name} at {width}"
    await page.look()
    await settle(page)
    assert page.problems == []


async def tab_opened(page: Page, lab: AuthLab, requests: int) -> None:
    """Return to the console after the page of a login was opened in a new tab."""
    async with asyncio.timeout(30):
        while lab.count("/authorize") < requests:
            await asyncio.sleep(0.05)
    await page.send("Page.bringToFront")


async def write_the_change(page: Page) -> str:
    """The diff of the dialog, which is then written."""
    await page.until("document.querySelector('dialog .diff') !== null")
    diff = await page.text("dialog .diff")
    await page.click("dialog button", "Write the file")
    await page.until("document.querySelector('dialog') === null")
    return diff


async def test_the_plan_of_a_script_is_approved_and_its_calls_are_in_activity(
    browser: Chromium, config: Any, project: Path
) -> None:
    pytest.importorskip("pydantic_monty")
    async with shop() as server:
        entry = {"url": server.http().url, "trust_hints": True}
        path = config({"mcpServers": {"shop": entry}, "scripts": {"enabled": True, "writes": "ask"}})
        async with gateway(project, path) as address:
            page = await opened(browser, address)
            await page.js("location.hash = '#/servers'")
            await page.shows("connected", "main")
            accepts = {"Accept": "application/json, text/event-stream"}
            url = f"{address.split('/console')[0]}/mcp"
            code = "for i in [1, 2]:\n    await mcp_shop_note(id=i)\nawait mcp_shop_get(id=3)\n'done'"
            call = {"name": "script_run", "arguments": {"code": code}}
            async with aiohttp.ClientSession(headers=accepts) as http:
                async with http.post(url, json=HELLO) as answer:
                    session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
                asking = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
                waiting = asyncio.create_task(http.post(url, json=asking, headers=session).__aenter__())
                await page.js("location.hash = '#/inbox'")
                await page.shows("Plan of a script", ".inbox-item")
                await page.shows("2 x mcp_shop_note", ".inbox-item")
                assert server.calls("note") == []
                await good(page, "plan")
                await page.click(".inbox-item button", "Approve")
                async with asyncio.timeout(60):
                    assert "done" in await (await waiting).text()
                assert session["Mcp-Session-Id"] not in await page.js(
                    "fetch('api/state').then((r) => r.text())"
                )
            await page.js("location.hash = '#/activity'")
            # What reads was called for the plan, and again with the writes.
            await page.shows("Script · 4 calls", ".grid-row:has(.strong)")
            assert await page.js("document.querySelectorAll('[title=\"Called by a script\"]').length") == 4
            await good(page, "scripts")
            await page.click(".grid-row", "Script · 4 calls")
            await page.shows("note", ".split-detail .history")
            await good(page, "script")
            await page.click(".split-detail a", "Show them in the list")
            await page.until("document.querySelectorAll('[title=\"Called by a script\"]').length === 4")


async def test_a_login_ends_in_the_browser_or_by_its_last_address(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with AuthLab(page=True) as lab:
        path = config({"mcpServers": {"files": {"url": lab.config().url}}})
        async with console(project, path) as running_:
            page = await opened(browser, running_.url)
            await show(page, "servers/files")
            await page.click(".split-detail button", "Log in")
            await tab_opened(page, lab, 1)
            await show(page, "inbox")
            await page.shows("Log in to files", ".inbox-item")
            await good(page, "login")
            tab = await browser.page(beside=page)
            await tab.open(await page.js("document.querySelector('.inbox-item a.button').href"))
            await tab.click("#agree")
            await page.send("Page.bringToFront")
            await page.shows("Nothing waits for you", "main")
            await show(page, "servers/files")
            await page.shows("connected", ".split-detail")

            # The browser is on another machine: it cannot open the last page.
            await page.click(".split-detail button", "Log out")
            await page.shows("needs-auth", ".split-detail")
            await page.click(".split-detail button", "Log in")
            await tab_opened(page, lab, 4)
            await show(page, "inbox")
            link = await page.until("document.querySelector('.inbox-item a.button')?.href")
            await page.fill(".inbox-item input", "https://elsewhere.example/?code=x&state=y")
            await page.click(".inbox-item button", "Finish")
            await page.until("document.querySelector('.toast.bad') !== null")
            page.problems.clear()  # the browser logs the refused request
            lab.page = False
            _, back = await browse(link, follow=False)
            await page.fill(".inbox-item input", back)
            await page.click(".inbox-item button", "Finish")
            await page.shows("Nothing waits for you", "main")
            await show(page, "servers/files")
            await page.shows("connected", ".split-detail")
            assert page.problems == []


async def test_a_server_that_wants_a_page_to_be_visited_gets_its_answer(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with (
        Wanting() as lab,
        console(project, config({"mcpServers": {"lab": {"url": lab.config("lab").url}}})) as here,
    ):
        page = await opened(browser, here.url)
        await show(page, "servers")
        await page.shows("connected", ".grid-row")
        await show(page, "try/mcp_lab_echo")
        await page.click("button[type=submit]", "Call")
        await page.shows("Connect your files.", ".inbox-item")
        link = await page.js(
            "(({href, target, rel}) => [href, target, rel])(document.querySelector('.inbox-item a'))"
        )
        assert link == [ADDRESS, "_blank", "noopener noreferrer"]
        await page.shows("files.example", ".inbox-item strong")
        await good(page, "address")
        lab.visit()
        await page.click(".inbox-item button", "I have done it")
        await page.until("document.querySelector('[aria-label=Result]')?.innerText.includes('Done')")
        assert len(lab.calls()) == 2


async def test_servers_of_another_program_are_imported(
    browser: Chromium, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "home" / ".cursor" / "mcp.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps(demo("clock")))
    async with console(project) as here:
        page = await opened(browser, here.url)
        await page.shows("Cursor", ".programs")
        await good(page, "import")
        await page.click("button", "Import 1 server")
        assert "clock" in await write_the_change(page)
        await page.shows("connected", ".grid-row")
        assert page.problems == []


@pytest.mark.parametrize("width", [400, 1000])
async def test_a_change_is_shown_and_written_on_a_narrow_screen(
    browser: Chromium, project: Path, width: int
) -> None:
    async with console(project) as here:
        page = await opened(browser, here.url)
        await page.look(width=width, height=800)
        await page.click("button", "Add the demo servers")
        await page.shows("notes", "dialog .diff")
        box = await page.js("document.querySelector('dialog').getBoundingClientRect().toJSON()")
        assert 0 <= box["left"] < box["right"] <= width
        assert 200 < box["height"] <= 800
        await page.click("dialog button", "Write the file")
        await page.shows("connected", ".grid-row")
        assert page.problems == []


async def test_a_setting_is_changed_as_a_diff_that_says_what_is_wrong(
    browser: Chromium, config: Any, project: Path
) -> None:
    path = config({**demo("clock"), "call_timeout": 60})
    async with console(project, path) as here:
        page = await opened(browser, here.url)
        await show(page, "settings?q=call_timeout")
        await page.click(".grid-row", "call_timeout")
        await page.fill("#setting-value", '"soon"')
        await page.click(".split-detail button", "Show the change")
        await page.shows("is not a duration", "dialog .callout.bad")
        assert await page.js("document.querySelector('dialog .diff')") is None
        assert json.loads(path.read_text())["call_timeout"] == 60
        assert [text for text in page.problems if "400" not in text] == []
        page.problems.clear()
        await page.press("Escape")
        await page.fill("#setting-value", "30")
        await page.click(".split-detail button", "Show the change")
        await page.until("document.querySelector('dialog .diff') !== null")
        await good(page, "setting")
        diff = await write_the_change(page)
        assert '"call_timeout": 60' in diff
        assert '"call_timeout": 30' in diff
        assert json.loads(path.read_text())["call_timeout"] == 30
        await page.until("document.querySelector('.grid-row')?.innerText.includes('30')")
        await page.click(".grid-row", "call_timeout")
        await page.click(".split-detail button", "Remove from the file")
        await write_the_change(page)
        assert "call_timeout" not in json.loads(path.read_text())


async def test_many_tools_are_turned_off_and_get_a_policy_at_once(
    browser: Chromium, config: Any, project: Path
) -> None:
    path = config(demo("notes", "clock"))
    async with console(project, path) as here:
        page = await opened(browser, here.url)
        await show(page, "tools?server=notes")
        await page.until("document.querySelectorAll('.grid-row').length === 3")

        async def select() -> None:
            await page.js(
                "document.querySelectorAll('.grid-row input[type=checkbox]').forEach((e) => e.click())"
            )
            await page.shows("3 tools selected", ".bulk")

        await select()
        await page.click(".bulk button", "Ask before")
        await write_the_change(page)
        await page.until(
            "[...document.querySelectorAll('.grid-row')].every((r) => r.innerText.includes('ask'))"
        )
        await select()
        await page.click(".bulk button", "Disable")
        await page.until("document.querySelector('dialog .diff') !== null")
        await good(page, "bulk")
        await write_the_change(page)
        await page.until(
            "[...document.querySelectorAll('.grid-row')].every((r) => r.innerText.includes('hidden'))"
        )
        await good(page, "disabled")
        await select()
        await page.click(".bulk button", "Enable")
        await write_the_change(page)
        await page.until(
            "[...document.querySelectorAll('.grid-row')].every((r) => r.innerText.includes('ask'))"
        )
        assert page.problems == []


async def test_the_nodes_of_a_cluster_are_shown(browser: Chromium, tmp_path: Path) -> None:
    ports = free_ports(2)
    table = {name: f"http://127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True)}
    file = written(tmp_path, demo("clock")["mcpServers"], {"key": "${NODE_KEY}", "nodes": table})
    nodes = [
        static_node(tmp_path, file, name, port, words=("--console",) if name == "a" else ())
        for name, port in zip("ab", ports, strict=True)
    ]
    async with running(nodes) as found:
        async with asyncio.timeout(30):
            while "Console at " not in (said := found[0].errors.read_text()):
                await asyncio.sleep(0.05)
        page = await opened(browser, said.split("Console at ")[1].split()[0])
        await show(page, "cluster")
        await page.until(
            "[...document.querySelectorAll('.grid-row')].some((r) => /b[^]*up/.test(r.innerText))"
        )
        await good(page, "cluster")
        await pictures(browser, page, "cluster")
        await asyncio.to_thread(found[1].kill)
        await page.until(
            "[...document.querySelectorAll('.grid-row')].some((r) => /b[^]*down/.test(r.innerText))"
        )
        assert page.problems == []


def tone() -> str:
    """A tenth of a second of sound, in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(8000)
        out.writeframes(bytes(128 + (x % 20 - 10) * 6 for x in range(800)))
    return base64.b64encode(file.getvalue()).decode()


async def test_pictures_sounds_resources_and_prompts_are_shown(
    browser: Chromium, config: Any, project: Path
) -> None:
    studio = world.studio()
    sound = {"content": [{"type": "audio", "data": tone(), "mimeType": "audio/wav"}]}
    studio.define({"name": "play", "inputSchema": {"type": "object"}}, sound)
    async with studio, world.github() as github:
        servers: dict[str, FakeServer] = {"studio": studio, "github": github}
        path = config({"mcpServers": {name: {"url": one.http().url} for name, one in servers.items()}})
        async with console(project, path) as here:
            page = await opened(browser, here.url)
            await page.until(
                "fetch('api/state').then((r) => r.json()).then((s) => s.values.totals.connected === 2)"
            )
            await show(page, "try/mcp_studio_draw_chart")
            await page.click("button[type=submit]", "Call")
            await page.until("document.querySelector('img.media-image')?.naturalWidth === 320")
            await good(page, "picture")
            await page.click(".link-card a", "Read")
            await page.shows("hour,metres", "[aria-label=Content]")
            await good(page, "resource")
            await show(page, "try/mcp_studio_play")
            await page.click("button[type=submit]", "Call")
            await page.until("document.querySelector('audio')?.duration > 0.09")
            await good(page, "sound")
            await show(page, "try?kind=prompts")
            await page.click(".grid-row", "review")
            await page.click("button[type=submit]", "Fill the prompt")
            await page.shows("needs attention", "form")
            await page.fill("form input[id$='/repo']", "octo/rope")
            await page.click("button[type=submit]", "Fill the prompt")
            await page.shows("pull requests of octo/rope", "[aria-label=Messages]")
            await good(page, "prompt")
            await show(page, "search?q=read%20a%20resource")
            await page.click(".hit a", "read_mcp_resource")  # a tool of mooring, which the page Tools lacks
            await page.shows("uri", "form")
            assert "About this tool" not in await page.js("document.body.innerText")
            await good(page, "own tool")
