"""Calls inside scripts have the same transforms, rules and guards as other calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mooring import ApprovalRequest, Policy, Result
from mooring.config.shaping import Rule
from mooring.core.types import ToolCall
from mooring.core.value import replace
from mooring.errors import GuardDenied
from mooring.policy.guards import Guard
from mooring.testing import FakeServer
from tests.scripts.shop import made, shop_host

pytestmark = pytest.mark.anyio

FIXED = {"note": {"name": "remember", "arguments": {"text": {"value": "fixed"}}}}


class Numbered(Guard):
    """Changes the arguments of calls with the id 1, denies those with 13, and hides results."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []

    async def before(self, call: ToolCall) -> Mapping[str, Any] | None:
        self.seen.append(call.arguments)
        if call.arguments.get("id") == 13:
            raise GuardDenied("13 is not used")
        return {**call.arguments, "id": 2} if call.arguments.get("id") == 1 else None

    async def after(self, call: ToolCall, result: Result) -> Result | None:
        return (
            replace(result, structured={**result.structured, "name": "hidden"}) if result.structured else None
        )


async def test_a_script_calls_a_tool_under_its_transform_and_is_asked_for_it_once(server: FakeServer) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    more = {"transforms": FIXED, "policy": Policy(ask=["note"])}
    async with shop_host(server, more=more, on_approval=approve, guards=[Numbered()]) as host:
        result = await host.session().run_script("await mcp_shop_remember(id=1)\n'done'")
    assert result.structured == "done", result.text
    assert server.calls("note") == [{"id": 2, "text": "fixed"}], "as the transform and the guard made them"
    assert [one.name for one in asked] == ["script_run"], "the plan is the only question"


async def test_a_guard_sees_denies_and_changes_the_calls_of_a_script(server: FakeServer) -> None:
    guard = Numbered()
    async with shop_host(server, guards=[guard]) as host:
        result = await host.session().run_script("(await mcp_shop_get(id=7))['name']")
        denied = await host.session().run_script("await mcp_shop_get(id=13)")
    assert result.structured == "hidden"
    assert denied.is_error
    assert "13 is not used" in denied.text
    assert made(denied) == [("mcp_shop_get", "failed")]
    assert guard.seen == [{"id": 7}, {"id": 13}]
    assert server.calls("get") == [{"id": 7}]


async def test_a_rule_over_arguments_denies_one_call_of_a_script(server: FakeServer) -> None:
    rule = Rule(when='tool == "get" && arguments.id > 5', then="deny", reason="only small ones")
    code = "a = await mcp_shop_get(id=5)\nb = await mcp_shop_get(id=6)\nb"
    async with shop_host(server, config={"policy": Policy(rules=[rule])}) as host:
        result = await host.session().run_script(code)
    assert result.is_error
    assert "only small ones" in result.text
    assert server.calls("get") == [{"id": 5}]


async def test_a_transform_does_not_make_a_read_of_a_write(server: FakeServer) -> None:
    more = {"transforms": {"note": {"annotations": {"readOnlyHint": True}}}}
    async with shop_host(server, more=more) as host:
        result = await host.session().run_script("await mcp_shop_note(id=1)")
    assert result.is_error
    assert "approved" in result.text
    assert server.calls("note") == []
