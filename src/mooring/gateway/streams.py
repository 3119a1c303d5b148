"""Answers over HTTP: plain JSON, or a stream of events where something must be said before the last word."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress

from aiohttp import web

from mooring.gateway.outbox import Outbox

__all__ = ["PULSE", "HttpExchange", "abort", "json_response", "numbered", "pour", "stream_response"]

PULSE = 25.0
"""Seconds of silence after which an open stream is written to, so that one that is gone is noticed."""
WRITE_WITHIN = 30.0
BEAT = b":\n\n"


class HttpExchange:
    """One POST. Its answer is plain JSON, unless something must be said before it: then it is a stream."""

    __slots__ = ("_box", "_more", "_request", "_stream", "_writer", "headers", "streams")

    def __init__(self, request: web.BaseRequest, more: Mapping[str, str]) -> None:
        self.headers: Mapping[str, str] = request.headers
        accepted = request.headers.get("Accept", "")
        self.streams = "text/event-stream" in accepted or "*/*" in accepted
        self._request = request
        self._more = more
        self._box: Outbox | None = None
        self._stream: web.StreamResponse | None = None
        self._writer: asyncio.Task[None] | None = None

    def send(self, body: bytes) -> None:
        if not self.streams:
            return
        if self._box is None:
            self._box = Outbox(on_lost=lambda: abort(self._request))
            self._writer = asyncio.create_task(self._write())
        self._box.put(body)

    async def finish(self, body: bytes, status: int) -> web.StreamResponse:
        """Send the answer."""
        if self._box is None:
            return json_response(body, status, self._more)
        self._box.put(body)
        return await self.end()

    async def end(self) -> web.StreamResponse:
        """End a stream that has begun."""
        assert self._box is not None
        assert self._writer is not None
        self._box.close()
        await self._writer
        assert self._stream is not None
        return self._stream

    @property
    def begun(self) -> bool:
        return self._box is not None

    def drop(self) -> None:
        """The client is gone."""
        if self._writer is not None:
            self._writer.cancel()

    async def _write(self) -> None:
        assert self._box is not None
        self._stream = stream_response(self._more)
        await pour(self._request, self._stream, self._box)


def sse(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"


def json_response(body: bytes, status: int, more: Mapping[str, str]) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=more or None)


def stream_response(more: Mapping[str, str]) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", **more}
    return web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})


def numbered(first: int) -> Callable[[bytes], bytes]:
    """Frames events with ids from `first` on, so that a client can say which was its last."""
    numbers = itertools.count(first)
    return lambda body: b"id: %d\n" % next(numbers) + sse(body)


async def pour(
    request: web.BaseRequest,
    stream: web.StreamResponse,
    box: Outbox,
    *,
    pulse: float | None = None,
    frame: Callable[[bytes], bytes] = sse,
    prime: bytes = b"",
) -> None:
    """Write what comes into the box until it is closed, or the client is gone or too slow."""

    async def write(data: bytes) -> None:
        async with asyncio.timeout(WRITE_WITHIN):
            await stream.write(data)

    try:
        await stream.prepare(request)
        if prime:
            await write(prime)
        await box.pour(write, frame=frame, pulse=pulse, beat=BEAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(WRITE_WITHIN):
                await stream.write_eof()
    except (ConnectionError, TimeoutError):
        box.lose()


def abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
