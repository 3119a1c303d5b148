"""Base classes of transports: requests out, messages in, and the trace of both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import anyio
import anyio.abc
import anyio.lowlevel

from mooring.config.logs import logger
from mooring.errors import Outcome
from mooring.transport.forwarding import ForwardedRequest
from mooring.transport.limits import (
    BYTES,
    MESSAGES,
    REQUEST,
    STARTS,
    DeadlineTimer,
    FloodLimit,
    Pending,
    Progress,
    ServerRequest,
    cost,
)
from mooring.transport.message import (
    REQUEST_TIMEOUT,
    RequestId,
    WireError,
    abandoned_response,
    answer_id,
    as_error,
    closed,
    encode,
    not_offered,
    number,
    take_answer,
)

Way = Literal["sent", "received", "stdout", "stderr", "fault"]


class TracedExchange(NamedTuple):
    """One request and its response."""

    server: str
    method: str
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None = None
    """The error response, if there was no result."""


class Passing(NamedTuple):
    """One message on a transport, for the trace."""

    server: str
    way: Way
    said: Mapping[str, Any] | str
    """A message; for `stdout` and `stderr` a line, for `fault` a sentence."""


listeners: list[Callable[[TracedExchange], None]] = []
"""Of this process."""

taps: list[Callable[[Passing], None]] = []
"""Listeners of this process. They are called during the exchange and must not block or raise."""


def note(
    server: str,
    method: str,
    params: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    error: Mapping[str, Any] | None = None,
) -> None:
    """Report an exchange to the listeners."""
    if listeners:
        exchange = TracedExchange(server, method, params, result, error)
        for listener in listeners:
            listener(exchange)


def passing(server: str, way: Way, said: Mapping[str, Any] | str) -> None:
    """Report a message to the listeners."""
    if taps:
        seen = Passing(server, way, said)
        for tap in taps:
            tap(seen)


log = logger("mooring.net")


MAX_INBOUND = 256
"""Requests of one server that are handled at once; further ones are dropped."""


class Transport:
    """One open channel to a server. Subclasses move the bytes; the supervisor runs `run()` and `close()`."""

    kind: str = ""
    """`stdio`, `http` or `sse`: for status and messages."""
    request_cost = REQUEST
    """Cost of a request of the server, in messages."""

    def __init__(self, server: str, max_message: int = 0) -> None:
        self.server = server
        self.flooded = False
        """Whether the transport was closed because the server sent too many unsolicited messages."""
        self._allowance = FloodLimit(max_message)
        self.on_notice: Callable[[str, Mapping[str, Any]], None] = _ignore
        """Called for every notification, in order, before the next message is handled."""
        self.on_closed: Callable[[str], None] = _ignore
        """Called once, synchronously, when the transport is closed, before any waiting request resumes."""
        self.on_flood: Callable[[], None] = _ignore
        """Called before `on_closed` when the transport is closed because of what the server sent."""
        self.on_gap: Callable[[], None] = _ignore
        """Called when notifications may have been missed."""
        self.on_ask: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]] = _refuse
        """Called for every request of the server except ping; a `WireError` becomes the error response."""
        self.pid: int | None = None
        """Process id of the child, for transports that have one."""
        self.listed = False
        """Whether the server finished its start: it was negotiated and listed."""
        self.forwarded_requests: list[ForwardedRequest] = []
        """The gateway clients with running requests on this transport."""
        self.closed_reason: str | None = None
        self.dropped: int = 0
        """Dropped messages: unreadable, responses to no request, or too many."""
        self.waiting: dict[RequestId, Pending] = {}
        """Requests without a response."""
        self._watch = DeadlineTimer(self.waiting)
        self._next_id = 0
        self._pauses = 0
        self._gone = anyio.Event()
        self._bound: set[anyio.CancelScope] = set()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._working: dict[RequestId, ServerRequest] = {}
        self._unstarted: deque[tuple[RequestId, str, object]] = deque()
        self._inbound = 0
        """Requests of the server that are being handled, or whose response is being sent."""

    # --- for the connection -----------------------------------------------------------------

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
        """Return the result of one request. `idle` is the timeout without progress.

        Raises:
            WireError: There is no result.
            ValueError, TypeError: `params` is not JSON.
        """
        raise NotImplementedError(type(self).__name__)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; a closed transport drops it."""
        raise NotImplementedError(type(self).__name__)

    async def pump(self) -> None:
        """Run until the transport is closed; requests of the server are handled in this task group."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await self._gone.wait()
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def mark_closed(self, reason: str) -> None:
        """Mark the transport as closed. Synchronous and idempotent."""
        if self.closed_reason is None:
            self.closed_reason = reason
            passing(self.server, "fault", reason)
            self._rest()
            self.on_closed(reason)
            self._gone.set()
            for scope in self._bound:
                scope.cancel()

    def _rest(self) -> None:
        """Stop the timer for deadlines when the transport is closed and no request is pending. Requests over
        HTTP can outlive their transport, and keep their deadlines."""
        if self.closed_reason is not None and not self.waiting:
            self._watch.end()

    @contextmanager
    def lifetime(self) -> Generator[None]:
        """Cancel the block when the transport is closed."""
        with anyio.CancelScope() as scope:
            self._bound.add(scope)
            try:
                if self.closed_reason is not None:
                    scope.cancel()
                yield
            finally:
                self._bound.discard(scope)

    def expect(self, key: RequestId, request: Pending) -> None:
        """Register a running request."""
        self.waiting[key] = request
        if self._pauses:
            request.pause()
        self._watch.check_by(request.due)

    def request_ended(self, key: RequestId, *, abandoned: bool) -> None:
        """Remove a request of ours. If it was abandoned, cancel requests that the server sent because of it.

        Over stdio, a server does not say which of our requests its own request belongs to: that is cancelled
        only when all of ours that were pending at its arrival have ended.
        """
        del self.waiting[key]
        self._rest()
        for request in self._working.values():
            if key in request.causes:
                request.causes.discard(key)
                request.abandoned = request.abandoned or abandoned
                if request.abandoned and not request.causes:
                    request.scope.cancel()
                elif not request.causes:
                    request.limit()

    @contextmanager
    def paused_deadlines(self) -> Generator[None]:
        """Pause the idle timeouts of all requests in the block: the server waits for this side."""
        self._pauses += 1
        for request in self.waiting.values():
            request.pause()
        try:
            yield
        finally:
            self._pauses -= 1
            for request in () if self._pauses else self.waiting.values():
                request.resume()
                self._watch.check_by(request.due)

    async def opened(self) -> None:
        """Wait until requests can be sent; most transports are ready at once.

        Raises:
            WireError: The server does not offer this transport.
        """

    async def unbroken(self, since: float) -> bool:
        """Whether the server has certainly not been restarted since this time."""
        return True

    def settle(self, protocol: str, *, modern: bool) -> None:
        """Set the negotiated era, which HTTP needs."""

    def last_output(self) -> list[str]:
        """Return lines that may explain why the server does not respond."""
        return []

    async def failure_reason(self) -> str:
        """Return why the transport was closed, with all details."""
        return self.closed_reason or "the connection was closed"

    # --- for subclasses ---------------------------------------------------------------------

    def prepare(
        self, method: str, params: dict[str, Any], request_id: RequestId | None, wants_progress: bool
    ) -> tuple[RequestId, RequestId, bytes]:
        """Return the id that is sent, the key of the waiting request, and the message.

        Raises:
            ValueError, TypeError: the id is taken, or `params` is not JSON.
        """
        if request_id is None:
            self._next_id += 1
            request_id = self._next_id
        key = answer_id(request_id)
        if key is None or key in self.waiting:
            raise ValueError(f"request id {request_id!r} is already in flight")
        if wants_progress:
            params["_meta"] = {**params.get("_meta", {}), "progressToken": request_id}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return request_id, key, self.packed(message)

    def packed(self, message: Mapping[str, Any]) -> bytes:
        """Return the bytes of an outgoing message.

        Raises:
            ValueError, TypeError: it is not JSON.
        """
        body = encode(message)
        passing(self.server, "sent", message)
        return body

    def failed(self, method: str, fault: WireError) -> None:
        """Report a request without a response to the trace listeners."""
        if taps:
            passing(self.server, "fault", f"{method}: {fault}")

    def inbound(self, message: Mapping[str, Any], cause: RequestId | None = None) -> None:
        """Handle an unsolicited message of the server; `cause`: our request on whose stream it arrived."""
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str) or not isinstance(params, dict | None):
            self.dropped += 1
            return
        if "id" in message:
            causes = set(self.waiting) if cause is None else {cause}
            self._take_request(
                answer_id(message["id"]), method, cast("dict[str, Any] | None", params), causes
            )
        else:
            self._take_notice(method, cast("dict[str, Any]", params or {}))

    @property
    def full(self) -> bool:
        """Whether the requests of the server that were read take a whole turn of the event loop to start."""
        return len(self._unstarted) >= STARTS and self.closed_reason is None

    def charge(self, size: int, messages: float = 1.0) -> None:
        """Count an unsolicited message; close the transport when the server floods."""
        if not self._allowance.take(messages, size):
            self.cut(
                f"the server floods its connection: more than {MESSAGES} messages or lines, or "
                f"{BYTES // 2**20} MiB, that answer no request came within seconds; mooring reconnects later"
            )

    def cut(self, reason: str) -> None:
        """Close the transport because of what the server sent."""
        if self.closed_reason is None:
            self.flooded = True
            self.on_flood()
            self.mark_closed(reason)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Start `work` as a task; ignored once the transport is closed."""
        if self._tasks is not None:
            self._tasks.start_soon(work, *args)

    async def reply(self, message: dict[str, Any]) -> None:
        """Send the response to a request of the server."""
        raise NotImplementedError(type(self).__name__)

    async def close(self, grace: float) -> None:
        """Close the transport: notify the server, fail waiting requests, release resources after `grace`."""
        raise NotImplementedError(type(self).__name__)

    def _take_notice(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/progress":
            self._take_progress(params)
        elif method == "notifications/cancelled":
            request = self._working.get(answer_id(params.get("requestId")) or "")
            if request is not None:
                request.withdrawn = True
                request.scope.cancel()
        self.on_notice(method, params)

    def _take_progress(self, params: dict[str, Any]) -> None:
        waiter = self.waiting.get(answer_id(params.get("progressToken")) or "")
        progress, text = number(params.get("progress")), params.get("message")
        if waiter is None or progress is None:
            return
        waiter.touch()
        if waiter.forwarded is not None:
            waiter.forwarded.heard("notifications/progress", params)  # unchanged, and before the response
        elif waiter.on_progress is not None:
            words = text if isinstance(text, str) else None
            self.spawn(_contained, waiter.on_progress, progress, number(params.get("total")), words)

    def _take_request(
        self, request_id: RequestId | None, method: str, params: object, causes: set[RequestId]
    ) -> None:
        self.charge(0, self.request_cost)
        if request_id is None or request_id in self._working or self._inbound >= MAX_INBOUND:
            self.dropped += 1
            return
        self._inbound += 1
        self._working[request_id] = ServerRequest(causes)
        self._unstarted.append((request_id, method, params))
        if len(self._unstarted) == 1:
            self.spawn(self._start_requests)

    async def _start_requests(self) -> None:
        """Start a few requests of the server per turn of the event loop, between other tasks."""
        while self._unstarted:
            started = list(islice(self._unstarted, STARTS))
            for request in started:
                self.spawn(self._work, *request)
            await anyio.lowlevel.checkpoint()
            for _ in started:
                self._unstarted.popleft()

    async def _work(self, request_id: RequestId, method: str, params: Any) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
        request = self._working[request_id]
        with request.scope:
            try:
                answer["result"] = await self._answer(method, params)
            except Exception as error:
                answer["error"] = as_error(error)
        self._working.pop(request_id, None)
        if request.scope.cancelled_caught:
            answer |= abandoned_response(method)
        if not (request.scope.cancelled_caught and request.withdrawn):
            with suppress(WireError):
                await self.reply(answer)
        self._inbound -= 1

    async def _answer(self, method: str, params: Any) -> dict[str, Any]:
        if method == "ping":
            return {}
        with self.paused_deadlines():
            return await self.on_ask(method, cast("dict[str, Any]", params or {}))


async def _contained(notify: Progress, progress: float, total: float | None, message: str | None) -> None:
    try:
        await notify(progress, total, message)
    except Exception:
        log.exception("a progress callback failed")


def _ignore(*_: object) -> None:
    pass


async def _refuse(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    raise not_offered(method)


class Waiter(Pending):
    """One request without a response."""

    __slots__ = ("answer", "place")

    def __init__(self, timeout: float | None, idle: float | None, on_progress: Progress | None) -> None:
        super().__init__(timeout, idle, on_progress)
        self.answer: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self.place = 0
        """Offset of the request in the sent bytes, for transports that know what was read."""

    def fail(self, fault: WireError) -> None:
        if not self.answer.done():
            self.answer.set_exception(fault)

    def expire(self) -> None:
        self.fail(WireError("no response in time", kind="timeout", outcome="unknown", code=REQUEST_TIMEOUT))


class DuplexTransport(Transport):
    """Requests as futures; a subclass sends the bytes and passes every message it reads to `take`."""

    answered = False
    """Whether the server has answered any request."""

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
        waiter = Waiter(timeout, idle, on_progress)
        self.expect(key, waiter)
        abandoned = True
        try:
            self.send(body, waiter)
            message = await waiter.answer
            abandoned = False
        except WireError as fault:
            abandoned = fault.kind == "timeout"
            self.failed(method, fault)
            raise
        finally:
            self.request_ended(key, abandoned=abandoned)
            if abandoned and cancellable:
                self.cancel_on_wire(wire_id)
        return take_answer(message)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.send(self.packed(message), None)

    async def reply(self, message: dict[str, Any]) -> None:
        self.send(self.packed(message), None)

    def send(self, body: bytes, waiter: Waiter | None) -> None:
        """Send one message without waiting; a later error fails `waiter`."""
        raise NotImplementedError(type(self).__name__)

    def outcome(self, waiter: Waiter) -> Outcome:
        """Return the outcome of a request whose transport was closed."""
        return "unknown"

    def cancel_on_wire(self, wire_id: RequestId) -> None:
        notice = {"requestId": wire_id, "reason": "no longer waited for"}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": notice}
        self.send(self.packed(message), None)

    def take(self, message: object, size: int, began: float) -> bool:
        """Dispatch one message; return False when it is not a message. `size` is its length in
        bytes, `began` when reading it began."""
        if not isinstance(message, dict):
            return False
        fields = cast("dict[str, Any]", message)
        passing(self.server, "received", fields)
        if "method" in fields:
            self.charge(size, cost(began))
            if self.closed_reason is None:
                self.inbound(fields)
            return True
        waiter = cast("Waiter | None", self.waiting.get(answer_id(fields.get("id")) or ""))
        if waiter is None or waiter.answer.done():
            self.dropped += 1  # late, unknown, or a second response: the first one counts
            self.charge(size, cost(began))
        else:
            waiter.answer.set_result(fields)
            self.answered = True
        return True

    def mark_closed(self, reason: str) -> None:
        first = self.closed_reason is None
        super().mark_closed(reason)
        if first:
            for waiter in self.waiting.values():
                request = cast(Waiter, waiter)
                request.fail(closed(reason, self.outcome(request)))
            self._watch.end()
