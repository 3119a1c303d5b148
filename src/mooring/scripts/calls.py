"""The calls inside a script: each is a call of its session."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

from pydantic_core import to_json

from mooring.core.callers import SCRIPT
from mooring.core.events import Event, ScriptCalled
from mooring.core.names import OWNER
from mooring.core.render import label
from mooring.core.text import line
from mooring.core.types import Result, Tool
from mooring.errors import CallError, MooringError
from mooring.policy import PLANNED
from mooring.scripts.plan import canonical
from mooring.scripts.stubs import Stub
from mooring.transport.forwarding import FORWARDED, ForwardedRequest

__all__ = [
    "CallsById",
    "ScriptCall",
    "ScriptCalls",
    "Settled",
    "Stopped",
    "encoded",
    "results_of",
    "script_error",
]

MOST_PARALLEL = 16
"""Calls of one script that run at once; others wait."""
LARGEST_RESULT = 16 << 20
"""Bytes of JSON that one call may return to a script."""

State = Literal["queued", "running", "ok", "failed", "unknown", "cancelled"]
Settled = tuple[int, bool, bytes]
"""Id of a call, whether it succeeded, and its value or error as JSON."""


class Stopped(Exception):
    """The script ends with this error."""

    def __init__(self, problem: MooringError) -> None:
        super().__init__(str(problem))
        self.problem = problem


def script_error(text: str, *, outcome: Literal["not sent", "failed", "unknown"] = "failed") -> CallError:
    """Return an error of the tool `script_run`."""
    return CallError(text, server=OWNER, tool="script_run", outcome=outcome)


def encoded(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return to_json(value)
    except ValueError:  # text that is not valid Unicode
        return json.dumps(value).encode()


class ScriptCall:
    """One call of a script."""

    def __init__(self, tool: Tool, arguments: Mapping[str, Any], *, write: bool) -> None:
        self.tool, self.arguments, self.write = tool, arguments, write
        self.state: State = "queued"
        self.planned: int | None = None
        """Its number in the approved plan."""
        self.took = 0.0
        self.result: Result | None = None
        self.task: asyncio.Task[tuple[bool, bytes]] | None = None
        self.outcome: tuple[bool, bytes] | Exception | None = None
        """What the script gets, when the call has ended."""

    def document(self) -> dict[str, Any]:
        """Return the call for the result of the script."""
        return {
            "tool": self.tool.name,
            "server": self.tool.server,
            "ok": self.state == "ok",
            "state": self.state,
            "ms": round(self.took * 1000, 1),
            **({"write": True} if self.write else {}),
        }


CallsById = dict[int, ScriptCall]


class ScriptCalls:
    """Makes the calls of one script, a limited number at once."""

    def __init__(
        self,
        script: str,
        session: str,
        *,
        call: Callable[..., Awaitable[Result]],
        emit: Callable[[Event], None],
        observed: Callable[[], bool],
        finished: Callable[[int | None, Any], None],
        on_call: Callable[[int, str], Awaitable[None]] | None,
    ) -> None:
        """
        Args:
            script: Id of the script.
            session: Id of the session.
            call: `Session.call`.
            emit: Receives the events.
            observed: Returns whether a stream delivers them.
            finished: Receives the value of each call, with its number in the approved plan.
            on_call: Called after each call, with the number of finished calls and a text.
        """
        self._script, self._session, self._call, self._emit = script, session, call, emit
        self._observed, self._finished, self._on_call = observed, finished, on_call
        self._parallel = asyncio.Semaphore(MOST_PARALLEL)
        self._started = self._ended = 0
        self._waiter: asyncio.Future[None] | None = None
        self.ended: Callable[[], None] | None = None
        """Called when a call has ended."""

    @staticmethod
    def arguments(stub: Stub, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments to send: None for an optional argument means that it is not given."""
        return {key: value for key, value in given.items() if value is not None or key not in stub.optional}

    def start(self, call: ScriptCall) -> None:
        """Start a call."""
        call.task = asyncio.get_running_loop().create_task(self._made(call))

    async def settled(
        self, calls: Mapping[int, ScriptCall], pending: Iterable[int], lost: asyncio.Future[int]
    ) -> list[Settled]:
        """Wait until at least one of the pending calls has ended; return the results of all that have.

        The list is empty if `lost` is done first.

        Raises:
            Stopped: It is not known whether one of them took effect.
        """
        tasks = [(id_, task) for id_ in pending if (task := calls[id_].task) is not None]
        while not (done := [one for one in tasks if one[1].done()]) and not lost.done():
            await self._change(lost)
        return results_of(calls, [id_ for id_, _ in done])

    async def _change(self, lost: asyncio.Future[int]) -> None:
        """Wait until a call ends or `lost` is done. `asyncio.wait` would need one more turn of the loop."""
        self._waiter = asyncio.get_running_loop().create_future()
        lost.add_done_callback(self._wake)
        try:
            await self._waiter
        finally:
            lost.remove_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _made(self, call: ScriptCall) -> tuple[bool, bytes]:
        try:
            call.outcome = await self._answer(call)
            return call.outcome
        except Exception as bug:
            call.outcome = bug
            raise
        finally:
            self._wake()  # this task is done when the waiting one continues
            if self.ended is not None:
                self.ended()

    async def _answer(self, call: ScriptCall) -> tuple[bool, bytes]:
        async with self._parallel:
            SCRIPT.set(self._script)
            if (forwarded := FORWARDED.get()) is not None:
                FORWARDED.set(_inner(forwarded))
            if call.write:
                PLANNED.set((call.tool.name, canonical(call.arguments)))
            self._started += 1
            number, started = self._started, time.monotonic()
            self._report(call, number, "started")
            call.state = "running"
            try:
                result = call.result = await self._call(call.tool.name, call.arguments, budget=0)
            except BaseException:
                call.state = "cancelled"
                raise
            finally:
                call.took = time.monotonic() - started
            call.state = _state(result)
            self._ended += 1
            self._report(call, number, "finished", is_error=result.is_error)
            if self._on_call is not None:
                with suppress(Exception):
                    await self._on_call(self._ended, f"{call.tool.name}: {call.state}")
        if result.is_error:
            return False, encoded(f"{call.tool.name} failed: {result.text or 'no reason was given'}")
        value = _value(result)
        text = encoded(value)
        if len(text) > LARGEST_RESULT:
            size = f"{len(text) >> 20} MiB; a script takes {LARGEST_RESULT >> 20} MiB"
            return False, encoded(f"{call.tool.name} was called and returned {size}.")
        self._finished(call.planned, value)
        return True, text

    def _report(
        self, call: ScriptCall, number: int, state: Literal["started", "finished"], *, is_error: bool = False
    ) -> None:
        if not self._observed():
            return
        self._emit(
            ScriptCalled(
                script=self._script,
                session=self._session,
                server=call.tool.server,
                tool=call.tool.remote_name,
                number=number,
                state=state,
                is_error=is_error,
            )
        )


