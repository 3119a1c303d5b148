"""Calls that wait for their client: a handshake server asks during a call, and a client of the 2026 era is
asked by ending its request. The call goes on when the client comes back with the answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.gateway.protocol import INVALID_PARAMS, Refusal, fields

__all__ = ["SuspendedCall", "SuspendedCalls"]

WAIT = 300.0
"""Seconds for which a call is kept for a client that does not come back."""
MOST, MOST_EACH = 1_000, 100
"""Calls that may wait, in all and of one principal."""
KEY = "question"


@dataclass(slots=True, eq=False)
class SuspendedCall:
    """One call that may ask."""

    whose: str
    """The principal that made it."""
    questions: asyncio.Queue[tuple[str, Mapping[str, Any]]] = field(
        default_factory=lambda: asyncio.Queue[tuple[str, Mapping[str, Any]]](1)
    )
    answer: asyncio.Future[dict[str, Any]] | None = None
    task: asyncio.Task[dict[str, Any]] | None = None
    asked: tuple[str, Mapping[str, Any]] | None = None
    timer: asyncio.TimerHandle | None = None

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have the client asked; its answer."""
        await self.questions.put((method, params))
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer


class SuspendedCalls:
    """All calls that wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, SuspendedCall] = {}

    async def begin(
        self,
        whose: str,
        work: Callable[[SuspendedCall], Coroutine[Any, Any, dict[str, Any]]],
        seal: Callable[[str], str],
    ) -> dict[str, Any]:
        """Start a call: its result, or the question that it has; `seal` makes a state of its key."""
        parked = SuspendedCall(whose)
        parked.task = asyncio.create_task(work(parked))
        return await self._next(parked, seal)

    async def resume(self, key: str, responses: object, seal: Callable[[str], str]) -> dict[str, Any]:
        """Go on with a call.

        Raises:
            Refusal: it is not there any more.
        """
        parked = self._waiting.pop(key, None)
        if parked is None or parked.answer is None or parked.asked is None:
            raise Refusal(
                INVALID_PARAMS,
                f"no call waits for this answer: it was answered before, or was given up after {WAIT:g} s. "
                "The tool may have had effects and may still be running; find out before you call it again",
            )
        assert parked.timer is not None
        parked.timer.cancel()
        given = fields(fields(responses).get(KEY))
        if not given:
            return self._put(parked, parked.asked, seal)  # it is asked once more
        if not parked.answer.done():
            parked.answer.set_result(given)
        return await self._next(parked, seal)

    async def _next(self, parked: SuspendedCall, seal: Callable[[str], str]) -> dict[str, Any]:
        assert parked.task is not None
        question = asyncio.ensure_future(parked.questions.get())
        try:
            await asyncio.wait({parked.task, question}, return_when=asyncio.FIRST_COMPLETED)
            if not parked.task.done():
                return self._put(parked, question.result(), seal)
        except BaseException:
            parked.task.cancel()
            raise
        finally:
            question.cancel()
        return await parked.task

    def _put(
        self, parked: SuspendedCall, asked: tuple[str, Mapping[str, Any]], seal: Callable[[str], str]
    ) -> dict[str, Any]:
        assert parked.task is not None
        own = [key for key, other in self._waiting.items() if other.whose == parked.whose]
        if len(own) >= MOST_EACH:
            self._give_up(own[0])
        if len(self._waiting) >= MOST:
            parked.task.cancel()
            raise Refusal(INVALID_PARAMS, "too many calls wait for an answer; try again later")
        key = secrets.token_hex(16)
        parked.asked = asked
        self._waiting[key] = parked
        parked.timer = asyncio.get_running_loop().call_later(WAIT, self._give_up, key)
        request = {"method": asked[0], "params": dict(asked[1])}
        return {
            "resultType": "input_required",
            "inputRequests": {KEY: request},
            "requestState": seal(key),
        }

    def _give_up(self, key: str) -> None:
        if (parked := self._waiting.pop(key, None)) is not None and parked.task is not None:
            if parked.timer is not None:
                parked.timer.cancel()
            parked.task.cancel()

    def close(self) -> None:
        for key in list(self._waiting):
            self._give_up(key)
