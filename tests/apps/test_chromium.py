"""An official example page of MCP Apps, through the gateway, in a real browser (make test-apps).

Two servers of the same npm package stand behind one gateway: same tools, same `ui://` addresses. A small host
page on one origin shows the page of the first server in an iframe on another origin, and relays its messages
to a `ViewBridge`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from mooring import CallFinished, Host, HostConfig, ServerConfig, View, ViewBridge
from mooring.gateway.serve import serve_http
from mooring.transport.forwarding import ClientBridge
from tests.apps.browser import CHROMIUM, DRIVER, browser

pytestmark = [pytest.mark.anyio, pytest.mark.reference, pytest.mark.timeout(240)]

PEERS = Path(__file__).parents[2] / ".peers" / "apps"
PACKAGE = "@modelcontextprotocol/server-basic-vanillajs"
VERSION = "2.0.3"
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}

HOST_PAGE = """<!doctype html><title>host</title><iframe sandbox="allow-scripts allow-same-origin"></iframe>
<script>
const frame = document.querySelector("iframe"), origin = "%(origin)s";
window.messages = [];
const socket = new WebSocket("ws://" + location.host + "/messages");
socket.onmessage = event => frame.contentWindow.postMessage(JSON.parse(event.data), origin);
socket.onopen = () => { frame.src = origin + "/view"; };
window.addEventListener("message", event => {
  if (event.source !== frame.contentWindow || event.origin !== origin) return;
  window.messages.push(event.data);
  socket.send(JSON.stringify(event.data));
});
</script>"""


@pytest.fixture(scope="module")
def program() -> list[str]:
    """The command of the example server, installed from npm once."""
    if not (Path(CHROMIUM).exists() and Path(DRIVER).exists()):
        pytest.fail("needs Debian's packages chromium and chromium-driver")
    entry = PEERS / "node_modules" / PACKAGE / "dist" / "index.js"
    if not entry.exists():
        PEERS.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "init", "-y"], cwd=PEERS, check=True, stdout=subprocess.DEVNULL)
        wanted = f"{PACKAGE}@{VERSION}"
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", wanted], cwd=PEERS, check=True)
    return [shutil.which("node") or "node", str(entry), "--stdio"]


class Shown:
    """A view that a browser shows, and the messages that it exchanged with its bridge."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.to_page: list[dict[str, Any]] = []
        self._socket: web.WebSocketResponse | None = None
        self.bridge: ViewBridge = view.bridge(self._send)
        self._answering: set[asyncio.Task[None]] = set()

    async def _send(self, message: dict[str, Any]) -> None:
        self.to_page.append(message)
        assert self._socket is not None
        await self._socket.send_json(message)

    async def relay(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            task = asyncio.ensure_future(self.bridge.receive(json.loads(message.data)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        return socket

    async def page(self, request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": self.view.csp}
        return web.Response(text=self.view.html, content_type="text/html", headers=headers)


@asynccontextmanager
async def site(*routes: web.RouteDef) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def shown_in(page: Any, view: View) -> AsyncIterator[Shown]:
    """The view in the browser, on an origin of its own within the host page."""
    shown = Shown(view)
    async with site(web.get("/view", shown.page)) as inner:
        text = HOST_PAGE % {"origin": f"http://127.0.0.1:{inner}"}

        async def host_page(request: web.Request) -> web.Response:
            return web.Response(text=text, content_type="text/html")

        async with site(web.get("/", host_page), web.get("/messages", shown.relay)) as outer:
            await page.open(f"http://127.0.0.1:{outer}/")
            yield shown
            await page.open("about:blank")


async def test_an_official_example_page_calls_the_tool_of_its_own_server_and_no_other(
    program: list[str],
) -> None:
    servers = [
        ServerConfig(name=name, command=program[0], args=tuple(program[1:])) for name in ("alpha", "beta")
    ]
    with anyio.fail_after(200):
        async with (
            Host(HostConfig(servers=tuple(servers)), relay=ClientBridge(), lock=False) as behind,
            serve_http(behind) as serving,
            browser() as page,
        ):
            assert await behind.ready(60)
            calls = behind.events(CallFinished)
            config = ServerConfig(name="gateway", url=serving.url)
            async with Host([config], extensions=UI, lock=False) as host:
                assert await host.ready(60)
                names = sorted(name for name in host.catalog.tools if name.endswith("get_time"))
                assert len(names) == 2, names
                views = [await host.view(name) for name in names]
                assert [view.uri.split("/")[2] for view in views] == ["alpha", "beta"]
                async with shown_in(page, views[0]) as shown:
                    await shown.bridge.tool_input({})
                    await shown.bridge.tool_result(await host.call(names[0]))
                    await page.enter(0)
                    time = "return document.querySelector('#server-time').textContent"
                    first = await page.until(f"{time}.startsWith('20') && document.body.innerText")
                    assert (await anext(calls)).server == "alpha"
                    # The button of the page: `tools/call` with the server's own name of the tool.
                    await page.click("#get-time-btn")
                    assert (await anext(calls)).server == "alpha"
                    assert (
                        await page.until("return document.querySelector('#server-time').textContent") != ""
                    ), first
                    # What the page must not do: other tools, and other addresses than its policy allows.
                    ask = (
                        "window.answers ??= {}; window.addEventListener('message', e => {"
                        "if (e.data && typeof e.data.id === 'string') window.answers[e.data.id] = e.data});"
                        "for (const name of arguments[0]) window.parent.postMessage("
                        "{jsonrpc: '2.0', id: name, method: 'tools/call', params: {name}}, '*')"
                    )
                    wrong = [names[1], "mcp_beta_get_time", "beta/get-time", "no-such-tool"]
                    await page.run(ask, [*wrong, "get-time"])
                    done = f"return Object.keys(window.answers).length === {len(wrong) + 1} && window.answers"
                    answers = await page.until(done)
                    assert all("error" in answers[name] for name in wrong)
                    assert "result" in answers["get-time"]
                    assert (await anext(calls)).server == "alpha"
                    blocked = "return fetch(arguments[0]).then(() => 'reached', () => 'blocked')"
                    assert await page.run(blocked, serving.url) == "blocked"
                    await page.enter(None)
                    methods = [message.get("method") for message in await page.run("return window.messages")]
                    assert {"ui/initialize", "ui/notifications/initialized", "tools/call"} <= {*methods}
                    assert await shown.bridge.teardown("closed", timeout=20)
                async with shown_in(page, views[1]) as shown:
                    await shown.bridge.tool_input({})
                    await shown.bridge.tool_result(await host.call(names[1]))
                    await page.enter(0)
                    await page.until("return document.querySelector('#get-time-btn') !== null")
                    assert (await anext(calls)).server == "beta"
                    await page.click("#get-time-btn")
                    assert (await anext(calls)).server == "beta"
