"""Run one script: its calls are calls of its session, its writes wait for an approved plan."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from mooring.audit import NOTE
from mooring.core.events import Event, ScriptFinished, ScriptStarted
from mooring.core.names import OWNER
from mooring.core.render import text_block
from mooring.core.text import did_you_mean, dumps, line
from mooring.core.types import Result, Tool
from mooring.errors import TELL_USER, CallTimeout, MooringError, PolicyDenied
from mooring.policy import ApprovalRequest
from mooring.scripts.calls import (
    CallsById,
    ScriptCall,
    ScriptCalls,
    Settled,
    Stopped,
    cancel,
    results_of,
    script_error,
    summary,
)
from mooring.scripts.dryrun import DryRun
from mooring.scripts.plan import MOST_QUESTIONS, Approvals, StandIns, WritePlan
from mooring.scripts.stubs import HEADER, Stub, function_names, identifiers, stub_of
from mooring.scripts.workers import Worker, WorkerLost, Workers

if TYPE_CHECKING:
    from mooring.config.sections import ScriptSettings

__all__ = ["LONGEST_CODE", "META", "ScriptRun"]

LONGEST_CODE = 100_000
"""Characters of a program."""
ANSWER = 300.0
"""Seconds to answer a question about writes."""
SHOWN_BEFORE = 2_000
"""Characters of the output that an error repeats."""
META = "mooring/script"
"""Key of the `meta` of a result: the id of the script and its calls."""


class ScriptRun:
    """One run of a script in a session."""

    def __init__(
        self,
        *,
        call: Callable[..., Awaitable[Result]],
        tools: Mapping[str, Tool],
        plans: Callable[[Tool], str | None],
        denies: Callable[[Tool, Mapping[str, Any]], str | None],
        approve: Callable[[ApprovalRequest, float], Awaitable[bool]],
        emit: Callable[[Event], None],
        observed: Callable[[], bool],
        workers: Workers,
        settings: ScriptSettings,
        session: str,
        timeout: float,
        on_call: Callable[[int, str], Awaitable[None]] | None = None,
    ) -> None:
        """
        Args:
            call: `Session.call` of the session.
            tools: The tools that the model of this session may call, by local name.
            plans: Returns why a tool must be planned, or None for one that may be called at once.
            denies: Returns why the policy denies a call with these arguments, or None.
            approve: Asks for approval of a plan.
            emit: Receives the events of the script.
            observed: Returns whether a stream delivers the events of calls.
            workers: Where it runs.
            settings: Its limits.
            session: The id of the session.
            timeout: Seconds for everything but waiting for a person.
            on_call: Called after each call, with the number of finished calls and a text.
        """
        self._plans, self._denies, self._approve, self._emit = plans, denies, approve, emit
        self._workers, self._settings, self._session_id = workers, settings, session
        self._timeout = timeout
        self._functions = function_names(tools.values())
        self.id = secrets.token_hex(6)
        self._worker: Worker | None = None
        self._calls: CallsById = {}
        self._printed: list[str] = []
        self._length = 0
        self._approvals = Approvals()
        self._caller = ScriptCalls(
            self.id,
            session,
            call=call,
            emit=emit,
            observed=observed,
            finished=self._approvals.finished,
            on_call=on_call,
        )
        self._limit: asyncio.Timeout | None = None
        self._now, self._seed = time.time(), secrets.randbits(32)
        self._held: dict[int, ScriptCall] = {}
        """Approved writes that wait for those before them in the plan."""
        self._planning: list[ScriptCall] = []
        """Reads that were made for plans."""
        self._stubs: dict[str, Stub] = {}
        self._pausing: list[str] = []
        self._as_text: str | None = None
        """What the value is, if it is not JSON and was returned as text."""
        self._at_rest = False
        """Whether the worker has ended the program and can be used again."""

    async def run(self, code: str) -> Result:
        """Run a program and return its result. Failures are results with `is_error`, not exceptions.
        Cancelling this cancels the running calls."""
        started = time.monotonic()
        if (note := NOTE.get()) is not None:
            note.script = self.id
        self._emit(ScriptStarted(script=self.id, session=self._session_id))
        error: MooringError | None = None
        value: Any = None
        failed = True
        try:
            async with asyncio.timeout(self._timeout) as self._limit:
                value = await self._run(code)
            failed = False
        except TimeoutError:
            error = CallTimeout(
                f"The script ran longer than {self._timeout:g} s and was stopped.",
                server=OWNER,
                tool="script_run",
                elapsed=time.monotonic() - started,
                outcome="unknown",
            )
        except Stopped as stopped:
            error = stopped.problem
        except WorkerLost as lost:
            error = script_error(f"The script was stopped: {lost}.", outcome="unknown")
        finally:
            await self._end()
            took = time.monotonic() - started
            self._emit(
                ScriptFinished(
                    script=self.id,
                    session=self._session_id,
                    calls=len(self._calls) + len(self._planning),
                    duration=took,
                    is_error=failed,
                )
            )
        return self._result(value, error, took)

    # --- the program ----------------------------------------------------------------------------

    async def _run(self, code: str) -> Any:
        if len(code) > LONGEST_CODE:
            raise Stopped(
                script_error(
                    f"The script has {len(code):,} characters; at most {LONGEST_CODE:,} are allowed."
                )
            )
        used = [name for name in self._functions if name in identifiers(code)]
        self._stubs = {name: stub_of(name, self._functions[name]) for name in used}
        self._pausing = [name for name in used if self._plans(self._functions[name]) is not None]
        self._worker = await self._workers.acquire()
        stubs = "\n".join((HEADER, *(stub.text for stub in self._stubs.values()), ""))
        event, _ = await self._worker.exchange(
            "start",
            code=code,
            stubs=stubs,
            memory=self._settings.memory,
            time=self._settings.time,
            **self._frame(self._pausing),
        )
        return await self._follow(event, code)

    def _frame(self, pausing: list[str], *, dry: bool = False) -> dict[str, Any]:
        return {
            "names": list(self._stubs),
            "pausing": pausing,
            "calls": max(self._settings.calls - len(self._calls) - len(self._planning), 0),
            "length": self._length,
            "now": self._now,
            "seed": self._seed,
            "dry": dry,
        }

    async def _follow(self, event: dict[str, Any], code: str) -> Any:
        """Handle the events of the script until it ends; return its value."""
        while True:
            assert self._worker is not None
            self._heard(event)
            event["calls"], event["printed"] = [], ""
            self._at_rest = event["event"] in ("done", "invalid", "error")
            match event["event"]:
                case "done":
                    running = [id_ for id_, call in self._calls.items() if call.task and not call.task.done()]
                    if running:
                        await self._settled(self._calls, running)  # the script did not await them
                        continue
                    if self._held:
                        raise Stopped(self._skipped())
                    self._as_text = event.get("as_text")
                    return event["value"]
                case "waiting":
                    if all(self._calls[id_].task is None for id_ in event["pending"]):
                        raise Stopped(self._skipped())
                    event = await self._answered(event["pending"])
                case "write":
                    event = await self._write(event["call"], code)
                case _:
                    raise Stopped(self._problem(event))

    async def _answered(self, pending: list[int]) -> dict[str, Any]:
        """Give the script the results of its calls, without a turn of this task for each of them; return the
        next event that is not about calls."""
        assert self._worker is not None
        worker, loop, waiting = self._worker, asyncio.get_running_loop(), list[int]()

        def ended() -> None:
            if len(waiting) > 1:
                loop.call_soon(give)  # together with others that end now
            else:
                give()

        def give() -> None:
            try:
                results = results_of(self._calls, waiting)
            except Exception as problem:
                worker.interrupt(problem)
            else:
                if results:
                    waiting.clear()
                    worker.give(results)

        def wait(event: dict[str, Any]) -> bool:
            self._heard(event)
            event["calls"], event["printed"] = [], ""
            if all(self._calls[id_].task is None for id_ in event["pending"]):
                return False
            waiting[:] = event["pending"]
            give()
            return True

        worker.waiting, self._caller.ended = wait, ended
        try:
            waiting[:] = pending
            loop.call_soon(give)
            return (await worker.event())[0]
        finally:
            worker.waiting = self._caller.ended = None
            waiting.clear()

    def _heard(self, event: dict[str, Any]) -> None:
        """Store the printed text, and start the calls that the script made."""
        self._printed.append(event["printed"])
        self._length += len(event["printed"])
        for one in event["calls"]:
            self._begin(one)

    def _problem(self, event: dict[str, Any]) -> MooringError:
        match event["event"]:
            case "invalid":
                lines = [f"line {number}: {self._hinted(text)}" for number, text in event["problems"]]
                listed = "\n".join(lines)
                return script_error(
                    f"The script was not run. Correct it and try again:\n{listed}", outcome="not sent"
                )
            case "limit":
                return script_error(f"The script was stopped: {event['text']}.", outcome="unknown")
            case "crash":
                return script_error(
                    f"The interpreter of the script ended: {event['text']}.", outcome="unknown"
                )
            case _:
                return script_error(str(event.get("text") or "The script failed."))

    def _hinted(self, text: str) -> str:
        if text.startswith("Name `") and text.endswith("` used when not defined"):
            name = text.split("`")[1]
            near = did_you_mean(name, self._functions)
            more = f"; did you mean `{near}`?" if near else "; script_api lists the tools"
            return f"`{line(name, 60)}` is not defined{more}"
        return text

    def _noted(self, one: dict[str, Any]) -> ScriptCall:
        name = one["name"]
        given = self._caller.arguments(self._stubs[name], one["arguments"])
        return ScriptCall(self._functions[name], given, write=name in self._pausing)

    def _begin(self, one: dict[str, Any], *, planned: int | None = None) -> ScriptCall:
        """Start a read of the script; a write is only noted."""
        call = self._calls[one["id"]] = self._noted(one)
        call.planned = planned
        if not call.write:
            self._caller.start(call)
        return call

    async def _settled(self, calls: CallsById, pending: list[int]) -> list[Settled]:
        assert self._worker is not None
        results = await self._caller.settled(calls, pending, self._worker.gone)
        if not results:
            raise self._worker.lost()
        return results

    # --- writes ---------------------------------------------------------------------------------

    async def _write(self, one: dict[str, Any], code: str) -> dict[str, Any]:
        """Make an approved write, or find and ask for a plan; return the next event."""
        assert self._worker is not None
        if self._settings.writes == "deny":
            raise Stopped(self._denied(one["name"], "`scripts.writes` is `deny`"))
        given = self._caller.arguments(self._stubs[one["name"]], one["arguments"])
        decision, index = self._approvals.decide(one["name"], given)
        if decision == "refuse" and self._approvals.exhausted:
            raise Stopped(
                PolicyDenied(
                    f"The script was stopped before {self._functions[one['name']].name!r}: it needs the "
                    f"results of its writes again and again, and a script may ask for {MOST_QUESTIONS} plans "
                    "only. Split it into several scripts.",
                    server=OWNER,
                    tool="script_run",
                    reason=f"more than {MOST_QUESTIONS} plans",
                )
            )
        if decision == "refuse":
            raise Stopped(
                PolicyDenied(
                    f"The script was stopped: {self._functions[one['name']].name!r} with "
                    f"{line(dumps(given), 200)} is not in the plan that was approved.",
                    server=OWNER,
                    tool="script_run",
                    reason="differs from the approved plan",
                )
            )
        if decision == "ask":
            return await self._planned(code)
        assert index is not None
        self._held[index] = self._begin(one, planned=index)
        for ready in self._approvals.release(index):
            self._caller.start(self._held.pop(ready))
        event, _ = await self._worker.exchange("go")
        return event

    def _skipped(self) -> MooringError:
        """The error of a script that leaves out a write and makes a later one of the plan."""
        missing = self._approvals.left[0]
        return PolicyDenied(
            f"The script was stopped: it makes a later write of the approved plan and leaves out "
            f"{missing.tool!r} with {line(dumps(self._approvals.stand_ins.shown(missing.arguments)), 200)}, "
            "which comes before it.",
            server=OWNER,
            tool="script_run",
            reason="differs from the approved plan",
        )

    async def _planned(self, code: str) -> dict[str, Any]:
        """Determine the writes of the script, ask for approval, and load its snapshot again."""
        assert self._worker is not None
        event, snapshot = await self._worker.exchange("dump")
        if event["event"] != "snapshot":
            raise Stopped(self._problem(event))
        plan = await self._dry_run(snapshot)
        await self._give_back()
        self._refuse_denied(plan)
        self._approvals.propose(plan)
        reasons = {self._plans(self._functions[call.function]) or "" for call in plan.calls}
        request = ApprovalRequest(
            server=OWNER,
            tool="script_run",
            name="script_run",
            title="Run a script that makes changes",
            arguments={
                "script": self.id,
                **plan.document(self._approvals.stand_ins),
                "done": dict(Counter(call.tool.name for call in self._calls.values() if call.state == "ok")),
                "code": code,
            },
            reason="; ".join(sorted(filter(None, reasons))) or "the script makes changes",
            session=self._session_id,
        )
        approved = await self._asked(request)
        self._approvals.answer(approved)
        if not approved:
            raise Stopped(self._denied(plan.calls[0].function, "the plan was not approved"))
        self._worker, self._at_rest = await self._workers.acquire(), False
        event, _ = await self._worker.exchange("load", snapshot, **self._frame(self._pausing))
        return event

    def _refuse_denied(self, plan: WritePlan) -> None:
        """End the script before the question if the policy denies a call of the plan in any case."""
        for call in plan.calls:
            if self._approvals.stand_ins.used(call.arguments):
                continue  # decided when the result is known
            if (why := self._denies(self._functions[call.function], call.arguments)) is not None:
                raise Stopped(
                    PolicyDenied(
                        f"The script was stopped before its next write: its plan has {call.tool!r} with "
                        f"{line(dumps(call.arguments), 200)}, which the policy denies ({line(why, 200)}). "
                        "Leave this call out.",
                        server=OWNER,
                        tool="script_run",
                        reason=why,
                    )
                )

    async def _asked(self, request: ApprovalRequest) -> bool:
        """Ask a person. The time limit of the script does not run meanwhile."""
        assert self._limit is not None
        loop, until = asyncio.get_running_loop(), self._limit.when()
        left = None if until is None else max(until - loop.time(), 0.0)
        self._limit.reschedule(None)
        try:
            return await self._approve(request, ANSWER)
        finally:
            self._limit.reschedule(None if left is None else loop.time() + left)

    async def _dry_run(self, snapshot: bytes) -> WritePlan:
        """Run the rest of the script with stand-ins for the results of writes. Reads are made."""
        assert self._worker is not None
        calls: CallsById = dict(self._calls)
        before = len(self._planning)
        self._approvals.stand_ins = StandIns()
        search = DryRun(
            self._worker,
            snapshot,
            self._approvals.stand_ins,
            calls=calls,
            frame=self._frame([], dry=True),
            noted=self._noted,
            send=self._read_for_plan,
            settled=lambda pending: self._settled(calls, pending),
        )
        try:
            plan, event = await search.find()
        finally:
            await cancel([call for id_, call in calls.items() if id_ not in self._calls])
        self._check(plan, event, len(self._planning) - before)
        return plan

    def _read_for_plan(self, call: ScriptCall) -> None:
        self._planning.append(call)
        self._caller.start(call)

    def _check(self, plan: WritePlan, event: dict[str, Any] | None, reads: int) -> None:
        """Refuse a plan with more calls than the script may make: the reads for it count as well."""
        made = len(self._calls) + len(self._planning)
        most = made + reads + len(plan.calls) > self._settings.calls
        if most or (event is not None and event["event"] == "limit" and "more calls" in event["text"]):
            raise Stopped(
                script_error(
                    "The script was stopped before its first write: it would make more than "
                    f"{self._settings.calls} calls (`scripts.calls`), including the reads for the plan."
                )
            )
        if event is not None and event["event"] not in ("done", "error"):
            raise Stopped(self._problem(event))

    def _denied(self, function: str, why: str) -> MooringError:
        tool = self._functions[function]
        return PolicyDenied(
            f"The script was stopped before {tool.name!r}: {why}. {TELL_USER}",
            server=OWNER,
            tool="script_run",
            reason=why,
        )

    # --- the end --------------------------------------------------------------------------------

    async def _give_back(self) -> None:
        """Release the worker for other scripts."""
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                event, _ = await worker.exchange("stop")
                usable = event["event"] == "idle"
            except WorkerLost:
                usable = False
            await self._workers.release(worker, usable=usable)

    async def _end(self) -> None:
        """Cancel the calls that are still running, and give the worker back or kill it."""
        await cancel(self._calls.values())
        worker, self._worker = self._worker, None
        if worker is not None:
            await self._workers.release(worker, usable=self._at_rest)

    def _not_made(self) -> str:
        """Return the approved writes that the script did not make."""
        left = Counter(call.tool for call in self._approvals.left)
        listed = ", ".join(f"{line(tool, 80)} ({count})" for tool, count in left.items())
        return f"Approved, but not made by the script: {listed}." if listed else ""

    def _result(self, value: Any, error: MooringError | None, took: float) -> Result:
        printed = "".join(self._printed)
        if error is not None:
            parts = [
                str(error),
                summary(self._calls.values(), self._planning),
                f"Printed before that:\n{_end_of(printed)}" if printed.strip() else "",
            ]
        else:
            shown = "" if value is None else value if isinstance(value, str) else dumps(value)
            note = (
                "" if self._as_text is None else f"(The value is {self._as_text}, so its text is returned.)"
            )
            parts = [printed.rstrip("\n"), shown, note, self._not_made()]
        calls = [call.document() for call in self._calls.values()]
        calls += ({**call.document(), "planning": True} for call in self._planning)
        return Result(
            server=OWNER,
            tool="script_run",
            blocks=(text_block("\n".join(filter(None, parts))),),
            structured=value,
            is_error=error is not None,
            duration=took,
            meta={META: {"id": self.id, "calls": calls}},
            error=error,
        )


def _end_of(printed: str) -> str:
    """Return the end of what a script printed before its error."""
    return printed if len(printed) <= SHOWN_BEFORE else f"…{printed[-SHOWN_BEFORE:]}"
