"""A small WebDriver client: one headless Chromium, driven through chromedriver."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio

from bench.listening import free_port

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self, http: aiohttp.ClientSession, base: str) -> None:
        self._http, self._base = http, base

    async def send(self, verb: str, path: str, body: Any = None) -> Any:
        async with self._http.request(verb, f"{self._base}{path}", json=body) as response:
            value = (await response.json())["value"]
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message'][:300]}")
        return value

    async def open(self, url: str) -> None:
        await self.send("POST", "/url", {"url": url})

    async def run(self, script: str, *args: Any) -> Any:
        """The value of a script; a promise is awaited."""
        return await self.send("POST", "/execute/sync", {"script": script, "args": list(args)})

    async def enter(self, number: int | None) -> None:
        """Go into a frame of the page, or back to the page (None)."""
        await self.send("POST", "/frame", {"id": number})

    async def click(self, selector: str) -> None:
        found = await self.send("POST", "/element", {"using": "css selector", "value": selector})
        await self.send("POST", f"/element/{found[ELEMENT]}/click", {})

    async def until(self, script: str) -> Any:
        """The value of a script as soon as it is true; the caller sets the bound."""
        while not (value := await self.run(script)):
            await anyio.sleep(0.05)
        return value


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    port = free_port()
    driver = await asyncio.create_subprocess_exec(
        DRIVER, f"--port={port}", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    options = {"binary": CHROMIUM, "args": ["--headless=new", "--no-sandbox", "--disable-gpu"]}
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            options["args"] = [*options["args"], f"--user-data-dir={profile}"]
            async with aiohttp.ClientSession() as http:
                wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
                base = f"http://127.0.0.1:{port}"
                while True:
                    try:
                        async with http.post(f"{base}/session", json=wanted) as response:
                            started = (await response.json())["value"]
                        break
                    except aiohttp.ClientConnectionError:
                        await anyio.sleep(0.05)
                if "sessionId" not in started:
                    raise RuntimeError(f"Chromium did not start: {started}")
                session = Browser(http, f"{base}/session/{started['sessionId']}")
                try:
                    yield session
                finally:
                    await session.send("DELETE", "")
    finally:
        driver.terminate()
        await driver.wait()