def results_of(calls: Mapping[int, ScriptCall], ids: Iterable[int]) -> list[Settled]:
    """Return the results of those of these calls that have ended.

    Raises:
        Stopped: It is not known whether one of them took effect.
    """
    results: list[Settled] = []
    for id_ in ids:
        call = calls[id_]
        if isinstance(call.outcome, Exception):
            raise call.outcome
        if call.state == "unknown":
            raise Stopped(_unknown(call))
        if call.outcome is not None:
            results.append((id_, *call.outcome))
    return results


async def cancel(calls: Iterable[ScriptCall]) -> None:
    """Cancel these calls, also at their servers, and wait until they have ended."""
    tasks = [call.task for call in calls if call.task is not None]
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def summary(calls: Iterable[ScriptCall], planning: Iterable[ScriptCall] = ()) -> str:
    """Return a summary of the calls of a script, for its error; `planning`: the reads made for its plans."""
    made, read = _counted(calls), _counted(planning)
    texts = [
        f"Calls so far: {made}." if made else "It made no calls.",
        f"For its plan: {read}." if read else "",
    ]
    return " ".join(filter(None, texts))


def _counted(calls: Iterable[ScriptCall]) -> str:
    counts = Counter((call.tool.name, call.state) for call in calls)
    words = {"cancelled": "cancelled, outcome unknown", "unknown": "outcome unknown", "queued": "not sent"}
    listed = [f"{name} ({number} {words.get(state, state)})" for (name, state), number in counts.items()]
    return ", ".join(listed[:20])


def _unknown(call: ScriptCall) -> MooringError:
    said = call.result.text if call.result is not None else ""
    return script_error(
        f"The script was stopped: it is not known whether {call.tool.name!r} took effect "
        f"({line(said, 300)}). Check before you call it again.",
        outcome="unknown",
    )


def _state(result: Result) -> State:
    if not result.is_error:
        return "ok"
    return "unknown" if getattr(result.error, "outcome", None) == "unknown" else "failed"


def _value(result: Result) -> Any:
    """Return the value of a result for a script: the structured value, or the text."""
    if result.structured is not None:
        return result.structured
    return "\n".join(block.text if block.text is not None else f"[{label(block)}]" for block in result.blocks)


def _inner(forwarded: ForwardedRequest) -> ForwardedRequest:
    """Return the request of a gateway client for a call inside a script: the client answers its server during
    the call, not in another request."""
    from dataclasses import replace

    meta = {key: value for key, value in forwarded.meta.items() if key != "progressToken"}
    return replace(forwarded, answers=False, params={}, meta=meta)
