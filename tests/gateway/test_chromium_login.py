"""Logins through the gateway in real Chromium: two principals at once, and the attempts of a third."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.gateway.test_identity import carried, token_of
from tests.gateway.test_remote_login import (
    environment,  # noqa: F401
    free_port,
    gateway_of,
    link_in,
)
from tests.lab.oauth import AuthLab, query_of

DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.reference,
    pytest.mark.timeout(240),
    pytest.mark.skipif(DRIVER is None, reason="chromedriver is not installed"),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Chromium:
    """One browser with its own profile, controlled by the WebDriver protocol."""

    def __init__(self, http: aiohttp.ClientSession, session: str) -> None:
        self._http, self._session = http, session

    async def _do(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self._http.request(method, f"{self._session}{path}", json=body) as response:
            said = (await response.json())["value"]
            assert response.status == 200, said
            return said

    async def open(self, url: str) -> None:
        await self._do("POST", "/url", {"url": url})

    async def source(self) -> str:
        return await self._do("GET", "/source")

    async def url(self) -> str:
        return await self._do("GET", "/url")

    async def run(self, script: str) -> Any:
        return await self._do("POST", "/execute/sync", {"script": script, "args": []})

    async def find(self, css: str) -> str:
        """The element, as soon as there is one."""
        async with asyncio.timeout(20):
            while True:
                found = await self._do("POST", "/elements", {"using": "css selector", "value": css})
                if found:
                    return found[0][ELEMENT]
                await asyncio.sleep(0.05)

    async def type(self, css: str, text: str) -> None:
        await self._do("POST", f"/element/{await self.find(css)}/value", {"text": text})

    async def click(self, css: str) -> None:
        await self._do("POST", f"/element/{await self.find(css)}/click", {})

    async def until(self, text: str) -> str:
        """The page, as soon as it shows this text."""
        async with asyncio.timeout(20):
            while text not in (page := await self.source()):
                await asyncio.sleep(0.05)
        return page

    async def close(self) -> None:
        await self._do("DELETE", "")


@asynccontextmanager
async def chromiums(folder: Path, count: int) -> AsyncIterator[list[Chromium]]:
    port = free_port()
    assert DRIVER is not None
    driver = await asyncio.create_subprocess_exec(
        DRIVER, f"--port={port}", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}"
    opened: list[Chromium] = []
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
            async with asyncio.timeout(20):
                while not await _ready(http, base):
                    await asyncio.sleep(0.05)
            for number in range(count):
                options = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"]
                options.append(f"--user-data-dir={folder / str(number)}")
                wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": options}}
                body = {"capabilities": {"alwaysMatch": wanted}}
                async with http.post(f"{base}/session", json=body) as response:
                    said = (await response.json())["value"]
                    assert response.status == 200, said
                opened.append(Chromium(http, f"{base}/session/{said['sessionId']}"))
            try:
                yield opened
            finally:
                for browser in opened:
                    await browser.close()
    finally:
        driver.terminate()
        await driver.wait()


async def _ready(http: aiohttp.ClientSession, base: str) -> bool:
    try:
        async with http.get(f"{base}/status") as response:
            return (await response.json())["value"]["ready"]
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def hostile_site(pages: dict[str, str]) -> AsyncIterator[int]:
    """The port of a web site with these pages."""

    async def show(request: web.Request) -> web.Response:
        return web.Response(text=pages.get(request.path, ""), content_type="text/html")

    app = web.Application()
    app.router.add_get("/{page}", show)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def log_in(browser: Chromium, link: str, token: str | None) -> str:
    """Log in as a person does; the address of the last page."""
    await browser.open(link)
    if token is not None:
        await browser.type("input[name=token]", token)
    await browser.click("button")
    await browser.click("#agree")  # on the page of the authorization server
    await browser.until("Login complete")
    return await browser.url()


async def link_for(here: Any, name: str) -> str:
    client = await here.caller(token=token_of(name))
    return link_in((await client.call("web_echo", {"text": "?"})).text)


async def test_two_principals_log_in_at_once_and_csrf_replay_and_mix_ups_are_refused(
    serving: Any, tmp_path: Path
) -> None:
    async with AuthLab() as auth, AuthLab() as other:
        async with gateway_of(serving, auth, other) as here, chromiums(tmp_path, 2) as (ana, bob):
            auth.page = other.page = True
            operators = set(auth.tokens)
            links = [await link_for(here, name) for name in ("ana", "bob")]
            backs = await asyncio.gather(
                log_in(ana, links[0], token_of("ana")), log_in(bob, links[1], token_of("bob"))
            )
            # Each call goes out under the caller's own login.
            for name in ("ana", "bob"):
                client = await here.caller(token=token_of(name))
                assert (await client.call("web_echo", {"text": name})).text == name
            used = dict(carried(auth.lab, auth))
            assert used["ana"] != used["bob"]
            assert {used["ana"], used["bob"]} == set(auth.tokens) - operators

            granted = auth.count("/token")
            # Replay: the link, and the way back, in the same browser and in another.
            await ana.open(links[0])
            await ana.until("This link is not valid")
            for browser in (ana, bob):
                await browser.open(backs[0])
                await browser.until("does not belong to a login in this browser")

            # A link of Ana's that is sent to Bob, who has proved to be Bob in his browser.
            await here.host.logout("web", principal="token:ana")
            stolen = await link_for(here, "ana")
            await bob.open(stolen)
            await bob.type("input[name=token]", token_of("bob"))
            await bob.click("button")
            await bob.until("That is not the token of this client")

            # CSRF: pages of another site, and of another port of the same site, send the form for Ana.
            form = (
                f'<form method="post" action="{stolen}"><input name="check" value="{"0" * 64}">'
                f'<input name="token" value="{token_of("ana")}"></form>'
                "<script>document.forms[0].submit()</script>"
            )
            frame = f'<iframe id="frame" src="{stolen}"></iframe><p>framed</p>'
            async with hostile_site({"/form": form, "/frame": frame}) as port:
                await ana.open(stolen)  # so that the browser has its cookie
                for site in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
                    await ana.open(f"{site}/form")
                    await ana.until("does not belong to a login in this browser")
                await ana.open(f"http://127.0.0.1:{port}/frame")
                await ana.until("framed")
                inside = "const f = document.getElementById('frame'); try { return f.contentDocument.title }"
                assert await ana.run(inside + " catch (e) { return 'blocked' }") != "mooring"

            # Mix-up: a code of one authorization server with the state of a login at the other.
            await ana.open(link_in((await _call(here, "ana", "web1_echo")).text))
            state = await _state_of_pending_login(ana)
            where = backs[0].partition("?")[0]
            await ana.open(f"{where}?code=stolen&state={state}")
            await ana.until("does not belong to a login in this browser")
            assert auth.count("/token") == granted

            # The link is still good for Ana, who need not enter her token again.
            await log_in(ana, stolen, None)
            client = await here.caller(token=token_of("ana"))
            assert (await client.call("web_echo", {"text": "again"})).text == "again"


async def _call(here: Any, name: str, tool: str) -> Any:
    return await (await here.caller(token=token_of(name))).call(tool, {"text": "?"})


async def _state_of_pending_login(browser: Chromium) -> str:
    """Begin the login of the page, and return its state from the page of the authorization server."""
    await browser.click("button")
    await browser.find("#agree")
    return query_of(await browser.url())["state"]
