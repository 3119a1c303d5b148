"""What all HTTP servers share: one pool of kept-alive connections and one TLS context."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from mooring.net.way import Ways

if TYPE_CHECKING:
    import aiohttp

CHUNK = 64 * 1024
BUFFER = 256 * 1024
"""Bytes of a body that are read ahead: with a quarter of it, aiohttp's own, large answers come in fits."""
CHUNKS_PER_TURN = 16
"""Chunks of a body that are taken before the event loop serves others."""
KEEP_ALIVE = 4.0
"""Under the 5 s after which common servers close an idle connection: a request sent into a closing
connection is lost without anyone knowing whether it was read."""


class TooLargeBody(Exception):
    """The body, decompressed, holds more than it may."""


class HttpPool:
    """Opened on first use; closed with the host."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self.ways = Ways()

    def session(self) -> aiohttp.ClientSession:
        """The one session. aiohttp's own timeouts are off: each request has a deadline of ours."""
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                # aiohttp keeps one verifying TLS context for the whole process: all servers share it, but for
                # those that have settings of their own. A connection serves only those with the same.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent",),
                read_bufsize=BUFFER,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def body_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body, decompressed, in bounded pieces: a small bomb never becomes a large one in memory.

    Raises:
        ValueError: the encoding is none we asked for, or, on the way, the data is damaged.
    """
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding in ("identity", ""):
        return _AsTheyCame(response)
    if encoding not in ("gzip", "deflate"):
        raise ValueError(f"the body is encoded as {encoding!r}, which was not asked for")
    return _unpacked(response)


class _AsTheyCame:
    """Pieces that nobody joined: that is done once, by whoever wants it. A generator would cost every
    answer a tenth of what aiohttp does."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._next = response.content.readchunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk, more = await self._next()
        if chunk or more:
            return chunk
        raise StopAsyncIteration


async def _unpacked(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    async for chunk in response.content.iter_any():
        data = chunk
        while data:
            try:
                piece = unpack.decompress(data, CHUNK)
            except zlib.error as damage:
                raise ValueError(f"the compressed body is damaged ({damage})") from None
            if piece:
                yield piece
            data = unpack.unconsumed_tail


async def whole_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLargeBody: it holds more than `limit` bytes.
        ValueError: see `body_chunks`.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in body_chunks(response):
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise TooLargeBody
        if len(parts) % CHUNKS_PER_TURN == 0:
            await asyncio.sleep(0)
    return b"".join(parts)
