"""Stdio transport of the gateway, and JSON-RPC batches of 2025-03-26."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import anyio

from mooring.concurrency import in_own_thread
from mooring.core.types import EMPTY
from mooring.gateway.app import Gateway
from mooring.gateway.clients import ANONYMOUS, Client, Outbox, Principal, TooManySessions
from mooring.gateway.extensions import notified
from mooring.gateway.protocol import (
    CAPABILITIES,
    INVALID_REQUEST,
    PARSE_ERROR,
    VERSION,
    Refusal,
    era_of_message,
    error_body,
    fields,
    handshake_version,
    is_id,
    modern_stamp,
    result_body,
)
from mooring.transport.message import RequestId, decode

if TYPE_CHECKING:
    from mooring.gateway.access import RequestRecord

BATCH_VERSION = "2025-03-26"
MAX_BATCH = 32
"""Messages in one batch, which counts as one request for the concurrency limit."""

Answer = Callable[[dict[str, Any]], Awaitable[bytes | None]]
"""Returns the response to one request; None if the client cancelled it."""


class Plain:
    """An exchange without messages before the response."""

    streams = False
    headers: Mapping[str, str] = EMPTY
    record: RequestRecord | None = None

    def send(self, body: bytes) -> None:
        """Drop the message."""


async def answered(client: Client, messages: list[object], answer: Answer) -> bytes | None:
    """Return the responses to all requests of a batch as one body; None if it has no request.

    Raises:
        Refusal: The client's protocol version has no batches, or the batch is empty or too large.
    """
    if client.protocol != BATCH_VERSION:
        raise Refusal(INVALID_REQUEST, f"batches are supported in protocol version {BATCH_VERSION} only")
    if not 0 < len(messages) <= MAX_BATCH:
        raise Refusal(INVALID_REQUEST, f"a batch must have 1 to {MAX_BATCH} messages")
    parts = await asyncio.gather(*(_answer_one(client, message, answer) for message in messages))
    bodies = [part for part in parts if part is not None]
    return b"[" + b",".join(bodies) + b"]" if bodies else None


async def _answer_one(client: Client, message: object, answer: Answer) -> bytes | None:
    said = fields(message)
    key: Any = said.get("id")
    method: object = said.get("method")
    if said.get("jsonrpc") != "2.0" or (method is not None and not isinstance(method, str)):
        return error_body(None, Refusal(INVALID_REQUEST, "not a JSON-RPC message"))
    if method is None:
        client.answered(said)
        return None
    if "id" not in said:
        if method == "notifications/cancelled":
            client.cancelled(fields(said.get("params")).get("requestId"))
        await notified(client, said)
        return None
    if not is_id(key) or method == "initialize":
        problem = "a request id must be a string or an integer, and initialize cannot be in a batch"
        return error_body(key if is_id(key) else None, Refusal(INVALID_REQUEST, problem))
    return await answer(said)


MAX_RUNNING = 1024
CLOSE_TIMEOUT = 2.0
CHUNK = 65536
FILE_CONCURRENCY = 64
"""Concurrent requests if standard input is a file."""


class _Line:
    """An exchange that writes to the common output."""

    headers: Mapping[str, str] = EMPTY
    streams = True
    record: RequestRecord | None = None

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def send(self, body: bytes) -> None:
        self._outbox.put(body)


class StdioServer:
    """Serves one client over a stream of lines."""

    def __init__(
        self,
        gateway: Gateway,
        outbox: Outbox,
        principal: Principal = ANONYMOUS,
        address: str | None = None,
    ) -> None:
        self._gateway, self._outbox, self._principal, self._address = gateway, outbox, principal, address
        self._profile = gateway.profile("")
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.Task[Any]] = set()
        """Tasks of subscriptions, which end with the client."""
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._handshake = 0
        """1 from the handshake to the next message of the client: it expects no notification yet."""

    def act_for(self, principal: Principal) -> None:
        """Use the token of the latest request of the same principal."""
        self._principal = principal
        if self._client is not None:
            self._client.principal = principal

    def take(self, line: bytes) -> None:
        """Handle one input line."""
        try:
            message: object = decode(line)
        except (ValueError, RecursionError):
            self._outbox.put(error_body(None, Refusal(PARSE_ERROR, "the line is not JSON")))
            return
        if isinstance(message, list):
            self._start(self._batch(cast("list[object]", message)))
            return
        said = fields(message)
        if self._client is not None and said.get("method") != "initialize":
            self._client.silenced -= self._handshake
            self._handshake = 0
        if "method" not in said:
            if self._client is not None and said:
                self._client.answered(said)
            return
        if "id" not in said:
            if said["method"] == "notifications/cancelled":
                self._cancel(fields(said.get("params")).get("requestId"))
            elif len(self._tasks) < MAX_RUNNING:
                self._start(notified(self._client, said))
            return
        self._begin(said)

    def _begin(self, message: dict[str, Any]) -> None:
        key = message["id"]
        if not is_id(key) or key in self._scopes or len(self._tasks) >= MAX_RUNNING:
            problem = Refusal(
                INVALID_REQUEST, "the id is invalid or in use, or too many requests are running"
            )
            self._outbox.put(error_body(cast("RequestId", key) if is_id(key) else None, problem))
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
                raise Refusal(INVALID_REQUEST, "send initialize first")
            body = await answered(self._client, messages, answer)
        except Refusal as refusal:
            body = error_body(None, refusal)
        if body is not None:
            self._outbox.put(body)

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
                self._outbox.put(body)

    async def _answer(self, key: RequestId, message: dict[str, Any]) -> bytes | None:
        client = self._client_for(message)
        if message["method"] == "subscriptions/listen" and client.era == "modern":
            if (task := asyncio.current_task()) is not None:
                self._listening.add(task)
                task.add_done_callback(self._listening.discard)
            async with self._gateway.subscriptions.listening(client, message, self._outbox):
                await asyncio.get_running_loop().create_future()  # until cancelled
        line = _Line(self._outbox)
        body = None
        try:
            body = result_body(key, await self._gateway.answer(client, message, line))
        except Refusal as refusal:
            body = error_body(key, refusal)
        finally:
            if (record := line.record) is not None:
                record.sent = 0 if body is None else len(body)
                self._gateway.access_log.write(record, remote=self._address)
        return body

    def _client_for(self, message: Mapping[str, Any]) -> Client:
        assert self._profile is not None
        registry = self._gateway.registry
        if era_of_message(message, None) == "modern":
            meta = modern_stamp(message)
            return registry.transient(
                self._profile, self._principal, "modern", meta[VERSION], meta[CAPABILITIES]
            )
        params = fields(message.get("params"))
        if message["method"] == "initialize":
            if self._client is None:
                version = handshake_version(params.get("protocolVersion"))
                abilities = fields(params.get("capabilities"))
                try:
                    self._client = registry.open(
                        self._profile, self._principal, version, abilities, self._address
                    )
                except TooManySessions as full:
                    raise Refusal(INVALID_REQUEST, str(full)) from None
                self._client.event_stream = self._outbox
                self._client.silenced = self._handshake = 1
        elif self._client is None:
            if message["method"] == "ping":
                return registry.transient(
                    self._profile, self._principal, "legacy", handshake_version(None), {}
                )
            raise Refusal(INVALID_REQUEST, "send initialize first, or the _meta fields of the 2026 era")
        return self._client

    def close(self) -> None:
        """Close the output."""
        self._outbox.close()

    async def wait_for_capacity(self, most: int) -> None:
        """Wait until fewer than `most` requests are running."""
        while len(tasks := self._tasks - self._listening) >= most:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def settle(self, patience: float | None) -> None:
        """Wait up to `patience` seconds for running requests, then end."""
        if tasks := self._tasks - self._listening:
            await asyncio.wait(tasks, timeout=patience)
        await self.end()

    async def end(self) -> None:
        """Cancel running requests and end the session."""
        for task in list(self._tasks):
            task.cancel()
        if self._client is not None:
            await self._gateway.registry.end(self._client)


async def serve_stdio(gateway: Gateway) -> None:
    """Serve until standard input ends."""
    # Standard output is for messages only: redirect `print` to standard error.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = await _reader(gateway.settings.max_body)
    write, close = await _writer(out)
    outbox = Outbox()
    server = StdioServer(gateway, outbox)
    writing = asyncio.create_task(outbox.write_all(write, frame=lambda body: body + b"\n"))
    try:
        if _is_stream(0):
            await _read(reader, server)
            await server.settle(CLOSE_TIMEOUT)
        else:  # the end of a file is not a disconnect: answer everything
            await _read(reader, server, most=FILE_CONCURRENCY)
            await server.settle(None)
    finally:
        outbox.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await writing
        close()


async def _reader(limit: int) -> asyncio.StreamReader:
    """Return standard input as a stream; a thread reads it if the event loop cannot wait for it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    if _can_wait_for(0):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
        return reader

    def fed(data: bytes, taken: threading.Event) -> None:
        reader.feed_data(data) if data else reader.feed_eof()
        taken.set()

    def read() -> None:
        with suppress(OSError, RuntimeError):  # the loop was closed
            while True:
                data = os.read(0, CHUNK)
                taken = threading.Event()
                loop.call_soon_threadsafe(fed, data, taken)
                if not data:
                    return
                taken.wait()

    threading.Thread(target=read, name="mooring-stdin", daemon=True).start()
    return reader


