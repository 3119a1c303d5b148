"""Every page in real Chromium: no error in the console, nothing serious for axe, 400 pixels, keyboard, both themes.

With MOORING_SCREENSHOTS=1 the pictures of docs/console are written.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import world
from tests.console.browser.chromium import Chromium, Page
from tests.console.browser.pictures import DOCS, pictures, small_picture
from tests.console.browser.running import Console, console, demo
from tests.console.browser.test_journey import DUAL, terminal

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(400)]

PAGES = {
    "servers": "servers/broken",
    "tools": "tools/mcp_github_create_issue",
    "try": "try/mcp_studio_draw_chart",
    "search": "search?q=open%20an%20issue",
    "activity": "activity",
    "wire": "wire?server=github",
    "changes": "changes",
    "inbox": "inbox",
    "gateway": "gateway",
    "settings": "settings?q=github",
    "add": "add",
}


@asynccontextmanager
async def showroom(project: Path, config: Any) -> AsyncIterator[Console]:
    """A console with servers in every state, calls, a change and a question."""
    github, studio = world.github(), world.studio()
    async with github, studio:
        document = demo("clock", "notes", "broken")
        servers = document["mcpServers"]
        servers["github"] = {"url": github.http().url, "policy": {"ask": ["delete_*"]}}
        servers["studio"] = {"url": studio.http().url}
        servers["dual"] = {"command": sys.executable, "args": [str(DUAL), "stdio"]}
        servers["archive"] = {"url": "http://127.0.0.1:9/mcp", "disabled": True}
        path = config(document)
        await terminal(project, "--config", str(path), "lock", "--timeout", "20", accept=(0, 11))
        github.rug_pull("list_issues", description="List the open issues of a repository, newest first.")
        async with console(project, path) as running:
            yield running


async def post(page: Page, verb: str, **body: Any) -> Any:
    """The answer to a verb, asked for from the page."""
    return await page.js(
        "fetch('api/session').then((r) => r.json()).then((s) => fetch('api/' + "
        f"{json.dumps(verb)}, {{method: 'POST', headers: {{'Content-Type': 'application/json', 'X-Mooring-CSRF': s.csrf}},"
        f" body: {json.dumps(json.dumps(body))}}})).then((r) => r.json())"
    )


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("mcp_github_search_code", {"query": "bowline"}),
    ("mcp_github_create_issue", {"repo": "octo/rope", "title": "Rope frays", "labels": ["bug"]}),
    ("mcp_clock_now", {}),
    ("mcp_notes_write_note", {"title": "Tides", "text": "High water at six"}),
    ("mcp_notes_list_notes", {}),
    ("mcp_github_merge_pull_request", {"repo": "octo/rope"}),
    ("mcp_studio_search_notes", {"query": "مد"}),
    ("mcp_notes_read_note", {"title": "Tides"}),
    ("mcp_studio_draw_chart", {"harbour": "Kiel"}),
]


async def fill_with_life(page: Page) -> str:
    """Make calls of every outcome, and leave two questions in the inbox. The id of the last finished call."""
    await page.until("document.querySelector('.link.live') !== null")
    await page.until(
        "fetch('api/state').then((r) => r.json()).then((s) => s.values.totals.connected === 5 && s.values.totals.changes > 0)"
    )
    last = ""
    for tool, arguments in CALLS:
        last = (await post(page, "call", tool=tool, arguments=arguments))["id"]
        await page.until(
            f"fetch('api/state').then((r) => r.json()).then((s) => s.tables.tries.find((t) => t.id === '{last}').state !== 'running')"
        )
    await post(page, "call", tool="mcp_github_delete_branch", arguments={"repo": "octo/rope"})
    await post(page, "call", tool="mcp_dual_who", arguments={})
    await page.until("fetch('api/state').then((r) => r.json()).then((s) => s.tables.inbox.length === 2)")
    return last


async def settle(page: Page) -> None:
    """Nothing is loading any more, and what was drawn is on the screen."""
    await page.until("document.querySelector('.loading') === null")
    await page.js("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 120)))")


async def show(page: Page, address: str) -> None:
    await page.js(f"location.hash = {json.dumps('#/' + address)}")
    await settle(page)


async def too_wide(page: Page) -> list[str]:
    """Elements that make the page scroll sideways."""
    return await page.js(
        "(() => { const most = document.documentElement.clientWidth + 1;"
        " const main = document.querySelector('main');"
        " if (document.documentElement.scrollWidth <= most && main.scrollWidth <= main.clientWidth + 1) return [];"
        " return [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > most)"
        ".slice(0, 5).map((e) => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60)); })()"
    )


async def test_every_page_is_clean_accessible_and_fits(browser: Chromium, config: Any, project: Path) -> None:
    async with showroom(project, config) as running:
        page = await browser.page()
        await page.open(running.url)
        painter = await browser.page()
        run = await fill_with_life(page)
        addresses = {**PAGES, "try": f"{PAGES['try']}?run={run}"}
        findings: dict[str, Any] = {}
        for dark in (False, True):
            await page.look(width=1280, height=800, dark=dark)
            for name, address in addresses.items():
                await show(page, address)
                if os.environ.get("MOORING_SCREENSHOTS") and name != "gateway":
                    await small_picture(page, painter, DOCS / f"{name}-{'dark' if dark else 'light'}.png")
                findings[f"{name} {dark=}"] = await page.axe()
        await page.look(width=400, height=800)
        more = [
            "servers",
            "tools",
            f"tools/mcp_studio_{world.LONG}",
            "try",
            "try/mcp_studio_search_notes",
            "try?kind=resources",
        ]
        for address in [*addresses.values(), *more]:
            await show(page, address)
            if os.environ.get("MOORING_SCREENSHOTS") and address in ("servers", addresses["try"]):
                await small_picture(page, painter, DOCS / f"{address.split('/')[0]}-narrow.png")
            findings[f"{address} at 400"] = [*await page.axe(), *await too_wide(page)]
        await show(page, "tools")
        # Where names are cut, their ends are seen: they tell tools of one server from each other.
        ends = await page.js(
            "[...document.querySelectorAll('.grid-row .end-cut > .strong')].map((e) => [e.textContent,"
            " e.getBoundingClientRect().right <= e.parentElement.getBoundingClientRect().right + 1])"
        )
        assert ["mcp_github_create_issue", True] in ends
        assert [name for name, seen in ends if not seen] == []
        await show(page, "nonsense/x")
        await page.shows("There is no such page")
        assert {where: found for where, found in findings.items() if found} == {}
        assert page.problems == []


async def test_the_first_run_is_accessible(browser: Chromium, project: Path) -> None:
    async with console(project) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.shows("Connect your first server", "h1")
        await settle(page)
        await pictures(browser, page, "first-run")
        assert await page.axe() == []
        await page.look(width=400, height=800)
        await settle(page)
        assert [*await page.axe(), *await too_wide(page)] == []
        assert page.problems == []


async def focused(page: Page) -> str:
    return await page.js(
        "(() => { const e = document.activeElement; return (e.getAttribute('aria-label') ?? e.dataset.id ?? e.innerText ?? e.tagName).trim(); })()"
    )


async def tab_to(page: Page, wanted: str, most: int = 60) -> None:
    """Press Tab until the element with this name has the focus; it must be visible."""
    seen: list[str] = []
    for _ in range(most):
        await page.press("Tab")
        seen.append(await focused(page))
        if wanted in seen[-1]:
            outline = await page.js("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{wanted} shows no focus"
            return
    raise AssertionError(f"Tab does not reach {wanted}: {seen}")


async def test_the_keyboard_is_enough(browser: Chromium, config: Any, project: Path) -> None:
    async with console(project, config(demo("clock", "notes"))) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.until("document.querySelectorAll('.grid-row').length === 2")
        # The first stop of Tab is the link to the page itself.
        await page.press("Tab")
        assert await focused(page) == "Skip to the page"
        await page.press("Enter")
        assert await page.js("document.activeElement.id") == "main"
        # Pages by two letters; a table by arrows; details by Enter; back by Escape, to the same row.
        await page.press("g")
        await page.press("t")
        await page.until("location.hash === '#/tools' && document.querySelectorAll('.grid-row').length === 5")
        await page.press("/")
        await page.write("note")
        await page.until("document.querySelectorAll('.grid-row').length === 3")
        await tab_to(page, "mcp_notes_list_notes")
        await page.press("ArrowDown")
        assert await focused(page) == "mcp_notes_read_note"
        await page.press("Enter")
        await page.until("document.querySelector('.split-detail') !== null")
        await page.press("Escape")
        await page.until("document.querySelector('.split-detail') === null")
        assert await focused(page) == "mcp_notes_read_note"
        await page.press(" ")
        await page.shows("1 tool selected", ".bulk")
        # A dialog takes the focus and gives it back.
        await page.press("End")
        await tab_to(page, "Keyboard shortcuts (?)", most=80)
        await page.press("Enter")
        await page.until("document.querySelector('dialog[open]') !== null")
        assert await page.js("document.querySelector('dialog').contains(document.activeElement)")
        await page.press("Escape")
        await page.until("document.querySelector('dialog') === null")
        assert await focused(page) == "Keyboard shortcuts (?)"
        # Call a tool.
        await page.js("location.hash = '#/try/mcp_notes_write_note'")
        await page.until("document.querySelector('form input') !== null")
        await page.js("document.getElementById('main').focus()")
        for name, text in (("title", "Tides"), ("text", "High water")):
            for _ in range(30):
                await page.press("Tab")
                if (await page.js("document.activeElement.id")).endswith(f"/{name}"):
                    break
            await page.write(text)
        await page.press("Enter", control=True)
        await page.until("document.querySelector('[aria-label=Result]')?.innerText.includes('Done')")
        assert page.problems == []


async def test_a_click_opens_the_row_on_which_it_began_if_rows_arrive_meanwhile(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with console(project, config(demo("clock"))) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.until(
            "fetch('api/state').then((r) => r.json()).then((s) => s.values.totals.connected === 1)"
        )
        await show(page, "activity")
        await post(page, "call", tool="mcp_clock_now", arguments={})
        row = await page.until(
            "(() => { const e = document.querySelector('.grid-row'); const b = e?.getBoundingClientRect();"
            " return e && {id: e.dataset.id, x: b.x + b.width / 2, y: b.y + b.height / 2}; })()"
        )
        mouse = {"x": row["x"], "y": row["y"], "button": "left", "clickCount": 1}
        await page.send("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await post(page, "call", tool="mcp_clock_now", arguments={})
        await page.until("document.querySelectorAll('.grid-row').length === 2")
        await page.send("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        await page.until(f"location.hash === '#/activity/{row['id']}'")


async def test_a_console_that_ends_and_comes_back_is_said_and_nothing_is_lost(
    browser: Chromium, config: Any, project: Path
) -> None:
    path = config(demo("clock"))
    async with console(project, path) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.until("document.querySelector('.link.live') !== null")
        # The connection of the stream breaks; the browser resumes it, and the page follows again.
        await page.send(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        await page.js("fetch('api/session').catch(() => 0)")
        await page.send(
            "Network.emulateNetworkConditions",
            offline=False,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )
        port = running.port
    await page.shows("Reconnecting", ".top")
    # Another process at the same address does not know the cookie of the first one.
    async with console(project, path, "--port", str(port)):
        await page.shows("You are logged out", "main")


async def test_a_tab_that_was_open_during_a_restart_works_after_a_login_in_another_tab(
    browser: Chromium, config: Any, project: Path
) -> None:
    path = config(demo("clock"))
    async with console(project, path) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.until("document.querySelector('.link.live') !== null")
    await page.shows("Reconnecting", ".top")
    # The tab does not look for the console before the login in the other one.
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await page.send("Network.emulateNetworkConditions", offline=True, **offline)
    async with console(project, path, "--port", str(running.port)) as again:
        other = await browser.page(beside=page)
        await other.open(again.url)
        await other.until("document.querySelector('.link.live') !== null")
        await page.send("Page.bringToFront")
        await page.send("Network.emulateNetworkConditions", offline=False, **offline)
        await page.until("document.querySelector('.link.live') !== null")
        await page.js("location.hash = '#/try/mcp_clock_now'")
        await page.click("form button[type=submit]", "Call")
        await page.until("document.querySelector('[aria-label=Result]')?.innerText.includes('Done')")


async def test_the_store_ends_up_like_the_snapshot(browser: Chromium, config: Any, project: Path) -> None:
    """The rows that the page holds after hundreds of changes are those of a fresh snapshot."""
    async with console(project, config(demo("clock", "notes"))) as running:
        page = await browser.page()
        await page.open(running.url)
        await page.until("document.querySelector('.link.live') !== null")
        await show(page, "activity")
        for number in range(40):
            await post(
                page, "call", tool="mcp_notes_write_note", arguments={"title": f"n{number}", "text": "x"}
            )
        async with asyncio.timeout(60):
            while True:
                same = await page.js(
                    "import('./main.js').then((m) => fetch('api/state').then((r) => r.json()).then((fresh) => {"
                    " const mine = m.context.store; if (mine.rev !== fresh.rev) return null;"
                    " return Object.entries(fresh.tables).filter(([name, rows]) => JSON.stringify(rows) !== JSON.stringify(mine.rows(name))).map(([name]) => name); }))"
                )
                if same is not None and await page.js("document.querySelectorAll('.grid-row').length") >= 10:
                    break
                await asyncio.sleep(0.1)
        assert same == []
