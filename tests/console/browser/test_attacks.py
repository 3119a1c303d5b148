"""Attacks on the console from real pages: another origin, another name, hostile servers, hostile app pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mooring.testing import FakeServer
from tests.console.browser.chromium import Chromium, Page
from tests.console.browser.running import Console, console

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(300)]

PAGES = [
    "servers",
    "tools",
    "try",
    "search?q=note",
    "activity",
    "wire",
    "changes",
    "inbox",
    "gateway",
    "settings",
    "add",
]


def shop() -> FakeServer:
    server = FakeServer("shop")
    server.define({"name": "pay", "inputSchema": {"type": "object"}}, "paid")
    return server


def entry(server: FakeServer) -> dict[str, Any]:
    return {"url": server.http().url}


@asynccontextmanager
async def evil_site(html: str) -> AsyncIterator[int]:
    """A web server of an attacker; its page posts what it found to `/found`."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def logged_in(browser: Chromium, running: Console, beside: Page | None = None) -> Page:
    page = await browser.page(beside=beside)
    await page.open(running.url if beside is None else running.base)
    await page.until("document.querySelector('.link.live') !== null")
    return page


CSRF = """<!doctype html><title>evil</title><body><script>
const console_ = %(console)s, body = JSON.stringify({tool: "mcp_shop_pay", arguments: {}});
const tries = {
  plain: () => fetch(console_ + "api/call", {method: "POST", mode: "no-cors", credentials: "include", body}),
  json: () => fetch(console_ + "api/call", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body}),
  guessed: () => fetch(console_ + "api/call", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json", "X-Mooring-CSRF": "1"}, body}),
  beacon: async () => navigator.sendBeacon(console_ + "api/call", new Blob([body], {type: "text/plain"})),
  state: async () => (await (await fetch(console_ + "api/state", {credentials: "include"})).text()).length,
  session: async () => (await (await fetch(console_ + "api/session", {credentials: "include"})).json()).csrf,
  stream: () => new Promise((done, fail) => { const s = new EventSource(console_ + "api/events", {withCredentials: true}); s.onmessage = s.onopen = () => done("open"); s.onerror = () => fail("closed"); }),
  script: () => new Promise((done, fail) => { const s = document.createElement("script"); s.src = console_ + "api/state"; s.onload = () => done("ran"); s.onerror = () => fail("blocked"); document.body.append(s); }),
  popup: async () => { const w = window.open(console_); await new Promise((r) => setTimeout(r, 1500)); return w.document.body.innerText; },
  form: () => new Promise((done) => { const f = document.createElement("form"); f.method = "POST"; f.enctype = "text/plain"; f.action = console_ + "api/call"; f.target = "hole";
    const frame = document.createElement("iframe"); frame.name = "hole"; frame.onload = () => done(); document.body.append(frame);
    const i = document.createElement("input"); i.name = '{"tool":"mcp_shop_pay","arguments":{},"x":"'; i.value = '"}'; f.append(i); document.body.append(f); f.submit(); }),
};
window.found = {};
window.attack = async () => {
  for (const [name, attack] of Object.entries(tries)) {
    try { window.found[name] = "did: " + String(await Promise.race([attack(), new Promise((_, no) => setTimeout(() => no("silence"), 4000))])).slice(0, 80); }
    catch (error) { window.found[name] = "no: " + error; }
  }
  return true;
};
</script>"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "attacker.example"])
async def test_a_page_of_another_origin_can_neither_call_a_tool_nor_read_the_state(
    browser: Chromium, config: Any, project: Path, host: str
) -> None:
    async with shop() as server, console(project, config({"mcpServers": {"shop": entry(server)}})) as running:
        user = await logged_in(browser, running)
        await user.until("location.hash = '#/tools', document.body.innerText.includes('mcp_shop_pay')")
        html = CSRF % {"console": json.dumps(running.base)}
        async with evil_site(html) as port:
            attacker = await browser.page(beside=user)
            await attacker.open(f"http://{host}:{port}/")
            await attacker.js("window.attack()")
            found = await attacker.js("window.found")
        for name in ("json", "guessed", "state", "session", "stream", "script"):
            assert found[name].startswith("no:"), (name, found[name])
        assert "Servers" not in found["popup"], found
        # No attempt reached the tool, and the session of the user still works.
        assert server.calls("pay") == []
        assert (
            await user.js("fetch('api/state').then((r) => r.json()).then((s) => s.tables.tries.length)") == 0
        )


async def test_the_cookie_is_hidden_from_scripts_and_strict(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with console(project, config({"mcpServers": {}})) as running:
        user = await logged_in(browser, running)
        assert await user.js("document.cookie") == ""
        cookies = (await user.send("Network.getCookies", urls=[running.base]))["cookies"]
        assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]


async def test_another_name_for_this_machine_gets_nothing(
    browser: Chromium, config: Any, project: Path
) -> None:
    """DNS rebinding: the attacker's name leads to the console's address."""
    async with shop() as server, console(project, config({"mcpServers": {"shop": entry(server)}})) as running:
        attacker = await browser.page()
        # The answers have a policy that forbids requests; an attacker's own page would have none.
        await attacker.send("Page.setBypassCSP", enabled=True)
        for path in (
            running.url.split(str(running.port))[1],
            "/console/main.js",
            "/console/api/state",
            "/console/",
        ):
            await attacker.open(f"http://rebound.example:{running.port}{path}")
            shown = await attacker.text("body")
            assert not [word for word in ("mooring 0", "mcp_shop_pay", "csrf", "epoch") if word in shown], (
                shown
            )
            assert await attacker.js("document.querySelector('#app') === null")
        statuses = await attacker.js(
            "Promise.all(['session', 'state', 'events'].map((p) => fetch('/console/api/' + p).then((r) => r.status)))"
        )
        assert all(status >= 400 for status in statuses), statuses
        # A request with a wrong name did not spend the token of the address.
        await logged_in(browser, running)


async def test_the_address_works_once(browser: Chromium, config: Any, project: Path) -> None:
    async with console(project, config({"mcpServers": {}})) as running:
        await logged_in(browser, running)
        second = await browser.page()
        await second.open(running.url)
        assert await second.js("document.querySelector('#app') === null")
        assert "was used before" in await second.text("body")
        await second.open(f"{running.base}api/state")
        assert "epoch" not in await second.text("body")


async def test_no_page_can_show_the_console_in_a_frame(browser: Chromium, config: Any, project: Path) -> None:
    async with console(project, config({"mcpServers": {}})) as running:
        user = await logged_in(browser, running)
        html = f"<!doctype html><title>win a prize</title><iframe src='{running.base}' width=900 height=600></iframe>"
        async with evil_site(html) as port:
            for name in ("127.0.0.1", "localhost"):
                attacker = await browser.page(beside=user)
                await attacker.open(f"http://{name}:{port}/")
                await asyncio.sleep(0.5)
                tree = (await attacker.send("Page.getFrameTree"))["frameTree"]
                frames = [child["frame"] for child in tree.get("childFrames", [])]
                assert all(
                    frame["url"].startswith("chrome-error://") or frame.get("unreachableUrl")
                    for frame in frames
                ), frames
                assert any("frame" in problem.lower() for problem in attacker.problems), attacker.problems


MARK = "xssmark"
PAYLOADS = [
    f'<img src=x onerror="window.{MARK}=1">',
    f"<script>window.{MARK}=1</script>",
    f'"><svg onload=window.{MARK}=1>',
    f"javascript:window.{MARK}=1",
    f"'-(window.{MARK}=1)-'",
    f"<iframe srcdoc='<script>parent.{MARK}=1</script>'></iframe>",
    f"[click](javascript:window.{MARK}=1)",
    "\u202e\u2066<b>rtl</b>\u2069",
]


def hostile() -> FakeServer:
    everything = " ".join(PAYLOADS)
    server = FakeServer("hostile", instructions=everything)
    svg = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9IndpbmRvdy54c3NtYXJrPTEiLz4="
    schema = {
        "type": "object",
        "title": PAYLOADS[0],
        "properties": {
            PAYLOADS[0]: {
                "type": "string",
                "title": PAYLOADS[1],
                "description": everything,
                "default": PAYLOADS[2],
            },
            "choice": {"enum": PAYLOADS, "title": PAYLOADS[0]},
            "__proto__": {"type": "string", "title": "proto"},
            "list": {
                "type": "array",
                "items": {"type": "string", "description": PAYLOADS[0]},
                "default": PAYLOADS,
            },
        },
    }
    for number, payload in enumerate(PAYLOADS):
        definition = {
            "name": f"t{number}",
            "title": payload,
            "description": payload + everything,
            "inputSchema": schema,
            "icons": [
                {"src": svg, "mimeType": "image/png"},
                {"src": f"javascript:window.{MARK}=1"},
                {"src": "https://evil.example/i.png"},
            ],
            "annotations": {"title": payload},
            "_meta": {payload: payload},
        }
        server.define(definition, {"content": blocks(payload), "structuredContent": {payload: [payload]}})
    server.define(
        {"name": "fails", "inputSchema": {"type": "object"}},
        {"content": [{"type": "text", "text": everything}], "isError": True},
    )
    for number, payload in enumerate(PAYLOADS):
        server.resource(f"memo://{number}/{payload}", everything, name=payload, mime_type="text/html")

    @server.prompt
    def greet(name: str = "") -> str:
        """<img src=x onerror="window.xssmark=1">"""
        return everything + name

    return server


def blocks(payload: str) -> list[dict[str, Any]]:
    import base64

    page = base64.b64encode(f"<script>window.{MARK}=1</script>".encode()).decode()
    svg = base64.b64encode(
        f"<svg xmlns='http://www.w3.org/2000/svg' onload='window.{MARK}=1'/>".encode()
    ).decode()
    return [
        {"type": "text", "text": payload},
        {"type": "image", "data": svg, "mimeType": "image/svg+xml"},
        {"type": "image", "data": page, "mimeType": "image/png"},
        {"type": "audio", "data": page, "mimeType": "text/html"},
        {"type": "resource_link", "uri": f"javascript:window.{MARK}=1", "name": payload, "title": payload},
        {"type": "resource_link", "uri": "https://evil.example/x", "name": payload},
        {
            "type": "resource",
            "resource": {"uri": f"ui://{payload}", "mimeType": "text/html", "text": payload},
        },
        {"type": "resource", "resource": {"uri": "data:text/html,x", "mimeType": "text/html", "blob": page}},
    ]


async def visit(page: Page, address: str) -> None:
    """Open one page of the console, and everything on it that can be opened by a click and changes nothing."""
    await page.js(f"location.hash = {json.dumps('#/' + address)}")
    await page.js("new Promise((done) => setTimeout(done, 400))")
    await page.js(
        "[...document.querySelectorAll('.json-toggle[aria-expanded=false], .form .segment, summary')].forEach((e) => e.click())"
    )
    await page.js("new Promise((done) => setTimeout(done, 150))")


async def test_text_of_servers_never_becomes_part_of_the_page(
    browser: Chromium, config: Any, project: Path
) -> None:
    async with hostile() as server:
        path = config(
            {"mcpServers": {"hostile": entry(server), "<b>x": {"command": "/no/such/program<img src=x>"}}}
        )
        async with console(project, path) as running:
            page = await logged_in(browser, running)
            await page.until("location.hash = '#/tools', document.body.innerText.includes('mcp_hostile_t1')")
            for number in range(len(PAYLOADS)):
                await visit(page, f"tools/mcp_hostile_t{number}")
                await visit(page, f"try/mcp_hostile_t{number}")
                await page.click("button[type=submit]", "Call")
                await page.until("document.querySelector('[aria-label=Result] .segments') !== null")
                for title in ("Structured", "Raw", "Arguments", "Content"):
                    await page.click(".segment", title)
            await visit(page, "try/mcp_hostile_fails")
            await page.click("button[type=submit]", "Call")
            await page.until("document.querySelector('[aria-label=Result] .callout.bad') !== null")
            for address in (
                *PAGES,
                "servers/hostile",
                "try?kind=resources",
                "try?kind=prompts",
                "search?q=img",
            ):
                await visit(page, address)
            await visit(page, "try/hostile/greet?kind=prompts")
            for table in ("activity", "wire"):
                await visit(page, table)
                await page.click(".grid-row")
                await visit(page, await page.js("location.hash.slice(2)"))
            assert await page.js(f"window.{MARK}") is None
            assert page.dialogs == []
            made = await page.js(
                "[...document.querySelectorAll('main script, main iframe, main b, main img:not([src^=blob]), main a')]"
                ".filter((e) => e.tagName !== 'A' || !/^(#|http)/.test(e.getAttribute('href') ?? '#')).map((e) => e.outerHTML)"
            )
            assert made == []
            assert page.problems == []
            outside = [url for url in page.requests if not url.startswith((running.origin, "blob:", "data:"))]
            assert outside == []


APP = """<!doctype html><html><body><p id=out>app</p><script>
const found = {};
const attack = async (name, act) => { try { found[name] = "did: " + String(await act()).slice(0, 80); } catch (error) { found[name] = "no: " + error.name; } };
const send = (message) => parent.postMessage(message, "*");
const ask = (id, method, params) => new Promise((done) => {
  addEventListener("message", (event) => { if (event.data && event.data.id === id) done(event.data.result); });
  send({jsonrpc: "2.0", id, method, params});
});
(async () => {
  await attack("parent", () => parent.document.body.innerText);
  await attack("top", () => top.location.href);
  await attack("cookie", () => document.cookie + "!");
  await attack("storage", () => localStorage.length);
  await attack("session", () => sessionStorage.length);
  await attack("database", () => new Promise((y, n) => { const r = indexedDB.open("x"); r.onsuccess = () => y("open"); r.onerror = n; }));
  await attack("state", () => fetch("%(console)sapi/state", {credentials: "include"}).then((r) => r.text()));
  await attack("outside", () => fetch("http://attacker.example:%(evil)s/").then((r) => r.status));
  await attack("popup", () => { const w = window.open("about:blank"); if (!w) throw new Error("blocked"); return w; });
  await attack("worker", () => navigator.serviceWorker.register("/x.js"));
  await attack("origin", () => self.origin);
  await attack("dialog", () => { alert("hello from the app"); return "shown"; });
  try { top.location = "http://attacker.example:%(evil)s/"; } catch {}
  const a = document.createElement("a"); a.href = "http://attacker.example:%(evil)s/"; a.target = "_top"; document.body.append(a); a.click();
  // Messages that are no messages of the protocol, and a flood of them.
  for (let n = 0; n < 50; n++) send({evil: n, __proto__: {x: 1}});
  send("text"); send(null); send([1, 2]);
  await ask(1, "ui/initialize", {protocolVersion: "2026-01-26", appInfo: {name: "app", version: "1"}, appCapabilities: {}, clientInfo: {name: "app", version: "1"}, capabilities: {}});
  send({jsonrpc: "2.0", method: "ui/notifications/initialized", params: {}});
  await ask(2, "tools/call", {name: "report", arguments: {found: JSON.stringify(found)}});
  document.getElementById("out").textContent = "reported";
})();
</script></body></html>"""


async def test_the_page_of_an_app_reaches_neither_the_console_nor_its_own_origin(
    browser: Chromium, config: Any, project: Path
) -> None:
    server = FakeServer("app")
    meta = {"ui": {"resourceUri": "ui://app/view"}}
    server.define({"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}, "shown")
    report = {"type": "object", "properties": {"found": {"type": "string"}}}
    visible = {"ui": {"resourceUri": "ui://app/view", "visibility": ["app"]}}
    server.define({"name": "report", "inputSchema": report, "_meta": visible}, "thanks")
    async with evil_site("evil") as evil, server:
        async with console(project, config({"mcpServers": {"app": entry(server)}})) as running:
            html = APP.replace("%(console)s", running.base).replace("%(evil)s", str(evil))
            server.resource("ui://app/view", html, mime_type="text/html;profile=mcp-app")
            server.extension("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})
            page = await logged_in(browser, running)
            await page.until("location.hash = '#/tools', document.body.innerText.includes('mcp_app_show')")
            await page.js("location.hash = '#/try/mcp_app_show'")
            await page.click("button[type=submit]", "Call")
            await page.until("document.querySelector('.app-frame iframe') !== null")
            async with asyncio.timeout(30):
                while not server.calls("report"):
                    await asyncio.sleep(0.1)
            found = json.loads(server.calls("report")[0]["found"])
            for name in (
                "parent",
                "top",
                "cookie",
                "storage",
                "session",
                "database",
                "state",
                "outside",
                "popup",
                "worker",
            ):
                assert found[name].startswith("no:"), (name, found)
            assert found["origin"] == "did: null"
            # The console is still there: no navigation, no dialog, its stream alive.
            assert (await page.js("location.href")).startswith(running.base)
            assert page.dialogs == []
            await page.until("document.querySelector('.link.live') !== null")
            frame = await page.js(
                "(() => { const f = document.querySelector('.app-frame iframe');"
                " return [f.getAttribute('sandbox'), new URL(f.src).origin !== location.origin]; })()"
            )
            assert frame == ["allow-scripts", True]


GREETS = """<!doctype html><p>app</p><script>
addEventListener("message", (event) => { if (event.data && event.data.id === 1) {
  parent.postMessage({jsonrpc: "2.0", method: "ui/notifications/initialized", params: {}}, "*");
  parent.postMessage({jsonrpc: "2.0", id: 2, method: "tools/call", params: {name: "seen", arguments: {}}}, "*"); } });