async def _writer(file: int) -> tuple[Callable[[bytes], Awaitable[None]], Callable[[], None]]:
    """Return the functions that write to a descriptor and close it."""
    loop = asyncio.get_running_loop()
    if not _can_wait_for(file):

        def write_all(data: bytes) -> None:
            while data:
                data = data[os.write(file, data) :]

        async def write_file(data: bytes) -> None:
            if _is_stream(file):  # its reader may be slow
                await in_own_thread(write_all, data)
            else:
                write_all(data)

        return write_file, lambda: os.close(file)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(file, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    return write, writer.close


def _is_stream(file: int) -> bool:
    """Whether the descriptor is a pipe, a socket or a terminal, and not a file."""
    mode = os.fstat(file).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file)


def _can_wait_for(file: int) -> bool:
    """Whether the event loop can wait for this descriptor: not for files, and on Windows for none."""
    return sys.platform != "win32" and _is_stream(file)


async def _read(reader: asyncio.StreamReader, server: StdioServer, most: int | None = None) -> None:
    """Handle line after line; pause while `most` requests are running."""
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            line = end.partial  # the last line of a file may lack a newline
            if not line:
                return
        except asyncio.LimitOverrunError:
            raise ConnectionError("a message on standard input is too large") from None
        if line.strip():
            server.take(line)
        if most is not None:
            await asyncio.sleep(0)  # let the task of the request start
            await server.wait_for_capacity(most)
