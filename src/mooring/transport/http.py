"""The HTTP transports. Streamable HTTP, both eras: each request is a POST in its caller's task."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from time import perf_counter
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel

from mooring.transport import base
from mooring.transport.base import DuplexTransport, Transport, Waiter, log
from mooring.transport.endpoint import HttpEndpoint, content_fault, message_in
from mooring.transport.limits import REQUEST_BY_POST, Pending, Progress, cost
from mooring.transport.message import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    RequestId,
    WireError,
    answer_id,
    closed,
    take_answer,
)

NOTICE_TIMEOUT = 10.0
CLOSE_TIMEOUT = 2.0
END_TIMEOUT, MOST_AT_END, MOST_ENDING = 1.0, 64 * 1024, 16
"""Seconds and bytes for what follows the response on its stream, and such streams at once. Over these limits,
the connection is closed."""
END_SOON = 0.05
"""Seconds for which a request waits for the end of such a stream, which may save a listing."""
RESUME_TRIES = 2
RESUME_WAIT = 1.0
MAX_WAIT = 30.0
MIN_STREAM_WAIT, MAX_STREAM_WAIT = 0.05, 2.0
"""Short, because notifications are lost until the stream is open again."""
SESSION = "Mcp-Session-Id"


class _Exchange(Pending):
    """One request, whose deadline cancels the block around it."""

    __slots__ = ("timer",)

    def __init__(self, timeout: float | None, idle: float | None, on_progress: Progress | None) -> None:
        super().__init__(timeout, idle, on_progress)
        self.timer = asyncio.timeout(None)

    def expire(self) -> None:
        self.timer.reschedule(self._loop.time())


Opened = AbstractAsyncContextManager[aiohttp.ClientResponse]


class _Cut(Exception):
    """A stream ended before the response."""

    def __init__(self, last_id: str | None, retry: float | None) -> None:
        self.last_id = last_id
        self.retry = retry


class HttpTransport(Transport):
    """POSTs to one endpoint. In the handshake era also a session, a stream of its own, and resumption."""

    kind = "http"
    request_cost = REQUEST_BY_POST

    def __init__(self, server: str, endpoint: HttpEndpoint) -> None:
        super().__init__(server, endpoint.max_message)
        self._endpoint = endpoint
        self._modern = False
        self._protocol: str | None = None
        self._session_id: str | None = None
        self._ending, self._ended = 0, asyncio.Event()

    def settle(self, protocol: str, *, modern: bool) -> None:
        # The era decides what cancels a request and what may be resumed.
        self._protocol, self._modern = protocol, modern

    async def unbroken(self, since: float) -> bool:
        if self._ending and not self._endpoint.unbroken(since):
            self._ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SOON):
                    await self._ended.wait()
        return self._endpoint.unbroken(since)

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        idle: float | None = None,
        on_progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: RequestId | None = None,
        cancellable: bool = True,
    ) -> dict[str, Any]:
        if self.closed_reason is not None:
            raise closed(self.closed_reason, "not sent")
        wire_id, key, body = self.prepare(
            method, params, request_id, idle is not None or on_progress is not None
        )
        exchange = _Exchange(timeout, idle, on_progress)
        self.expect(key, exchange)
        abandoned = True
        try:
            async with exchange.timer:
                answer, status = await self._exchange(body, key, headers or {}, opens=method == "initialize")
            abandoned = False
        except TimeoutError:
            fault = WireError("no response in time", kind="timeout", outcome="unknown", code=REQUEST_TIMEOUT)
            self.failed(method, fault)
            raise fault from None
        except WireError as fault:
            abandoned = False
            self.failed(method, fault)
            if timeout is None and fault.kind == "too-large":
                self.cut(str(fault))  # all messages on a subscription are unsolicited
            raise
        finally:
            self.request_ended(key, abandoned=abandoned)
            # In the 2026 era closing the stream cancels the request; in the handshake era a notification
            # does.
            if abandoned and cancellable and not self._modern:
                notice = {"requestId": wire_id, "reason": "no longer waited for"}
                self.spawn(self.notify, "notifications/cancelled", notice)
        return take_answer(answer, status=status)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self._modern or self.closed_reason is not None:
            return  # the 2026 era has no client notifications over HTTP
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.reply(message)
        if method == "notifications/initialized" and self._session_id is not None:
            self.spawn(self._listen)

    async def reply(self, message: dict[str, Any]) -> None:
        try:
            async with (
                asyncio.timeout(NOTICE_TIMEOUT),
                self._endpoint.open("POST", self.packed(message), self._headers(body=True)) as response,
            ):
                if response.status >= 400:
                    log.debug("%s answered a notice with HTTP %s", self.server, response.status)
        except (TimeoutError, WireError) as fault:
            log.debug("%s did not take a notice: %s", self.server, fault)

    async def close(self, grace: float) -> None:
        self.mark_closed("the connection was closed")
        if self._session_id is not None:
            with suppress(WireError, aiohttp.ClientError, OSError, TimeoutError):
                async with (
                    asyncio.timeout(min(grace, CLOSE_TIMEOUT)),
                    self._endpoint.open("DELETE", None, self._headers(body=False)),
                ):
                    pass

    def _headers(self, *, body: bool) -> dict[str, str]:
        headers = {"Accept": "text/event-stream"}
        if body:
            headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self._session_id is not None:
            headers[SESSION] = self._session_id
        if self._protocol is not None:
            headers["MCP-Protocol-Version"] = self._protocol
        return headers

    # --- one exchange -------------------------------------------------------------------------

    async def _exchange(
        self, body: bytes, key: RequestId, headers: Mapping[str, str], *, opens: bool
    ) -> tuple[Mapping[str, Any], int]:
        """Return the response to `key`, and its HTTP status."""
        try:
            opened = self._endpoint.open("POST", body, {**self._headers(body=True), **headers})
            response = await opened.__aenter__()
            try:
                if response.status >= 300:
                    raise await self._endpoint.refused(response, session=self._session_id is not None)
                if opens and (session := response.headers.get(SESSION)):
                    self._session_id = session
                answer = await self._answer_in(response, key)
            except BaseException:
                await opened.__aexit__(*sys.exc_info())
                raise
            if self._tasks is None or self._ending >= MOST_ENDING or response.content.at_eof():
                await opened.__aexit__(None, None, None)
            else:
                self._ending += 1
                # A process that is being replaced may keep it open.
                self._endpoint.standing(response, proves=False)
                self.spawn(self._finish, response, opened)
            return answer, response.status
        except _Cut as cut:
            return await self._resume(key, cut), 200

    async def _finish(self, response: aiohttp.ClientResponse, opened: Opened) -> None:
        """Read the end of a stream, which follows its response: the connection can then be used again."""
        try:
            with suppress(TimeoutError, EOFError, aiohttp.ClientError, ConnectionError):
                async with asyncio.timeout(END_TIMEOUT):
                    await response.content.readexactly(MOST_AT_END)
        finally:
            self._ending -= 1
            self._ended.set()
            await opened.__aexit__(None, None, None)

    async def _answer_in(self, response: aiohttp.ClientResponse, key: RequestId) -> Mapping[str, Any]:
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return await self._answer_in_stream(response, key)
        if kind != "application/json" or response.status == 202:
            raise await content_fault(response, kind)
        message = message_in(await self._endpoint.whole(response))
        if message is None or "method" in message:
            raise WireError("the response is not a JSON-RPC message", kind="invalid", outcome="unknown")
        base.passing(self.server, "received", message)
        if answer_id(message.get("id")) != key:
            self.dropped += 1
            raise WireError("the response belongs to another request", kind="invalid", outcome="unknown")
        return message

    async def _answer_in_stream(self, response: aiohttp.ClientResponse, key: RequestId) -> Mapping[str, Any]:
        last_id, retry = None, None
        held = self.waiting[key].due == math.inf
        if held:
            self._endpoint.standing(response, proves=False)
        try:
            async for event in self._endpoint.events(response, self._charge_stream, unsolicited=held):
                last_id, retry = event.id or last_id, event.retry or retry
                began = perf_counter()
                message = message_in(event.data)
                if message is not None and "method" not in message and answer_id(message.get("id")) == key:
                    base.passing(self.server, "received", message)
                    return message
                self._take_unsolicited(message, len(event.data), began, key)
                while self.full:
                    await anyio.lowlevel.checkpoint()
        except (aiohttp.ClientError, ConnectionError):
            pass
        raise _Cut(last_id, retry)

    def _take_unsolicited(
        self, message: Mapping[str, Any] | None, size: int, began: float, cause: RequestId | None = None
    ) -> None:
        """Handle a message on a stream that is not the response to a request. `cause`: our request that
        opened the stream; None for the server's own stream.

        Raises:
            WireError: The server floods.
        """
        self._charge_stream(size, cost(began))
        if message is None:
            return
        base.passing(self.server, "received", message)
        if "method" in message:
            self.inbound(message, cause)
        else:
            self.dropped += 1

    def _charge_stream(self, size: int, messages: float) -> None:
        self.charge(size, messages)
        if self.flooded:
            raise closed(self.closed_reason or "", "unknown")

    async def _resume(self, key: RequestId, cut: _Cut) -> Mapping[str, Any]:
        """Resume an interrupted stream and return the response: in the handshake era, if the server numbers
        its events."""
        for _ in range(0 if self._modern else RESUME_TRIES):
            if cut.last_id is None:
                break
            await asyncio.sleep(RESUME_WAIT if cut.retry is None else min(cut.retry, MAX_WAIT))
            headers = {**self._headers(body=False), "Last-Event-ID": cut.last_id}
            try:
                async with self._endpoint.open("GET", None, headers) as response:
                    if response.status >= 300:
                        break
                    return await self._answer_in_stream(response, key)
            except _Cut as again:
                cut = _Cut(again.last_id or cut.last_id, again.retry or cut.retry)
            except WireError:
                if self.flooded:
                    raise
        raise WireError(
            "the stream ended before the response",
            kind="closed",
            outcome="unknown",
            code=CONNECTION_CLOSED,
        )

    # --- the server's own stream (handshake era) ----------------------------------------------

    async def _listen(self) -> None:
        """Keep the stream for unsolicited messages open; reopen it when it ends."""
        last_id: str | None = None
        wait = RESUME_WAIT
        dropped = False
        while self.closed_reason is None:
            headers = self._headers(body=False) | ({"Last-Event-ID": last_id} if last_id else {})
            try:
                async with self._endpoint.open("GET", None, headers) as response:
                    if response.status == 404:
                        self.mark_closed("the session has expired")
                        return
                    if 400 <= response.status < 500 and response.status != 429:
                        return  # such as 405: the server has no such stream
                    if response.status < 300:
                        wait = RESUME_WAIT
                        # Another process does not know the session.
                        self._endpoint.standing(response, proves=True)
                        if dropped and last_id is None:
                            self.on_gap()
                        async for event in self._endpoint.events(
                            response, self._charge_stream, unsolicited=True
                        ):
                            last_id, wait = event.id or last_id, event.retry or wait
                            began = perf_counter()
                            self._take_unsolicited(message_in(event.data), len(event.data), began)
                            while self.full:
                                await anyio.lowlevel.checkpoint()
            except (WireError, aiohttp.ClientError, ConnectionError) as fault:
                log.debug("%s: its stream broke: %s", self.server, fault)
                if isinstance(fault, WireError) and fault.kind == "too-large":
                    self.cut(str(fault))
                    return
            dropped = True
            await anyio.sleep(min(max(wait, MIN_STREAM_WAIT), MAX_STREAM_WAIT))
            wait *= 2


POST_TIMEOUT = 30.0


class SseTransport(DuplexTransport):
    """HTTP+SSE: one stream for input, POSTs for output."""

    kind = "sse"
    request_cost = REQUEST_BY_POST

    def __init__(self, server: str, endpoint: HttpEndpoint) -> None:
        super().__init__(server, endpoint.max_message)
        self._stream = endpoint
        self._inbox: HttpEndpoint | None = None
        self._opened = anyio.Event()
        self._refusal: WireError | None = None

    async def pump(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await super().pump()
            tasks.cancel_scope.cancel()  # the stream may still be open when the session has ended

    async def opened(self) -> None:
        """Wait until the server has sent the URL for requests.

        Raises:
            WireError: It does not offer this transport, or cannot be reached.
        """
        await self._opened.wait()
        if self._refusal is not None:
            raise self._refusal

    async def close(self, grace: float) -> None:
        self.mark_closed("the connection was closed")

    def mark_closed(self, reason: str) -> None:
        super().mark_closed(reason)
        self._opened.set()

    def send(self, body: bytes, waiter: Waiter | None) -> None:
        if self.closed_reason is None:
            self.spawn(self._post, body, waiter)

    async def _post(self, body: bytes, waiter: Waiter | None) -> None:
        assert self._inbox is not None
        try:
            async with (
                asyncio.timeout(POST_TIMEOUT),
                self._inbox.open("POST", body, {"Content-Type": "application/json"}) as response,
            ):
                if response.status >= 300:
                    raise await self._inbox.refused(response, session=True)
        except TimeoutError:
            pass  # the waiting request has a deadline of its own
        except WireError as fault:
            if waiter is not None:
                waiter.fail(fault)

    async def _listen(self) -> None:
        try:
            async with self._stream.open("GET", None, {"Accept": "text/event-stream"}) as response:
                kind = response.headers.get("Content-Type", "")
                if response.status >= 300:
                    raise await self._stream.refused(response, session=False)
                if not kind.lower().startswith("text/event-stream"):
                    raise WireError(
                        f"the response is of type {kind!r}, not a stream", kind="invalid", outcome="not sent"
                    )
                async for event in self._stream.events(response, self.charge):
                    if event.event == "endpoint":
                        self._inbox = self._stream.at(event.data.decode("utf-8", "replace"))
                        self._opened.set()
                        continue
                    began = perf_counter()
                    if not self.take(message_in(event.data), len(event.data), began):
                        self.dropped += bool(event.data)
                        self.charge(len(event.data), cost(began))
                    while self.full:
                        await anyio.lowlevel.checkpoint()
            self.mark_closed("the server ended the stream")
        except (WireError, aiohttp.ClientError, ConnectionError) as problem:
            fault = problem if isinstance(problem, WireError) else None
            if not self._opened.is_set():
                self._refusal = fault or WireError(str(problem), kind="closed", outcome="not sent")
            if fault is not None and fault.kind == "too-large":
                self.cut(str(fault))
            self.mark_closed(f"the stream broke off: {problem}")
