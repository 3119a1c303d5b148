"""The gateway on standard input and output: one client, one message a line, both eras."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, cast

import anyio

from mooring.core.types import EMPTY
from mooring.gateway import batch
from mooring.gateway.client import ANONYMOUS, Client, Principal
from mooring.gateway.outbox import Outbox
from mooring.gateway.protocol import (
    CAPABILITIES,
    INVALID_REQUEST,
    PARSE_ERROR,
    VERSION,
    Refusal,
    era_of_message,
    error_body,
    fields,
    is_id,
    modern_stamp,
    result_body,
)
from mooring.gateway.server import Gateway
from mooring.gateway.shapes import handshake_version
from mooring.net.message import RequestId, decode

__all__ = ["serve_stdio"]

MOST_UNDER_WAY = 1024
FAREWELL = 2.0


class _Line:
    """One request on the pipe: what belongs to it goes where everything goes."""

    headers: Mapping[str, str] = EMPTY
    streams = True

    def __init__(self, box: Outbox) -> None:
        self._box = box

    def send(self, body: bytes) -> None:
        self._box.put(body)


class Pipe:
    """The conversation with the one client at the other end."""

    def __init__(self, gateway: Gateway, box: Outbox, principal: Principal = ANONYMOUS) -> None:
        self._gateway, self._box, self._principal = gateway, box, principal
        self._line = _Line(box)
        self._view = gateway.view("")
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._scopes: dict[RequestId, anyio.CancelScope] = {}

    def take(self, line: bytes) -> None:
        """One line that came in."""
        try:
            message: object = decode(line)
        except (ValueError, RecursionError):
            self._box.put(error_body(None, Refusal(PARSE_ERROR, "the line is not JSON")))
            return
        if isinstance(message, list):
            self._start(self._batch(cast("list[object]", message)))
            return
        said = fields(message)
        if "method" not in said:
            if self._client is not None and said:
                self._client.answered(said)
            return
        if "id" not in said:
            if said["method"] == "notifications/cancelled":
                self._cancel(fields(said.get("params")).get("requestId"))
            return
        self._begin(said)

    def _begin(self, message: dict[str, Any]) -> None:
        key = message["id"]
        if not is_id(key) or key in self._scopes or len(self._tasks) >= MOST_UNDER_WAY:
            problem = Refusal(
                INVALID_REQUEST, "the id is none, or in use, or too many requests are under way"
            )
            self._box.put(error_body(cast("RequestId", key) if is_id(key) else None, problem))
            return
        self._start(self._work(key, message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _batch(self, messages: list[object]) -> None:
        async def answer(message: dict[str, Any]) -> bytes | None:
            try:
                return await self._answer(message["id"], message)
            except Refusal as refusal:
                return error_body(message["id"], refusal)

        try:
            if self._client is None:
                raise Refusal(INVALID_REQUEST, "begin with initialize")
            body = await batch.answered(self._client, messages, answer)
        except Refusal as refusal:
            body = error_body(None, refusal)
        if body is not None:
            self._box.put(body)

    def _cancel(self, key: object) -> None:
        if isinstance(key, int | str) and (scope := self._scopes.get(key)) is not None:
            scope.cancel()

    async def _work(self, key: RequestId, message: dict[str, Any]) -> None:
        with anyio.CancelScope() as scope:
            self._scopes[key] = scope
            try:
                body = await self._answer(key, message)
            except Refusal as refusal:
                body = error_body(key, refusal)
            finally:
                del self._scopes[key]
            if body is not None:
                self._box.put(body)

    async def _answer(self, key: RequestId, message: dict[str, Any]) -> bytes | None:
        client = self._client_for(message)
        if message["method"] == "subscriptions/listen" and client.era == "modern":
            async with self._gateway.hub.listening(client, message, self._box):
                await asyncio.get_running_loop().create_future()  # until it is cancelled
        return result_body(key, await self._gateway.answer(client, message, self._line))

    def _client_for(self, message: Mapping[str, Any]) -> Client:
        assert self._view is not None
        registry = self._gateway.registry
        if era_of_message(message, None) == "modern":
            meta = modern_stamp(message)
            return registry.passing(self._view, self._principal, "modern", meta[VERSION], meta[CAPABILITIES])
        params = fields(message.get("params"))
        if message["method"] == "initialize":
            if self._client is None:
                version = handshake_version(params.get("protocolVersion"))
                abilities = fields(params.get("capabilities"))
                self._client = registry.open(self._view, self._principal, version, abilities)
                self._client.standing = self._box
        elif self._client is None:
            if message["method"] == "ping":
                return registry.passing(self._view, self._principal, "legacy", handshake_version(None), {})
            raise Refusal(INVALID_REQUEST, "begin with initialize, or send what the 2026 era needs in _meta")
        return self._client

    def close(self) -> None:
        """Say nothing more."""
        self._box.close()

    async def settle(self) -> None:
        """Nothing more comes in: give the answers that are under way a moment."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL)
        await self.end()

    async def end(self) -> None:
        """The client is gone: so is what was done for it."""
        for task in list(self._tasks):
            task.cancel()
        if self._client is not None:
            await self._gateway.registry.end(self._client)


async def serve_stdio(gateway: Gateway) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    # What anything prints by mistake goes to standard error: this pipe is for messages alone.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=gateway.settings.max_body)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(out, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    box = Outbox()
    pipe = Pipe(gateway, box)
    pouring = asyncio.create_task(box.pour(write, frame=lambda body: body + b"\n"))
    try:
        await _read(reader, pipe)
        await pipe.settle()
    finally:
        box.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await pouring
        writer.close()


async def _read(reader: asyncio.StreamReader, pipe: Pipe) -> None:
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            raise ConnectionError("a message on standard input is too large") from None
        if line.strip():
            pipe.take(line)
