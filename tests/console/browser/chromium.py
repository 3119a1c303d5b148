"""Headless Chromium, driven through the DevTools protocol: real clicks and keys, screenshots, console messages."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb
    --remote-debugging-port=0 --remote-debugging-address=127.0.0.1""".split()
BOUND = 30.0
"""Seconds within which the page shows what a test waits for."""
KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    " ": (32, " "),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "PageDown": (34, ""),
}
# The element that a selector and a text name: visible ones only, the innermost first.
FIND = """(css, text) => {
  const visible = (e) => e.checkVisibility?.({checkVisibilityCSS: true}) ?? true;
  const dialog = document.querySelector("dialog[open]") ?? document;
  const all = [...dialog.querySelectorAll(css)].filter(visible);
  if (text === null) return all[0] ?? null;
  const name = (e) => (e.getAttribute("aria-label") ?? "") + " " + e.textContent + " " + (e.value ?? "");
  return all.find((e) => e.textContent.trim() === text) ?? all.find((e) => name(e).includes(text)) ?? null;
}"""


class Failed(Exception):
    """The page threw an error, or does not show what was asked for."""


class Page:
    """One tab in its own profile."""

    def __init__(self, browser: Chromium, session: str, target: str, context: str) -> None:
        self._browser, self._session, self.target, self.context = browser, session, target, context
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []

    async def send(self, method: str, **params: Any) -> Any:
        return await self._browser.send(method, params, self._session)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            asyncio.get_running_loop().create_task(self.send("Page.handleJavaScriptDialog", accept=False))

    async def open(self, url: str) -> None:
        answer = await self.send("Page.navigate", url=url)
        if answer.get("errorText") not in (None, "net::ERR_ABORTED"):
            raise Failed(f"{url}: {answer['errorText']}")
        await self.until("document.readyState === 'complete'")

    async def js(self, expression: str, *, context: int | None = None) -> Any:
        """The value of an expression; a promise is awaited."""
        params: dict[str, Any] = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        if context is not None:
            params["contextId"] = context
        answer = await self.send("Runtime.evaluate", userGesture=True, **params)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failed(str(details.get("exception", {}).get("description") or details["text"]))
        return answer["result"].get("value")

    async def until(self, expression: str, bound: float = BOUND) -> Any:
        """The value of an expression as soon as it is true."""
        try:
            async with asyncio.timeout(bound):
                while True:
                    try:
                        if value := await self.js(expression):
                            return value
                    except Failed as failed:
                        if not re.search("context|target navigated", str(failed), re.IGNORECASE):
                            raise  # else the page is being loaded
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = (await self.js("document.body?.innerText ?? ''"))[:2000]
            raise Failed(
                f"not within {bound:g} s: {expression}\n{self.problems}\nThe page shows:\n{shown}"
            ) from None

    async def shows(self, text: str, css: str = "body", bound: float = BOUND) -> None:
        await self.until(
            f"document.querySelector({json.dumps(css)})?.innerText.includes({json.dumps(text)})", bound
        )

    async def text(self, css: str = "main") -> str:
        return await self.js(f"document.querySelector({json.dumps(css)})?.innerText ?? ''")

    async def click(self, css: str, text: str | None = None) -> None:
        """A click of the mouse in the middle of an element, as soon as it is enabled and stays in its place."""
        find = f"({FIND})({json.dumps(css)}, {json.dumps(text)})"
        spot = await self.until(
            f"(async () => {{ const e = {find}; if (!e || e.disabled) return null;"
            " e.scrollIntoView({block: 'center', inline: 'center'});"
            " const middle = () => { const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; };"
            " const before = middle(); await new Promise((done) => setTimeout(done, 50));"
            f" const after = middle(); return e.isConnected && e === {find}"
            " && before.join() === after.join() ? after : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1
            )

    async def press(self, key: str, *, shift: bool = False, control: bool = False) -> None:
        code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
        event = {
            "key": key,
            "code": key if len(key) > 1 else "",
            "windowsVirtualKeyCode": code,
            "modifiers": (8 if shift else 0) + (2 if control else 0),
        }
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        await self.send("Input.dispatchKeyEvent", **event, **down)
        await self.send("Input.dispatchKeyEvent", **event, type="keyUp")

    async def write(self, text: str) -> None:
        """Type into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def fill(self, css: str, text: str) -> None:
        await self.click(css)
        await self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(css)}); e?.focus(); e?.select?.();"
            " return e !== null && document.activeElement === e; })()"
        )
        await self.write(text)

    async def choose(self, css: str, value: str) -> None:
        """Choose an option of a select."""
        await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(css)}); e.value = {json.dumps(value)};"
            " e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    async def look(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme, calm])

    async def picture(self, path: Path) -> None:
        await self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        answer = await self.send("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def axe(self) -> list[str]:
        """Serious and critical findings of axe, checked from a world of its own."""
        frame = (await self.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        world = await self.send("Page.createIsolatedWorld", frameId=frame, worldName="axe")
        context = world["executionContextId"]
        await self.js(AXE.read_text() + "; true", context=context)
        found = await self.js(
            "axe.run(document, {resultTypes: ['violations'], iframes: false}).then((r) => r.violations"
            ".filter((v) => ['serious', 'critical'].includes(v.impact))"
            ".map((v) => v.id + ': ' + v.help + ' | ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)"
            " + ' -- ' + (n.any[0]?.message ?? n.all[0]?.message ?? n.none[0]?.message ?? '')).join(' || ')))",
            context=context,
        )
        return list(found)

    async def close(self) -> None:
        await self._browser.send("Target.disposeBrowserContext", {"browserContextId": self.context})


class Chromium:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self.downloads: Path | None = None

    async def send(self, method: str, params: dict[str, Any], session: str | None = None) -> Any:
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        async with asyncio.timeout(120):
            return await future

    async def read(self) -> None:
        async for frame in self._socket:
            message = json.loads(frame.data)
            future = self._waiting.pop(message.get("id", 0), None)
            if future and not future.done():
                if "error" in message:
                    future.set_exception(Failed(str(message["error"])))
                else:
                    future.set_result(message["result"])
            elif "method" in message and (listener := self._listeners.get(message.get("sessionId", ""))):
                listener(message["method"], message["params"])

    async def page(
        self, *, width: int = 1280, height: int = 800, dark: bool = False, beside: Page | None = None
    ) -> Page:
        """A new tab: in a profile of its own, or in the profile of another tab."""
        if beside:
            context = beside.context
        else:
            context = (await self.send("Target.createBrowserContext", {}))["browserContextId"]
        wanted = {"url": "about:blank", "browserContextId": context}
        target = (await self.send("Target.createTarget", wanted))["targetId"]
        attached = await self.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"], target, context)
        self._listeners[attached["sessionId"]] = page.on_event
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.send(f"{domain}.enable")
        if self.downloads:
            where = {"behavior": "allow", "downloadPath": str(self.downloads), "browserContextId": context}
            await self.send("Browser.setDownloadBehavior", where)
        await page.look(width=width, height=height, dark=dark)
        return page


@asynccontextmanager
async def chromium(*flags: str, downloads: Path | None = None) -> AsyncIterator[Chromium]:
    """A browser with a fresh profile; it is ended when the block ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            CHROMIUM, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank", stdout=quiet, stderr=quiet
        )
        try:
            port = Path(profile) / "DevToolsActivePort"
            async with asyncio.timeout(60):
                while not (port.exists() and len(port.read_text().splitlines()) == 2):
                    if process.returncode is not None:
                        raise Failed(f"Chromium ended with {process.returncode}")
                    await asyncio.sleep(0.05)
            number, path = port.read_text().splitlines()
            async with aiohttp.ClientSession() as http:
                address = f"ws://127.0.0.1:{number}{path}"
                async with http.ws_connect(address, max_msg_size=0, heartbeat=None) as socket:
                    browser = Chromium(socket)
                    browser.downloads = downloads
                    reader = asyncio.create_task(browser.read())
                    try:
                        yield browser
                    finally:
                        reader.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(10):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
