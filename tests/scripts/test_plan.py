"""The rules of approval, without any process: no write without an approved plan, each planned write once."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.scripts.plan import Approvals, PlannedCall, StandIns, WritePlan, canonical

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def planned(function: str, arguments: Any) -> PlannedCall:
    return PlannedCall(function=function, tool=f"mcp_{function}", server="s", arguments=arguments)


def play(seed: int) -> tuple[int, int]:
    """Play one random schedule against a model; return how many writes went out and were held."""
    chance = random.Random(seed)
    approvals = Approvals(most_questions=chance.randint(1, 4))
    allowed: list[str] = []
    plan: WritePlan | None = None
    approved = answered = False
    questions = sent = held = 0
    released: list[int] = []
    for _ in range(chance.randint(6, 20)):
        match chance.choice(("write", "write", "write", "propose", "answer", "answer", "finish")):
            case "write":
                function, arguments = chance.choice("ab"), {"x": chance.choice((1, True, "1"))}
                decision, index = approvals.decide(function, arguments)
                key = canonical([function, arguments])
                if decision == "go":
                    assert approved, "a write went out without approval"
                    assert key in allowed, "a write went out that was not in the approved plan"
                    allowed.remove(key)
                    assert index is not None
                    assert plan is not None
                    released += approvals.release(index)
                    assert released == list(range(len(released))), "writes went out in another order"
                    assert len(approvals.left) == len(plan.calls) - len(released)
                    sent += 1
                else:
                    assert key not in allowed, "an approved write was held back"
                    held += 1
                    if decision == "ask":
                        assert plan is None or (approved and not plan.complete and not allowed)
            case "propose":
                calls = [planned(chance.choice("ab"), {"x": chance.choice((1, True, "1"))}) for _ in range(3)]
                plan = WritePlan(calls=tuple(calls[: chance.randint(1, 3)]), complete=chance.random() < 0.5)
                approvals.propose(plan)
                approved, answered, allowed, released = False, False, [], []
                questions += 1
                assert approvals.questions == questions
            case "answer":
                yes = chance.choice((True, True, True, False, 1, "yes", None))
                approvals.answer(yes)  # type: ignore[arg-type]
                if plan is not None and not answered:
                    answered, approved = True, yes is True
                    if approved:
                        allowed = [canonical([call.function, call.arguments]) for call in plan.calls]
                    else:
                        plan = WritePlan(calls=(), complete=True)
            case _:
                approvals.finished(chance.choice((None, 0, 1, 7)), chance.choice((1, "x", None)))
    return sent, held


def test_no_unapproved_write_leaves_in_10_000_random_schedules() -> None:
    played = [play(seed) for seed in range(10_000)]
    assert sum(sent for sent, _ in played) > 1_000
    assert sum(held for _, held in played) > 10_000


def test_an_answer_before_a_plan_approves_nothing() -> None:
    approvals = Approvals()
    approvals.answer(True)
    assert approvals.decide("a", {})[0] == "ask"
    approvals.propose(WritePlan(calls=(planned("a", {}),), complete=True))
    assert approvals.decide("a", {})[0] == "refuse", "the earlier answer was for no plan"


def test_a_planned_write_is_made_once() -> None:
    approvals = Approvals()
    approvals.propose(WritePlan(calls=(planned("a", {"x": 1}),), complete=True))
    approvals.answer(True)
    approvals.answer(True)
    assert [approvals.decide("a", {"x": 1})[0] for _ in range(2)] == ["go", "refuse"]


def test_a_stand_in_is_only_what_the_result_was() -> None:
    approvals = Approvals()
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    made = approvals.stand_ins.make(0, schema)
    second = planned("label", {"id": made["id"], "text": f"<{made['name']}>"})
    approvals.propose(WritePlan(calls=(planned("make", {}), second), complete=True))
    approvals.answer(True)
    real = {"id": 7, "text": "<rope>"}
    assert approvals.decide("label", real)[0] == "refuse", "the result is not known yet"
    _, index = approvals.decide("make", {})
    approvals.finished(index, {"id": 7, "name": "rope"})
    assert approvals.decide("label", {"id": 8, "text": "<rope>"})[0] == "refuse"
    assert approvals.decide("label", {"id": made["id"], "text": f"<{made['name']}>"})[0] == "refuse"
    assert approvals.decide("label", real)[0] == "go"


@given(JSON, JSON)
def test_equal_texts_mean_equal_values_of_equal_types(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (repr(_sorted(one)) == repr(_sorted(other)))


@given(JSON)
def test_values_without_stand_ins_are_never_changed(value: Any) -> None:
    stand_ins = StandIns()
    stand_ins.make(0, {"type": "object", "properties": {"n": {"type": "integer"}}})
    assert stand_ins.expanded(value, {0: {"n": 3}}) == value


def test_the_document_counts_calls_and_shows_the_first_arguments() -> None:
    calls = tuple(planned("a", {"x": number}) for number in range(12))
    document = WritePlan(calls=calls, complete=True).document(StandIns())
    assert document == {
        "writes": 12,
        "calls": [{"tool": "mcp_a", "server": "s", "count": 12, "first": [{"x": n} for n in range(10)]}],
        "complete": True,
    }


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
