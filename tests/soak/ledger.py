"""The outcome of every call, and contradictions between outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mooring import Event, StateChanged

TOLERANCE = 0.25
BUCKET = 0.005


@dataclass
class Ledger:
    """Kept small on purpose: the soak watches memory, and must not be what grows."""

    outcomes: bytearray = field(default_factory=bytearray)
    """One byte for each numbered call: the index of its outcome in `WORDS`, 0 while it runs."""
    spread: Counter[str] = field(default_factory=Counter[str])
    late: Counter[int] = field(default_factory=Counter[int])
    """Histogram of the seconds that calls ended after their deadline, in steps of `BUCKET`."""
    worst: float = 0.0
    broken: list[str] = field(default_factory=list[str])
    states: dict[str, str] = field(default_factory=dict[str, str])

    WORDS = ("running", "answered", "unknown", "not sent", "failed", "cancelled")

    def begin(self) -> int:
        """The number of a new call."""
        self.outcomes.append(0)
        return len(self.outcomes) - 1

    def end(self, number: int, outcome: str, label: str, overshoot: float) -> None:
        if self.outcomes[number] != 0:
            self.breach("a call ended twice")
        self.outcomes[number] = self.WORDS.index(outcome)
        self.spread[label] += 1
        self.late[max(int(overshoot / BUCKET), 0)] += 1
        self.worst = max(self.worst, overshoot)

    def breach(self, what: str) -> None:
        if len(self.broken) < 20:
            self.broken.append(what)

    def hear(self, event: Event) -> None:
        """Every change of state has one event, in order, none missing."""
        if isinstance(event, StateChanged):
            known = self.states.get(event.server, event.old)
            if known != event.old:
                self.breach(f"a change of state of {event.server} has no event: {known} -> {event.old}")
            self.states[event.server] = event.new

    def overshoot(self, share: float) -> float:
        """The overshoot within which `share` of all calls ended."""
        left = share * sum(self.late.values())
        for bucket, count in sorted(self.late.items()):
            left -= count
            if left <= 0:
                return bucket * BUCKET
        return self.worst

    def check_ends(self, lags: Sequence[float]) -> None:
        """`lags`: seconds that the loop was late, at each tick. A loop that is late again and again is a
        breach."""
        if missing := self.outcomes.count(0):
            self.breach(f"{missing} calls never ended")
        if self.worst > TOLERANCE:
            beyond = sum(count for bucket, count in self.late.items() if bucket * BUCKET > TOLERANCE)
            self.breach(
                f"{beyond} calls outlived their deadline by more than {TOLERANCE} s, up to {self.worst:.2f} s"
            )
        if (usual := sorted(lags)[int(len(lags) * 0.95)]) > TOLERANCE:
            self.breach(f"one tick of the loop in twenty came {usual:.2f} s late or more")

    def check_effects(self, done: Counter[int]) -> None:
        for number, count in done.items():
            if count > 1:
                self.breach(f"the effect of call {number} happened {count} times")
            if self.outcomes[number] == self.WORDS.index("not sent"):
                self.breach(f"call {number} was said not to be sent, and had its effect")