parent.postMessage({jsonrpc: "2.0", id: 1, method: "ui/initialize", params: {protocolVersion: "2026-01-26",
  appInfo: {name: "app", version: "1"}, appCapabilities: {}}}, "*");
</script>"""


@asynccontextmanager
async def tunnel(target: int) -> AsyncIterator[int]:
    """Another port that leads to the console, as `ssh -L` makes it."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_the_page_of_a_tool_is_shown_at_localhost_and_explained_at_other_addresses(
    browser: Chromium, config: Any, project: Path
) -> None:
    server = FakeServer("app")
    meta = {"ui": {"resourceUri": "ui://app/view"}}
    server.define({"name": "show", "inputSchema": {"type": "object"}, "_meta": meta}, "shown")
    server.define(
        {"name": "seen", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["app"]}}}, "x"
    )
    server.resource("ui://app/view", GREETS, mime_type="text/html;profile=mcp-app")
    async with server, console(project, config({"mcpServers": {"app": entry(server)}})) as running:
        page = await logged_in(browser, running)
        (cookie,) = (await page.send("Network.getCookies", urls=[running.base]))["cookies"]
        local = running.base.replace("127.0.0.1", "localhost")
        await page.send("Network.setCookie", url=local, name=cookie["name"], value=cookie["value"])

        async def show(address: str) -> None:
            await page.open(address)
            await page.until("location.hash = '#/tools', document.body.innerText.includes('mcp_app_show')")
            await page.js("location.hash = '#/try/mcp_app_show'")
            await page.click("button[type=submit]", "Call")

        await show(local)
        async with asyncio.timeout(30):
            while not server.calls("seen"):
                await asyncio.sleep(0.05)
        assert page.problems == []
        async with tunnel(running.port) as port:
            await show(running.base.replace(str(running.port), str(port)))
            await page.shows(f"opened at {running.origin}/", ".app-frame.problem")
            assert await page.js("document.querySelector('.app-frame iframe') === null")
        assert len(server.calls("seen")) == 1


async def test_the_origin_of_apps_serves_nothing_else(browser: Chromium, config: Any, project: Path) -> None:
    async with console(project, config({"mcpServers": {}})) as running:
        user = await logged_in(browser, running)
        sandbox = await user.js("fetch('api/session').then((r) => r.json()).then((s) => s.sandbox)")
        assert sandbox not in (None, running.origin)
        async with aiohttp.ClientSession() as http:
            for path in (
                "/",
                "/console/",
                "/console/api/state",
                "/console/api/session",
                "/console/main.js",
                "/../console/",
            ):
                async with http.get(sandbox + path) as response:
                    assert response.status >= 400, path
                    assert "Set-Cookie" not in response.headers
