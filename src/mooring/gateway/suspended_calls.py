"""Suspended calls. A handshake server may send a request during a call, but a client of the 2026 era answers
only in a new request: the call waits for it in the gateway."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.gateway.protocol import INVALID_PARAMS, Refusal, fields

__all__ = ["SuspendedCall", "SuspendedCalls"]

WAIT = 300.0
"""Seconds after which a suspended call is cancelled."""
MAX_CALLS, MAX_CALLS_PER_PRINCIPAL = 1_000, 100
KEY = "question"


@dataclass(slots=True, eq=False)
class SuspendedCall:
    """One call whose server may send requests to the client."""

    principal: str
    """The name of its principal."""
    questions: asyncio.Queue[tuple[str, Mapping[str, Any]]] = field(
        default_factory=lambda: asyncio.Queue[tuple[str, Mapping[str, Any]]](1)
    )
    answer: asyncio.Future[dict[str, Any]] | None = None
    task: asyncio.Task[dict[str, Any]] | None = None
    asked: tuple[str, Mapping[str, Any]] | None = None
    timer: asyncio.TimerHandle | None = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the client and return its answer."""
        await self.questions.put((method, params))
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


class SuspendedCalls:
    """The suspended calls of all clients."""

    def __init__(self) -> None:
        self._waiting: dict[str, SuspendedCall] = {}

    async def begin(
        self,
        principal: str,
        work: Callable[[SuspendedCall], Coroutine[Any, Any, dict[str, Any]]],
        seal: Callable[[str], str],
    ) -> dict[str, Any]:
        """Start a call. Return its result, or an `input_required` result with a state made by `seal`."""
        suspended = SuspendedCall(principal)
        suspended.task = asyncio.create_task(work(suspended))
        return await self._next(suspended, seal)

    async def resume(self, key: str, responses: object, seal: Callable[[str], str]) -> dict[str, Any]:
        """Resume a call with the client's answer.

        Raises:
            Refusal: The call is not suspended any more.
        """
        suspended = self._waiting.pop(key, None)
        if suspended is None or suspended.answer is None or suspended.asked is None:
            raise Refusal(
                INVALID_PARAMS,
                f"no call waits for this answer: it was answered before, or was cancelled after {WAIT:g} s. "
                "The tool may have had effects and may still be running; check before you call it again",
            )
        assert suspended.timer is not None
        suspended.timer.cancel()
        given = fields(fields(responses).get(KEY))
        if not given:
            return self._suspend(suspended, suspended.asked, seal)  # repeat the request
        if not suspended.answer.done():
            suspended.answer.set_result(given)
        return await self._next(suspended, seal)

    async def _next(self, suspended: SuspendedCall, seal: Callable[[str], str]) -> dict[str, Any]:
        assert suspended.task is not None
        question = asyncio.ensure_future(suspended.questions.get())
        try:
            await asyncio.wait({suspended.task, question}, return_when=asyncio.FIRST_COMPLETED)
            if not suspended.task.done():
                return self._suspend(suspended, question.result(), seal)
        except BaseException:
            suspended.task.cancel()
            raise
        finally:
            question.cancel()
        return await suspended.task

    def _suspend(
        self, suspended: SuspendedCall, asked: tuple[str, Mapping[str, Any]], seal: Callable[[str], str]
    ) -> dict[str, Any]:
        assert suspended.task is not None
        own = [key for key, other in self._waiting.items() if other.principal == suspended.principal]
        if len(own) >= MAX_CALLS_PER_PRINCIPAL:
            self._cancel(own[0])
        if len(self._waiting) >= MAX_CALLS:
            suspended.task.cancel()
            raise Refusal(INVALID_PARAMS, "too many suspended calls; try again later")
        key = secrets.token_hex(16)
        suspended.asked = asked
        self._waiting[key] = suspended
        suspended.timer = asyncio.get_running_loop().call_later(WAIT, self._cancel, key)
        request = {"method": asked[0], "params": dict(asked[1])}
        return {
            "resultType": "input_required",
            "inputRequests": {KEY: request},
            "requestState": seal(key),
        }

    def _cancel(self, key: str) -> None:
        if (suspended := self._waiting.pop(key, None)) is not None and suspended.task is not None:
            if suspended.timer is not None:
                suspended.timer.cancel()
            suspended.task.cancel()

    def close(self) -> None:
        for key in list(self._waiting):
            self._cancel(key)
