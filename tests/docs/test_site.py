"""The documentation site in a real browser, as `make docs` built it: `make test-docs`.

With UPDATE=1 the screenshots in tests/docs/golden are written again: look at them.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.browser import Browser, browser

pytestmark = [pytest.mark.reference, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
GOLDEN = Path(__file__).parent / "golden"
PAGES = {
    "home": ("index.html", "light"),
    "home-dark": ("index.html", "dark"),
    "tutorial": ("tutorial.html", "light"),
    "adapter": ("adapters/langchain.html", "dark"),
    "reference": ("reference/api/events.html", "light"),
}
DIFFERENCE = """
const [was, is] = await Promise.all(arguments[0].map(async data => {
  const image = new Image(); image.src = 'data:image/png;base64,' + data; await image.decode();
  const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height;
  const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, image.width, image.height);
}));
if (was.width != is.width || was.height != is.height) return 1;
let changed = 0;
for (let i = 0; i < is.data.length; i += 4)
  if (Math.abs(was.data[i] - is.data[i]) + Math.abs(was.data[i + 1] - is.data[i + 1]) > 60) changed++;
return changed / (is.data.length / 4);
"""

FONT = "lib/python*/site-packages/mkdocs/themes/readthedocs/css/fonts/lato-normal.woff2"
"""A font of the pinned tools of the site. The site itself uses the fonts of the system, which differ."""
ONE_FONT = """
const font = new FontFace('Golden', 'url(data:font/woff2;base64,' + arguments[0] + ')');
document.fonts.add(await font.load());
const style = document.createElement('style'); style.textContent = '* { font-family: Golden !important }';
document.head.append(style);
"""


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    version = next(path.parent.name for path in SITE.glob("*/index.html"))
    handler = functools.partial(Silent, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{version}"
        server.shutdown()
        thread.join()


@pytest.fixture
async def page() -> AsyncIterator[Browser]:
    async with asyncio.timeout(120), browser() as one:
        await one.send("POST", "/window/rect", {"width": 1280, "height": 860})
        yield one


async def show(page: Browser, url: str, colours: str) -> None:
    """Open a page in light or dark colours, and wait until it is drawn."""
    await page.open(url)
    scheme = "slate" if colours == "dark" else "default"
    index = 1 if colours == "dark" else 0
    await page.run(
        "localStorage.setItem(arguments[0], JSON.stringify({index: arguments[1], color: {media:"
        " arguments[1] ? '(prefers-color-scheme: dark)' : '(prefers-color-scheme: light)',"
        " scheme: arguments[2], primary: 'custom', accent: ''}}))",
        "/" + url.split("/", 4)[3] + "/.__palette",
        index,
        scheme,
    )
    await page.open(url)
    await page.until("return document.readyState == 'complete' && document.querySelector('.md-content')")


@pytest.mark.parametrize("name", PAGES)
async def test_a_main_page_looks_as_its_golden_screenshot(name: str, page: Browser, address: str) -> None:
    path, colours = PAGES[name]
    await show(page, f"{address}/{path}", colours)
    scheme = await page.run("return document.body.getAttribute('data-md-color-scheme')")
    assert scheme == ("slate" if colours == "dark" else "default")
    font = next((ROOT / ".venv-docs").glob(FONT))
    await page.run(ONE_FONT, base64.b64encode(font.read_bytes()).decode())
    await page.until("return [...document.images].every(one => one.complete && one.naturalWidth > 0)")
    # The recorded terminal session is animated, in a font of the system: only its place is compared.
    images = "document.querySelectorAll('img[src$=\"session.svg\"]')"
    await page.run(f"{images}.forEach(one => one.style.opacity = 0)")
    picture = await page.send("GET", "/screenshot")
    golden = GOLDEN / f"{name}.png"
    if os.environ.get("UPDATE"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_bytes(base64.b64decode(picture))
    stored = base64.b64encode(golden.read_bytes()).decode()
    assert await page.run(DIFFERENCE, [stored, picture]) < 0.02, "look at it, then run with UPDATE=1"


async def test_pages_load_nothing_from_another_host(page: Browser, address: str) -> None:
    for path, _ in PAGES.values():
        await page.open(f"{address}/{path}")
        await page.until("return document.readyState == 'complete'")
        loaded = await page.run("return performance.getEntriesByType('resource').map(one => one.name)")
        assert [url for url in loaded if not url.startswith(address.rpartition("/")[0])] == []
        assert any(url.endswith(".css") for url in loaded)


async def test_the_search_finds_a_setting_and_leads_to_it(page: Browser, address: str) -> None:
    await page.open(f"{address}/index.html")
    await page.until("return document.querySelector('[data-md-component=search-query]')")
    await page.run(
        "document.querySelector('#__search').checked = true;"
        "const field = document.querySelector('[data-md-component=search-query]');"
        "field.focus(); field.value = 'discovery_budget';"
        "field.dispatchEvent(new Event('keyup', {bubbles: true}))"
    )
    link = await page.until("return document.querySelector('.md-search-result__link')?.href")
    assert link.startswith(address)
    await page.open(link)
    assert "discovery_budget" in await page.run("return document.body.innerText")


async def test_the_menu_of_versions_has_the_built_one(page: Browser, address: str) -> None:
    await page.open(f"{address}/index.html")
    text = await page.until("return document.querySelector('.md-version__current')?.innerText")
    assert text.strip() == address.rpartition("/")[2]


async def test_no_page_is_wider_than_a_narrow_window(page: Browser, address: str) -> None:
    await page.send("POST", "/window/rect", {"width": 500, "height": 760})
    for path, _ in PAGES.values():
        await page.open(f"{address}/{path}")
        await page.until("return document.readyState == 'complete'")
        assert await page.run("return document.documentElement.scrollWidth <= window.innerWidth"), path
