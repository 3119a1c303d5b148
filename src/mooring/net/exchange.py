"""A request of ours whose answer is not the last word: questions on the way, and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mooring import clock
from mooring.core.chain import raise_alone
from mooring.errors import CallTimeout, ServerError
from mooring.net.carrier import Carrier
from mooring.net.deadline import Progress
from mooring.net.dialogue import converse, failed, passed_on
from mooring.net.faults import call_error
from mooring.net.message import WireError
from mooring.net.tasks import Task, task_in


def whole(raw: Mapping[str, Any]) -> bool:
    """Whether a result is the last word: no question, and no promise of a later one."""
    return raw.get("resultType", "complete") == "complete" and "task" not in raw


class Exchange:
    """Made for one request, whose errors name `about` and which ends at `end`."""

    def __init__(self, carrier: Carrier, about: str, end: float) -> None:
        self._carrier, self._about, self._end = carrier, about, end
        self._owner = carrier.owner
        self._server = carrier.owner.config.name
        self._started = clock.monotonic()

    @property
    def _elapsed(self) -> float:
        return clock.monotonic() - self._started

    async def finish(
        self, raw: dict[str, Any], method: str, params: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The final result of a request that was first answered with `raw`; the user is asked whatever
        the server wants to know before it.

        Raises:
            CallError, AuthNeeded: there is none.
        """

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            return await self._carrier.ask(method, params, self._about, self._end, **options)

        try:
            raw = await converse(raw, send, params, self._answer)
            kind = raw.get("resultType")
            if kind not in ("complete", "task", None) and not (kind == "input_required" and passed_on()):
                raise failed("the answer is of a kind that is not known")
            if method != "tools/call" or (state := task_in(raw)) is None:
                return raw
            return await self._followed(state, options.get("on_progress"))
        except WireError as fault:
            redact = self._owner.redact
            raise_alone(call_error(fault, self._server, self._about, self._elapsed, None, redact))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._end - clock.monotonic()):
                return await self._owner.answer(method, params)
        except TimeoutError:
            raise CallTimeout(
                f"{self._about!r} of {self._server!r} was given up after {self._elapsed:.3g} s: "
                "nobody answered the question that it asked",
                server=self._server,
                tool=self._about,
                elapsed=self._elapsed,
                outcome="failed",
            ) from None

    async def _followed(self, state: Mapping[str, Any], on_progress: Progress | None) -> dict[str, Any]:
        """The result of a task; whoever stops waiting for it stops it, too."""

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return await self._carrier.ask(method, params, self._about, self._end)

        live = await self._owner.connected(self._end - clock.monotonic())
        task = Task(state, live, ask, self._answer)
        over = False
        try:
            async with asyncio.timeout(self._end - clock.monotonic()):
                result = await task.result(on_progress)
            over = True
            return result
        except TimeoutError:
            raise WireError("", kind="timeout", outcome="unknown") from None
        except (WireError, ServerError) as fault:
            over = not isinstance(fault, WireError) or task.ended
            raise
        finally:
            if not over:
                task.abandon()
