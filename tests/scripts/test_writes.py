"""Writes of scripts: one question for all of them, exactly what was approved, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

import mooring
from mooring import ApprovalAsked, ApprovalRequest
from mooring.errors import PolicyDenied
from mooring.host import runtime_of
from mooring.scripts.tools import ScriptTools
from mooring.testing import FakeServer
from tests.scripts.shop import ID, made, shop_host

pytestmark = pytest.mark.anyio


class Person:
    """Answers questions and remembers them."""

    def __init__(self, *answers: bool) -> None:
        self.asked: list[ApprovalRequest] = []
        self._answers = list(answers)

    async def __call__(self, request: ApprovalRequest) -> bool:
        self.asked.append(request)
        return self._answers.pop(0) if self._answers else True

    @property
    def plans(self) -> list[Any]:
        return [[(c["tool"], c["count"], c["first"]) for c in one.arguments["calls"]] for one in self.asked]


LOOP = "for i in (await mcp_shop_items())['items']:\n    await mcp_shop_note(id=i, text=f'n{i}')\n'done'"


async def test_a_loop_of_writes_is_one_question_with_the_plan(server: FakeServer) -> None:
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        result = await host.session("s").run_script(LOOP)
    first = [{"id": 1, "text": "n1"}, {"id": 2, "text": "n2"}, {"id": 3, "text": "n3"}]
    assert person.plans == [[("mcp_shop_note", 3, first)]]
    (asked,) = person.asked
    assert asked.name == "script_run"
    assert asked.session == "s"
    assert asked.arguments["done"] == {"mcp_shop_items": 1}
    assert asked.arguments["complete"] is True
    assert asked.arguments["code"] == LOOP
    assert result.structured == "done"
    assert server.calls("note") == first
    assert len(server.calls("items")) == 1, "it goes on from its snapshot, and does not start again"


async def test_a_denied_plan_ends_the_script_with_what_was_done(server: FakeServer) -> None:
    async with shop_host(server, on_approval=Person(False)) as host:
        result = await host.session().run_script(LOOP)
    assert isinstance(result.error, PolicyDenied)
    assert "the plan was not approved" in result.text
    assert "Calls so far: mcp_shop_items (1 ok)." in result.text
    assert server.calls("note") == []


async def test_without_anyone_to_ask_nothing_is_written(server: FakeServer) -> None:
    async with shop_host(server) as host:
        result = await host.session().run_script(LOOP)
    assert isinstance(result.error, PolicyDenied)
    assert server.calls("note") == []


async def test_an_approver_that_raises_denies(server: FakeServer) -> None:
    def broken(request: ApprovalRequest) -> bool:
        raise ValueError("no")

    async with shop_host(server, on_approval=broken) as host:
        result = await host.session().run_script(LOOP)
    assert isinstance(result.error, PolicyDenied)
    assert server.calls("note") == []


async def test_results_of_writes_can_be_used_in_later_writes_of_the_same_plan(server: FakeServer) -> None:
    person = Person()
    code = (
        "for name in ['a', 'b']:\n"
        "    thing = await mcp_shop_make(name=name)\n"
        "    await mcp_shop_label(id=thing['id'], label=f\"for {thing['name']}\")\n"
    )
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert len(person.asked) == 1
    labels = person.plans[0][1]
    assert labels[2][0] == {"id": "⟦result of write 1.id⟧", "label": "for ⟦result of write 1.name⟧"}
    assert server.calls("label") == [{"id": 101, "label": "for a"}, {"id": 102, "label": "for b"}]


async def test_a_script_that_needs_a_result_asks_again(server: FakeServer) -> None:
    person = Person()
    code = (
        "text = await mcp_shop_note(id=1)\n"
        "parts = json.loads('[\"' + text + '\"]') if text == 'noted' else 1 / 0\n"
        "await mcp_shop_note(id=2, text=parts[0])\n"
    )
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(f"import json\n{code}")
    assert not result.is_error, result.text
    assert [one.arguments["complete"] for one in person.asked] == [False, True]
    assert server.calls("note") == [{"id": 1}, {"id": 2, "text": "noted"}]


async def test_a_write_that_is_not_in_the_approved_plan_is_refused(server: FakeServer) -> None:
    """The dry run sees another text than the real run, and plans another write."""
    code = (
        "text = await mcp_shop_note(id=1)\n"
        "await mcp_shop_note(id=666 if text == 'noted' else 2)\n"
        "await mcp_shop_note(id=3)\n"
    )
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert [call["id"] for call in person.plans[0][0][2]] == [1, 2, 3]
    assert isinstance(result.error, PolicyDenied)
    assert "is not in the plan that was approved" in result.text
    assert "666" in result.text
    assert server.calls("note") == [{"id": 1}]


RECOGNISES = {
    "a text": "real = (await mcp_shop_note(id=1)) == 'noted'",
    "a number": "real = (await mcp_shop_make(name='x'))['id'] in range(100, 10**6)",
    "an exception": (
        "try:\n    {}[(await mcp_shop_note(id=1))[0]]\nexcept KeyError as e:\n    real = 'n' in str(e)"
    ),
}


@pytest.mark.parametrize("how", RECOGNISES)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "gathered"])
async def test_a_script_that_recognises_a_stand_in_cannot_leave_out_a_write_and_make_a_later_one(
    server: FakeServer, how: str, together: bool
) -> None:
    """The plan pays back what it takes; without planning, the script would keep it."""
    rest = (
        "calls = ([] if real else [mcp_shop_note(id=2)]) + [mcp_shop_note(id=3)]\n"
        "await asyncio.gather(*calls)"
        if together
        else "if not real:\n    await mcp_shop_note(id=2)\nawait mcp_shop_note(id=3)"
    )
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(f"import asyncio\n{RECOGNISES[how]}\n{rest}")
    assert len(person.asked) == 1
    assert sum(count for _, count, _ in person.plans[0]) == 3
    assert isinstance(result.error, PolicyDenied)
    assert "leaves out 'mcp_shop_note' with {\"id\":2}" in result.text
    assert {"id": 3} not in server.calls("note")


async def test_a_script_may_end_before_the_end_of_its_plan_and_its_result_says_so(server: FakeServer) -> None:
    code = "real = (await mcp_shop_note(id=1)) == 'noted'\nif not real:\n    await mcp_shop_note(id=2)\n'end'"
    async with shop_host(server, on_approval=Person()) as host:
        result = await host.session().run_script(code)
    assert result.structured == "end"
    assert "Approved, but not made by the script: mcp_shop_note (1)." in result.text
    assert server.calls("note") == [{"id": 1}]


async def test_writes_that_come_in_another_order_are_sent_in_the_order_of_the_plan(
    server: FakeServer,
) -> None:
    """The first read is slow when it counts, so that the second task comes to its write first."""
    code = (
        "import asyncio\n"
        "async def one(i):\n"
        "    found = await mcp_shop_slow(id=i)\n"
        "    return await mcp_shop_note(id=i)\n"
        "await mcp_shop_note(id=0)\n"
        "await asyncio.gather(one(1), one(2))\n"
    )
    second_wrote = asyncio.Event()
    read = {"name": "slow", "inputSchema": ID, "annotations": {"readOnlyHint": True}}
    server.define(read, "read")
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        session = host.session()
        reads: list[int] = []

        async def delayed(name: str, arguments: Any = None, **more: Any) -> Any:
            if name == "mcp_shop_slow":
                reads.append(arguments["id"])
                if len(reads) > 2 and arguments["id"] == 1:
                    await second_wrote.wait()
                elif len(reads) > 2:
                    asyncio.get_running_loop().call_later(0.2, second_wrote.set)
            return await session.call(name, arguments, **more)

        class Slow:
            id, catalog = session.id, session.catalog
            agent_id, principal = session.agent_id, session.principal
            call = staticmethod(delayed)

        result = await ScriptTools(True).call(
            Slow(),  # type: ignore[arg-type]
            session._runtime,  # pyright: ignore[reportPrivateUsage]
            "script_run",
            {"code": code},
            30,
            None,
            0,
        )
    assert not result.is_error, result.text
    assert reads == [1, 2, 1, 2]
    assert [one["id"] for one in server.calls("note")] == [one["id"] for one in person.plans[0][0][2]]


async def test_reads_for_a_plan_are_in_the_calls_the_error_and_the_limit(server: FakeServer) -> None:
    code = (
        "await mcp_shop_note(id=1)\n[await mcp_shop_get(id=i) for i in range(3)]\nawait mcp_shop_note(id=2)"
    )
    async with shop_host(server, on_approval=Person()) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    calls = result.meta["mooring/script"]["calls"]
    assert [call["tool"] for call in calls if call.get("planning")] == ["mcp_shop_get"] * 3
    assert len(calls) == 8 == len(server.calls("get")) + len(server.calls("note"))
    async with shop_host(server, on_approval=Person(False)) as host:
        denied = await host.session().run_script(code)
    assert "For its plan: mcp_shop_get (3 ok)." in denied.text
    before = len(server.calls("note"))
    person = Person()
    async with shop_host(server, scripts={"calls": 7}, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert "more than 7 calls (`scripts.calls`), including the reads for the plan" in result.text
    assert (person.asked, len(server.calls("note"))) == ([], before)
    async with shop_host(server, scripts={"calls": 8}, on_approval=Person()) as host:
        assert not (await host.session().run_script(code)).is_error


async def test_more_writes_than_were_planned_are_refused(server: FakeServer) -> None:
    code = (
        "text = await mcp_shop_note(id=1)\n"
        "for i in range(5 if text == 'noted' else 2):\n    await mcp_shop_note(id=2)\n"
    )
    async with shop_host(server, on_approval=Person()) as host:
        result = await host.session().run_script(code)
    assert result.is_error
    assert server.calls("note") == [{"id": 1}, {"id": 2}, {"id": 2}]


async def test_a_plan_above_the_limit_of_calls_is_not_even_asked_for(server: FakeServer) -> None:
    person = Person()
    async with shop_host(server, scripts={"calls": 20}, on_approval=person) as host:
        result = await host.session().run_script("for i in range(1000):\n    await mcp_shop_note(id=i)")
    assert "it would make more than 20 calls" in result.text
    assert person.asked == []
    assert server.calls("note") == []


async def test_the_clock_and_random_numbers_are_the_same_in_the_plan_and_in_the_run(
    server: FakeServer,
) -> None:
    code = (
        "import random, datetime\n"
        "await mcp_shop_note(id=random.randint(0, 10**6), text=datetime.datetime.now().isoformat())\n"
        "await mcp_shop_note(id=random.randint(0, 10**6), text=datetime.datetime.now().isoformat())\n"
    )
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert server.calls("note") == person.plans[0][0][2]


async def test_gathered_writes_are_one_plan_and_run_after_reads_of_the_same_gather(
    server: FakeServer,
) -> None:
    code = (
        "import asyncio\n"
        "r = await asyncio.gather(mcp_shop_get(id=7), mcp_shop_note(id=1), mcp_shop_note(id=2),\n"
        "    mcp_shop_get(id=8))\n"
        "[r[0]['id'], r[1], r[2], r[3]['id']]"
    )
    person = Person()
    async with shop_host(server, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert result.structured == [7, "noted", "noted", 8]
    assert person.plans == [[("mcp_shop_note", 2, [{"id": 1}, {"id": 2}])]]
    assert sorted(call["id"] for call in server.calls("note")) == [1, 2]


async def test_a_tool_that_needs_approval_by_policy_is_asked_for_once_in_the_plan(server: FakeServer) -> None:
    person = Person()
    policy = mooring.Policy(ask=("shop/note",))
    async with shop_host(server, on_approval=person, config={"policy": policy}) as host:
        result = await host.session().run_script(LOOP)
    assert result.structured == "done", result.text
    assert len(person.asked) == 1
    assert "`ask: shop/note` in the host's policy" in person.asked[0].reason
    assert len(server.calls("note")) == 3


async def test_a_tool_that_an_allow_rule_names_needs_no_plan(server: FakeServer) -> None:
    policy = mooring.Policy(allow=("shop/note",))
    async with shop_host(server, config={"policy": policy}) as host:
        result = await host.session().run_script(LOOP)
    assert result.structured == "done", result.text


async def test_hints_of_a_server_that_is_not_trusted_count_for_nothing(server: FakeServer) -> None:
    person = Person(False)
    async with shop_host(server, more={"trust_hints": False}, on_approval=person) as host:
        result = await host.session().run_script("await mcp_shop_get(id=1)")
    assert isinstance(result.error, PolicyDenied)
    assert len(person.asked) == 1
    assert server.calls("get") == []


async def test_a_worker_that_is_killed_during_the_question_does_not_matter(server: FakeServer) -> None:
    async with shop_host(server) as outer:
        workers = runtime_of(outer).workers

        async def kill_and_approve(request: ApprovalRequest) -> bool:
            for worker in list(workers._all):
                os.killpg(worker.pid, signal.SIGKILL)
                await worker.gone
            return True

        runtime_of(outer).approve = lambda request, timeout: kill_and_approve(request)  # type: ignore[method-assign]
        result = await outer.session().run_script(LOOP)
    assert result.structured == "done", result.text
    assert len(server.calls("note")) == 3
    assert len(server.calls("items")) == 1


async def test_time_for_the_answer_is_not_time_of_the_script(server: FakeServer) -> None:
    async def slowly(request: ApprovalRequest) -> bool:
        await asyncio.sleep(3.5)
        return True

    async with shop_host(server, on_approval=slowly) as host:
        result = await host.session().run_script("await mcp_shop_note(id=1)", timeout=3.0)
    assert result.structured == "noted", result.text


async def test_cancelling_during_the_question_writes_nothing(server: FakeServer) -> None:
    async def forever(request: ApprovalRequest) -> bool:
        await asyncio.Event().wait()
        return True

    async with shop_host(server, on_approval=forever) as host:
        events = host.events(ApprovalAsked)
        task = asyncio.ensure_future(host.session().run_script(LOOP))
        with anyio.fail_after(30):
            await anext(events)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert server.calls("note") == []


async def test_the_audit_log_records_the_answer(server: FakeServer, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    policy = mooring.Policy(ask=("shop/note",))
    config = {"audit": {"path": str(audit)}, "policy": policy}
    async with shop_host(server, on_approval=Person(), config=config) as host:
        await host.session().run_script("await mcp_shop_note(id=1)")
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["name"], line["approval"]) for line in lines] == [
        ("mcp_shop_note", "given"),
        ("script_run", "given"),
    ]


async def test_two_scripts_do_not_share_an_approval(server: FakeServer) -> None:
    person = Person(True, False)
    async with shop_host(server, on_approval=person) as host:
        first = await host.session().run_script("await mcp_shop_note(id=1)")
        second = await host.session().run_script("await mcp_shop_note(id=1)")
    assert (first.is_error, second.is_error) == (False, True)
    assert made(second) == []
    assert server.calls("note") == [{"id": 1}]
