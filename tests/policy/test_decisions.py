"""Decisions that the policy remembers are those that it would make again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mooring import HostConfig, ServerConfig
from mooring.core.callers import call_context
from mooring.core.types import Tool
from mooring.policy import PolicyEnforcer
from mooring.policy.replay import enforcer as enforcer_of

pytest.importorskip("cel")

RULES = (
    {"when": 'arguments.n == 1 && principal != "ana"', "then": "deny", "reason": "one"},
    {"when": 'has(arguments.flag) && arguments.flag == true && profile == "team"', "then": "deny"},
    {"when": '"where" in arguments && arguments.where == null', "then": "ask"},
)
VALUES: tuple[Any, ...] = (True, 1, 1.0, 0, False, None, "1", "", "x" * 500, 2**60, -1, [1], {"a": 1}, ...)


def enforcer(rules: Any = RULES) -> PolicyEnforcer:
    server = ServerConfig(name="lab", command="unused")
    return enforcer_of(HostConfig(servers=(server,), policy={"rules": rules}))


def tool() -> Tool:
    return Tool(name="mcp_lab_echo", server="lab", remote_name="echo", description="", input_schema={})


def test_a_remembered_decision_is_the_one_that_the_rules_make() -> None:
    chance, remembering, echo = random.Random(5), enforcer(), tool()
    seen = set[str]()
    for _ in range(3_000):
        given = {
            name: value
            for name in ("n", "flag", "where", "other")
            if (value := chance.choice(VALUES)) is not ...
        }
        context = call_context(
            "s", None, chance.choice((None, "ana", "bob")), profile=chance.choice(("", "team"))
        )
        decision = remembering.decision(echo, given, context)
        fresh = remembering._plan(echo).decide(remembering._facts(echo, context, given))
        assert (decision.verdict, decision.reason) == (fresh.verdict, fresh.reason), given
        seen.add(decision.verdict)
    assert seen == {"allow", "ask", "deny"}
    assert len(remembering._decisions) > 100  # it did remember some


@pytest.mark.parametrize(
    "when", ["now.getHours() >= 0 && arguments.n == 1", "size(arguments) > 3", 'arguments[principal] == "x"']
)
def test_decisions_by_time_or_by_all_arguments_are_not_remembered(when: str) -> None:
    policy = enforcer([{"when": when, "then": "deny"}])
    policy.decision(tool(), {"n": 1}, call_context("s", None, "ana"))
    assert not policy._decisions


def test_the_remembered_decisions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.policy.enforce._MOST_DECISIONS", 10)
    policy, context, echo = enforcer(), call_context("s", None, "bob"), tool()
    for number in range(100):
        verdict = policy.decision(echo, {"n": number}, context).verdict
        assert verdict == ("deny" if number == 1 else "allow")
        assert len(policy._decisions) <= 10
