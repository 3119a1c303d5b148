"""Small pictures: the pixels of a screenshot with at most 256 colours, as a PNG with a palette."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from pathlib import Path

from tests.console.browser.chromium import Chromium, Page

DOCS = Path(__file__).parents[3] / "docs" / "console"

# Count colours in buckets of 5 bits per channel, keep the most frequent ones, and map the rest to the nearest.
QUANTISE = """(async (data) => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height), paint = canvas.getContext("2d");
  paint.drawImage(image, 0, 0);
  const p = paint.getImageData(0, 0, image.width, image.height).data, size = p.length / 4;
  const count = new Uint32Array(32768), sums = [0, 1, 2].map(() => new Float64Array(32768)), bucket = new Uint16Array(size);
  for (let i = 0; i < size; i++) {
    const b = ((p[4 * i] >> 3) << 10) | ((p[4 * i + 1] >> 3) << 5) | (p[4 * i + 2] >> 3);
    bucket[i] = b; count[b]++; for (let c = 0; c < 3; c++) sums[c][b] += p[4 * i + c];
  }
  const used = [...count.keys()].filter((b) => count[b]).sort((a, b) => count[b] - count[a]);
  const mean = (b) => sums.map((s) => Math.round(s[b] / count[b]));
  const palette = used.slice(0, 256).map(mean), index = new Uint8Array(32768);
  used.forEach((b, at) => {
    if (at < 256) return void (index[b] = at);
    const m = mean(b); let best = 0, least = Infinity;
    palette.forEach((q, n) => { const d = (m[0] - q[0]) ** 2 + (m[1] - q[1]) ** 2 + (m[2] - q[2]) ** 2; if (d < least) { least = d; best = n; } });
    index[b] = best;
  });
  let text = ""; const out = bucket.map((b) => index[b]);
  for (let i = 0; i < size; i += 8192) text += String.fromCharCode(...out.subarray(i, i + 8192));
  return {width: image.width, height: image.height, palette, data: btoa(text)};
})"""


async def small_picture(page: Page, painter: Page, path: Path) -> None:
    """Write a screenshot of `page`; `painter` is an empty page, which counts the colours."""
    await page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shot = (await page.send("Page.captureScreenshot", format="png"))["data"]
    found = await painter.js(f"{QUANTISE}({json.dumps(shot)})")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_png(found["width"], found["height"], found["palette"], base64.b64decode(found["data"])))


async def pictures(browser: Chromium, page: Page, name: str) -> None:
    """Write the pictures of a page for the documentation, light and dark, if they are asked for."""
    if os.environ.get("MOORING_SCREENSHOTS"):
        painter = await browser.page()
        for dark in (False, True):
            await page.look(dark=dark)
            await small_picture(page, painter, DOCS / f"{name}-{'dark' if dark else 'light'}.png")
        await page.look()


def _png(width: int, height: int, palette: list[list[int]], pixels: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", b"".join(bytes(colour) for colour in palette))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
