"""A wire on which answers come back in any order: every request is a future that its answer, its
deadline or the death of the wire ends. Stdio and old SSE are such wires."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from mooring.errors import Outcome
from mooring.transport import base
from mooring.transport.base import Transport
from mooring.transport.limits import Pending, Progress, cost
from mooring.transport.message import REQUEST_TIMEOUT, RequestId, WireError, answer_id, closed, take_answer


class Waiter(Pending):
    """One request without an answer."""

    __slots__ = ("answer", "place")

    def __init__(self, timeout: float | None, idle: float | None, on_progress: Progress | None) -> None:
        super().__init__(timeout, idle, on_progress)
        self.answer: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self.place = 0
        """Where the request begins in all that was sent, for wires that know what was taken of it."""

    def fail(self, fault: WireError) -> None:
        if not self.answer.done():
            self.answer.set_exception(fault)

    def expire(self) -> None:
        self.fail(WireError("no answer in time", kind="timeout", outcome="unknown", code=REQUEST_TIMEOUT))


class DuplexTransport(Transport):
    """Requests as futures; a subclass sends the bytes and hands every message it reads to `take`."""

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
        if self.death is not None:
            raise closed(self.death, "not sent")
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
            self.over(key, abandoned=abandoned)
            if abandoned and cancellable:
                self.cancel_on_wire(wire_id)
        return take_answer(message)

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.send(self.packed(message), None)

    async def reply(self, message: dict[str, Any]) -> None:
        self.send(self.packed(message), None)

    def send(self, body: bytes, waiter: Waiter | None) -> None:
        """Put one message on the wire without waiting; what goes wrong later fails `waiter`."""
        raise NotImplementedError(type(self).__name__)

    def outcome(self, waiter: Waiter) -> Outcome:
        """What became of a request for which the wire died."""
        return "unknown"

    def cancel_on_wire(self, wire_id: RequestId) -> None:
        notice = {"requestId": wire_id, "reason": "no longer waited for"}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": notice}
        self.send(self.packed(message), None)

    def take(self, message: object, size: int, began: float) -> bool:
        """Give one message to whom it concerns; False when it is no message at all. `size` is its length in
        bytes, `began` when reading it began."""
        if not isinstance(message, dict):
            return False
        fields = cast("dict[str, Any]", message)
        base.passing(self.server, "received", fields)
        if "method" in fields:
            self.charge(size, cost(began))
            if self.death is None:
                self.inbound(fields)
            return True
        waiter = cast("Waiter | None", self.waiting.get(answer_id(fields.get("id")) or ""))
        if waiter is None or waiter.answer.done():
            self.dropped += 1  # late, foreign, uncorrelated, or not the first: that one counts
            self.charge(size, cost(began))
        else:
            waiter.answer.set_result(fields)
            self.answered = True
        return True

    def die(self, reason: str) -> None:
        first = self.death is None
        super().die(reason)
        if first:
            for waiter in self.waiting.values():
                request = cast(Waiter, waiter)
                request.fail(closed(reason, self.outcome(request)))
