"""Plans of writes: what a script would do, what was approved, and whether a call is one of the approved ones.

Pure. A plan is found by running the rest of a script without its writes: each write gets a stand-in instead
of a result. Stand-ins can be used in the arguments of later writes; they are replaced by the real results
later, and the call must then be exactly the planned one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from mooring.core.value import Value

__all__ = ["Approvals", "Decision", "PlannedCall", "StandIns", "WritePlan", "canonical"]

MOST_QUESTIONS = 5
"""Plans that one script may ask for."""
SHOWN_CALLS, SHOWN_TEXT = 10, 500
_FIRST_NUMBER, _PER_CALL = 8_000_000_000_000, 1_000
_SECOND_NUMBER, _SECOND_STEP, _FRACTION = 3, 7, 0.390625
_DEEPEST, _MOST_LEAVES = 4, 200

_OTHER_MEMBER = "\u27eaother\u27eb"

Decision = Literal["go", "ask", "refuse"]
Path = tuple[str | int, ...]


def canonical(value: Any) -> str:
    """Return a text that is equal for equal JSON values only."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


class PlannedCall(Value):
    """One write of a plan."""

    function: str
    """Name of the function in the script."""
    tool: str
    """Name of the tool in the catalog."""
    server: str
    arguments: Mapping[str, Any]
    """May hold stand-ins for results of earlier writes of the plan."""


class WritePlan(Value):
    """The writes that a script would make from its current position."""

    calls: tuple[PlannedCall, ...]
    complete: bool
    """Whether the script ends after them. If not, it needs the result of one, and may need another plan."""
    why_open: str = ""

    def document(self, stand_ins: StandIns) -> dict[str, Any]:
        """Return the plan for a person: for each tool the number of calls and the arguments of the first."""
        by_tool: dict[str, list[PlannedCall]] = {}
        for call in self.calls:
            by_tool.setdefault(call.tool, []).append(call)
        return {
            "writes": len(self.calls),
            "calls": [
                {
                    "tool": tool,
                    "server": calls[0].server,
                    "count": len(calls),
                    "first": [stand_ins.shown(call.arguments) for call in calls[:SHOWN_CALLS]],
                }
                for tool, calls in by_tool.items()
            ],
            "complete": self.complete,
            **({} if self.complete else {"then": self.why_open or "more may follow, after another question"}),
        }


