"""Find the plan of a script: run the rest of it without its writes, twice, with different stand-ins.

What differs between the two passes depends on the result of a write, and cannot be planned: the plan ends
there. Both passes run in one worker. The second one runs when the first has ended, and before the first
sends a read that it makes after it has received a stand-in: a read that depends on one is never sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mooring.core.text import line
from mooring.scripts.calls import CallsById, ScriptCall, Settled, Stopped, encoded, script_error
from mooring.scripts.plan import PlannedCall, StandIns, WritePlan, canonical
from mooring.scripts.workers import Worker

__all__ = ["DryRun"]

USES_RESULT = "the script then uses the result of a write, and may ask again"


@dataclass
class _Pass:
    snapshot: bytes
    stand_ins: StandIns
    calls: int = 0
    """Calls that the script has made in this pass."""
    stood: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Stand-ins as JSON, by the id of the call."""


@dataclass
class _Step:
    given: list[Settled]
    """Results that the script received."""
    event: dict[str, Any]
    """What it did then."""


class DryRun:
    """The search for one plan."""

    def __init__(
        self,
        worker: Worker,
        snapshot: bytes,
        stand_ins: StandIns,
        *,
        calls: CallsById,
        frame: dict[str, Any],
        noted: Callable[[dict[str, Any]], ScriptCall],
        send: Callable[[ScriptCall], None],
        settled: Callable[[list[int]], Awaitable[list[Settled]]],
    ) -> None:
        """
        Args:
            worker: Where the passes run.
            snapshot: The script before its write.
            stand_ins: Makes and remembers the stand-ins of the first pass.
            calls: The calls of the script; those of the first pass are added.
            frame: The fields of the frame that loads a snapshot.
            noted: Returns the call that an event describes, without sending it.
            send: Sends a read.
            settled: Waits for pending reads and returns their results.
        """
        self._worker, self._calls, self._frame = worker, calls, frame
        self._noted, self._send, self._settled = noted, send, settled
        self._first = _Pass(snapshot, stand_ins)
        self._second = _Pass(snapshot, StandIns(second=True))
        self._planned: list[tuple[int, PlannedCall]] = []
        """The writes of the first pass, each with its number among all calls of the pass."""
        self._steps: list[_Step] = []
        self._checked = 0
        """Steps of the first pass that the second one repeated."""
        self._handed = False
        """Whether the script received a stand-in."""

    async def find(self) -> tuple[WritePlan, dict[str, Any] | None]:
        """Return the writes that do not depend on the result of another one, and the event that ended the
        script; None if the plan ends before."""
        try:
            event, given = await self._load(self._first), list[Settled]()
            while True:
                self._steps.append(_Step(given, event))
                reads = self._note(event)
                if event["event"] != "waiting":
                    return await self._ended(event)
                if reads and self._handed and not await self._repeated():
                    return self._open(USES_RESULT), None
                for call in reads:
                    self._send(call)
                stood = self._first.stood
                given = [(id_, True, stood[id_]) for id_ in event["pending"] if id_ in stood]
                self._handed = self._handed or bool(given)
                given = given or await self._settled(event["pending"])
                event, _ = await self._worker.results(given)
        except Stopped as stopped:
            why = line(str(stopped), 200)
            if self._handed and not await self._repeated(last=True):
                why = USES_RESULT
            return self._open(why), None

    def _note(self, event: dict[str, Any]) -> list[ScriptCall]:
        """Note the new calls of the first pass; return the reads."""
        reads: list[ScriptCall] = []
        for one in event["calls"]:
            call = self._calls[one["id"]] = self._noted(one)
            self._first.calls += 1
            if not call.write:
                reads.append(call)
                continue
            tool, number = call.tool, len(self._planned)
            for each in (self._first, self._second):
                each.stood[one["id"]] = encoded(each.stand_ins.make(number, tool.output_schema))
            planned = PlannedCall(
                function=one["name"], tool=tool.name, server=tool.server, arguments=call.arguments
            )
            self._planned.append((self._first.calls, planned))
        return reads

    async def _ended(self, event: dict[str, Any]) -> tuple[WritePlan, dict[str, Any] | None]:
        usable = event["event"] in ("done", "error") or "more calls" in event.get("text", "")
        if self._handed and usable and not await self._repeated(last=True):
            return self._open(USES_RESULT), None
        calls = tuple(call for _, call in self._planned)
        return WritePlan(calls=calls, complete=event["event"] == "done", why_open=USES_RESULT), event

    def _open(self, why: str) -> WritePlan:
        made = self._second.calls if self._handed else self._first.calls
        calls = tuple(call for number, call in self._planned if number <= made)
        return WritePlan(calls=calls, complete=False, why_open=why)

    # --- the second pass ------------------------------------------------------------------------

    async def _repeated(self, *, last: bool = False) -> bool:
        """Run the second pass to the position of the first; return whether it did the same."""
        if not last:
            self._first.snapshot = await self._dumped()
        event = await self._load(self._second)
        for step in self._steps[self._checked :]:
            if step.given:
                stood = self._second.stood
                given = [(id_, ok, stood.get(id_, value)) for id_, ok, value in step.given]
                event, _ = await self._worker.results(given)
            if not self._same(step.event, event):
                return False
            self._checked += 1
        if not last:
            self._second.snapshot = await self._dumped()
            await self._load(self._first)
        return True

    def _same(self, first: dict[str, Any], second: dict[str, Any]) -> bool:
        """Compare two events; count the calls before the first difference."""
        for one, other in zip(first["calls"], second["calls"], strict=False):
            if (one["id"], one["name"]) != (other["id"], other["name"]):
                return False
            given, again = one["arguments"], other["arguments"]
            if one["id"] in self._first.stood:
                if not self._first.stand_ins.same(given, again, self._second.stand_ins):
                    return False
            elif canonical(given) != canonical(again):
                return False
            self._second.calls += 1
        return (
            len(first["calls"]) == len(second["calls"])
            and first["event"] == second["event"]
            and sorted(first.get("pending", ())) == sorted(second.get("pending", ()))
        )

    async def _load(self, one: _Pass) -> dict[str, Any]:
        left = max(self._frame["calls"] - one.calls, 0)
        event, _ = await self._worker.exchange("load", one.snapshot, **{**self._frame, "calls": left})
        return event

    async def _dumped(self) -> bytes:
        event, snapshot = await self._worker.exchange("dump")
        if event["event"] != "snapshot":
            raise Stopped(script_error(str(event.get("text"))))
        return snapshot