class StandIns:
    """Stand-ins for the results of planned writes.

    Those of the second pass have other values: small numbers, numbers with a fraction, texts with other
    characters, the other truth value, empty lists, objects with one more member. So a value that was made of
    a stand-in differs between the passes, unless it is the stand-in itself or a text that contains it.
    """

    def __init__(self, *, second: bool = False) -> None:
        self._second = second
        self._numbers: dict[int | float, tuple[int, Path]] = {}
        self._texts: dict[str, tuple[int, Path]] = {}

    def make(self, index: int, schema: Mapping[str, Any] | None) -> Any:
        """Return a stand-in for the result of call `index` (from 0): a text, or a value that fits the
        schema."""
        if schema is None:
            return self._text(index, ())
        left = [_MOST_LEAVES]
        return self._value(index, schema, (), left)

    def expanded(self, value: Any, results: Mapping[int, Any]) -> Any:
        """Return a value with stand-ins replaced by the real results.

        Raises:
            LookupError: A result is not known, or has no such part.
        """
        if isinstance(value, str):
            if value in self._texts:
                return _part(results, *self._texts[value])
            for text, source in self._texts.items():
                if text in value:
                    value = value.replace(text, str(_part(results, *source)))
            return value
        if (source := self._source(value)) is not None:
            return _part(results, *source)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value).items()
            return {key: self.expanded(item, results) for key, item in pairs}
        if isinstance(value, list | tuple):
            return [self.expanded(item, results) for item in cast("Sequence[Any]", value)]
        return value

    def shown(self, value: Any) -> Any:
        """Return a value for a person: stand-in numbers as text, long texts cut."""
        if isinstance(value, str):
            return value if len(value) <= SHOWN_TEXT else f"{value[:SHOWN_TEXT]}… ({len(value):,} characters)"
        if (source := self._source(value)) is not None:
            return _name(*source)
        if isinstance(value, Mapping):
            return {key: self.shown(item) for key, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            items = cast("Sequence[Any]", value)
            return [self.shown(item) for item in items[:50]]
        return value

    def same(self, value: Any, again: Any, second: StandIns) -> bool:
        """Return whether a value of the first pass and one of the second are equal, apart from stand-ins for
        the same result."""
        if isinstance(value, Mapping) and isinstance(again, Mapping):
            one, other = cast("Mapping[str, Any]", value), cast("Mapping[str, Any]", again)
            return one.keys() == other.keys() and all(
                self.same(item, other[key], second) for key, item in one.items()
            )
        if isinstance(value, list | tuple) and isinstance(again, list | tuple):
            items, others = cast("Sequence[Any]", value), cast("Sequence[Any]", again)
            return len(items) == len(others) and all(
                self.same(item, other, second) for item, other in zip(items, others, strict=True)
            )
        if isinstance(value, str) and isinstance(again, str):
            for text, source in second._texts.items():
                again = again.replace(text, _name(*source))
            return value == again
        if (source := self._source(value)) is not None:
            return source == second._source(again)
        return canonical(value) == canonical(again)

    def used(self, value: Any) -> bool:
        """Return whether a value contains a stand-in."""
        if isinstance(value, str):
            return any(text in value for text in self._texts)
        if isinstance(value, Mapping):
            return any(map(self.used, cast("Mapping[str, Any]", value).values()))
        if isinstance(value, list | tuple):
            return any(map(self.used, cast("Sequence[Any]", value)))
        return self._source(value) is not None

    def _source(self, value: Any) -> tuple[int, Path] | None:
        """Return what a number stands for. 7.0 is not 7: the text that is sent differs."""
        if type(value) not in (int, float):
            return None
        found = self._numbers.get(value)
        return found if found is None or type(value) is int or self._second else None

    def _text(self, index: int, path: Path) -> str:
        text = _other_name(index, path) if self._second else _name(index, path)
        self._texts[text] = (index, path)
        return text

    def _value(self, index: int, schema: Any, path: Path, left: list[int]) -> Any:
        left[0] -= 1
        given: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        kind = given.get("type")
        if left[0] < 0 or len(path) > _DEEPEST:
            return self._text(index, path)
        if kind == "object" and isinstance(given.get("properties"), Mapping):
            members = cast("Mapping[str, Any]", given["properties"]).items()
            value = {name: self._value(index, one, (*path, name), left) for name, one in members}
            return {**value, _OTHER_MEMBER: None} if self._second else value
        if kind == "array":
            item = self._value(index, given.get("items"), (*path, 0), left)
            return [] if self._second else [item]
        if kind in ("integer", "number"):
            return self._number(index, path, whole=kind == "integer")
        if kind == "boolean":
            return not self._second
        return None if kind == "null" else self._text(index, path)

    def _number(self, index: int, path: Path, *, whole: bool) -> int | float:
        count = len(self._numbers)
        number: int | float = _FIRST_NUMBER + index * _PER_CALL + count % _PER_CALL
        if self._second:
            number = _SECOND_NUMBER + count * _SECOND_STEP + (0 if whole else _FRACTION)
        self._numbers[number] = (index, path)
        return number


def _name(index: int, path: Path) -> str:
    part = "." + ".".join(map(str, path)) if path else ""
    return f"\u27e6result of write {index + 1}{part}\u27e7"


def _other_name(index: int, path: Path) -> str:
    """Return a text that shares no beginning, end or word with the one of the first pass."""
    return f"\u27ea{'/'.join(('other', str(index), *map(str, path), 'value'))}\u27eb"


def _part(results: Mapping[int, Any], index: int, path: Path) -> Any:
    value = results[index]
    for step in path:
        if isinstance(value, str | int | float | None):
            raise LookupError(step)
        value = value[step]
    return value


class Approvals:
    """Which writes of one script may be made, and when.

    A write is made only if a plan with exactly this call was approved, each planned call at most once, and
    only after all calls before it in the plan. So what is made is always the beginning of an approved plan,
    whatever a script does when it recognises a stand-in.
    """

    def __init__(self, most_questions: int = MOST_QUESTIONS) -> None:
        self.stand_ins = StandIns()
        self.questions = 0
        self._most = most_questions
        self._plan: WritePlan | None = None
        self._approved = False
        self._left: dict[int, PlannedCall] = {}
        self._results: dict[int, Any] = {}
        self._wanted: set[int] = set()
        """Calls that the script has made and that wait for those before them."""
        self._next = 0
        """The first call of the plan that was not made yet."""

    def decide(self, function: str, arguments: Mapping[str, Any]) -> tuple[Decision, int | None]:
        """Return what happens to a write: it is made (with its number in the plan, for `release`), a plan
        must be approved first, or it differs from the approved plan and is refused."""
        if self._plan is None:
            return "ask", None
        if not self._approved:
            return "refuse", None
        wanted = canonical(arguments)
        for index, call in self._left.items():
            if call.function == function and self._matches(call, wanted):
                del self._left[index]
                return "go", index
        if not self._plan.complete and not self._left and self.questions < self._most:
            return "ask", None
        return "refuse", None

    def release(self, index: int) -> list[int]:
        """Record that the script makes this call of the plan; return the calls that may be sent now, in the
        order of the plan."""
        self._wanted.add(index)
        first = self._next
        while self._next in self._wanted:
            self._next += 1
        return list(range(first, self._next))

    def propose(self, plan: WritePlan) -> None:
        """Replace the plan. Neither it nor an earlier one is approved afterwards."""
        self._plan, self._approved, self._left, self._results = plan, False, {}, {}
        self._wanted, self._next = set(), 0
        self.questions += 1

    def answer(self, approved: bool) -> None:
        """Record the answer to the last proposed plan. Only the first answer counts."""
        if self._plan is None or self._approved or self._left:
            return
        self._approved = approved is True
        if self._approved:
            self._left = dict(enumerate(self._plan.calls))
        else:
            self._plan = WritePlan(calls=(), complete=True)

    def finished(self, index: int | None, value: Any) -> None:
        """Record the result of a planned write."""
        if index is not None:
            self._results[index] = value

    @property
    def exhausted(self) -> bool:
        """Whether the script needs another plan and may not ask for one."""
        return (
            self._plan is not None
            and self._approved
            and not self._plan.complete
            and not self._left
            and self.questions >= self._most
        )

    @property
    def left(self) -> tuple[PlannedCall, ...]:
        """Approved calls that were not made."""
        calls = self._plan.calls if self._plan is not None and self._approved else ()
        return calls[self._next :]

    def _matches(self, call: PlannedCall, wanted: str) -> bool:
        try:
            return canonical(self.stand_ins.expanded(call.arguments, self._results)) == wanted
        except (LookupError, TypeError):
            return False
