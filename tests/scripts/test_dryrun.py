"""Plans show what is then made: what depends on a result is not planned, and not sent to a server before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.errors import PolicyDenied
from mooring.testing import FakeServer
from tests.scripts.shop import shop_host, structured
from tests.scripts.test_writes import Person

pytestmark = pytest.mark.anyio

RESULT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "next": {"type": "integer"},
        "name": {"type": "string"},
        "ok": {"type": "boolean"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "next", "name", "ok", "price", "tags"],
}
ANYTHING = {"type": "object", "properties": {"v": {}}}


@pytest.fixture
async def box() -> AsyncIterator[FakeServer]:
    """`mk` and `put` write, `find` reads."""
    server = FakeServer("box")

    def mk(given: Any) -> dict[str, Any]:
        number = len(server.calls("mk"))
        value = {"id": 40 + number, "next": 90, "name": f"nm{number}", "ok": False, "price": 2.555}
        return structured({**value, "tags": ["a", "b", "c"], "more": 1})

    server.define({"name": "mk", "inputSchema": ANYTHING, "outputSchema": RESULT}, mk)
    server.define({"name": "put", "inputSchema": ANYTHING}, "put")
    find = {"name": "find", "inputSchema": ANYTHING, "annotations": {"readOnlyHint": True}}
    server.define(find, lambda given: structured({"found": given.get("v")}))
    async with server as running:
        yield running


DEPENDS = {
    "a number in a text": "f\"see #{a['id']}\"",
    "str": "str(a['id'])",
    "twice a number": "a['id'] * 2",
    "the next number": "a['id'] + 1",
    "half": "a['id'] // 2",
    "negative": "-a['id']",
    "hex": "'%x' % a['id']",
    "two decimals": "f\"{a['price']:.2f}\"",
    "rounded": "round(a['price'], 2)",
    "whole part": "int(a['price'])",
    "as float": "float(a['id'])",
    "dumped": "json.dumps(a)",
    "as text": "str(a)",
    "whole": "a",
    "upper": "a['name'].upper()",
    "cut": "a['name'][:3]",
    "first character": "a['name'][0]",
    "last character": "a['name'][-1]",
    "padded": "f\"{a['name']:>40}\"",
    "length": "len(a['name'])",
    "a truth value": "a['ok']",
    "not": "not a['ok']",
    "a list": "a['tags']",
    "length of a list": "len(a['tags'])",
    "an element": "a['tags'][0]",
    "a key": "{a['name']: 1}",
    "keys": "sorted(a)",
    "compared": "1 if a['id'] > 1000 else 2",
    "the last digit": "a['id'] % 10",
}


@pytest.mark.parametrize("what", DEPENDS)
async def test_a_write_that_depends_on_a_result_is_shown_with_its_real_arguments(
    box: FakeServer, what: str
) -> None:
    person = Person()
    code = (
        f"import json\na = await mcp_box_mk(v=1)\nawait mcp_box_put(v={DEPENDS[what]})\n"
        "await mcp_box_put(v=0)"
    )
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert [one.arguments["complete"] for one in person.asked] == [False, True]
    assert person.plans[0] == [("mcp_box_mk", 1, [{"v": 1}])]
    assert person.plans[1] == [("mcp_box_put", 2, box.calls("put"))]
    assert len(box.calls("mk")) == 1


@pytest.mark.parametrize("what", DEPENDS)
async def test_a_read_that_depends_on_a_result_is_sent_with_the_real_result_only(
    box: FakeServer, what: str
) -> None:
    code = (
        f"import json\na = await mcp_box_mk(v=1)\nr = await mcp_box_find(v={DEPENDS[what]})\n"
        "await mcp_box_put(v=r['found'])"
    )
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    sent = box.calls("find")
    assert len(sent) == 1, "only the script sends it"
    assert "8000000" not in json.dumps(sent)
    assert person.plans[1] == [("mcp_box_put", 1, sent)]


async def test_a_stand_in_itself_is_not_sent_in_a_read(box: FakeServer) -> None:
    code = "a = await mcp_box_mk(v=1)\nawait mcp_box_find(v=a['id'])\nawait mcp_box_find(v=a['name'])"
    async with shop_host(box, on_approval=Person()) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert box.calls("find") == [{"v": 41}, {"v": "nm1"}]


async def test_results_in_a_loop_over_a_result_are_asked_for_with_all_elements(box: FakeServer) -> None:
    code = "a = await mcp_box_mk(v=1)\nfor t in a['tags']:\n    await mcp_box_put(v=t)"
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert person.plans[1] == [("mcp_box_put", 3, [{"v": "a"}, {"v": "b"}, {"v": "c"}])]


async def test_a_write_that_only_the_other_truth_value_leads_to_is_asked_for(box: FakeServer) -> None:
    """The first pass sees true and ends; so its plan alone would be complete."""
    code = "a = await mcp_box_mk(v=1)\nif not a['ok']:\n    await mcp_box_put(v=2)\n'end'"
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert result.structured == "end", result.text
    assert [one.arguments["complete"] for one in person.asked] == [False, True]
    assert box.calls("put") == [{"v": 2}]


async def test_plain_results_in_later_writes_stay_one_question(box: FakeServer) -> None:
    code = (
        "for i in range(20):\n    a = await mcp_box_mk(v=i)\n"
        "    await mcp_box_put(v={'id': a['id'], 'n': [a['next']], 't': f\"<{a['name']}>\", 'p': a['price']})"
    )
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert [one.arguments["complete"] for one in person.asked] == [True]
    first = person.plans[0][1][2][0]["v"]
    assert first["n"] == ["⟦result of write 1.next⟧"]
    assert box.calls("put")[19]["v"] == {"id": 60, "n": [90], "t": "<nm20>", "p": 2.555}


async def test_reads_random_numbers_and_output_between_writes_stay_one_question(box: FakeServer) -> None:
    """Both passes stop and go on at each of these reads; random numbers must not start again."""
    code = (
        "import random\nseen = []\nfor i in range(30):\n    seen.append(random.randint(0, 10**6))\n"
        "    r = await mcp_box_find(v=seen[-1])\n    print(i)\n"
        "    await mcp_box_put(v=r['found'] + random.randint(0, 10**6))\nlen(set(seen))"
    )
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert len(person.asked) == 1
    assert person.plans[0][0][1] == 30 == len(box.calls("put"))
    assert len(box.calls("find")) == 60 - 1, "the first read is made before the plan"
    assert result.structured > 25


async def test_gathered_tasks_that_read_and_write_stay_one_question(box: FakeServer) -> None:
    code = (
        "import asyncio\nasync def one(i):\n    a = await mcp_box_mk(v=i)\n    r = await mcp_box_find(v=i)\n"
        "    await mcp_box_put(v=[a['id'], r['found']])\nawait asyncio.gather(*[one(i) for i in range(4)])"
    )
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert len(person.asked) == 1
    assert not result.is_error, result.text
    assert sorted(call["v"][1] for call in box.calls("put")) == [0, 1, 2, 3]


async def test_a_script_that_asks_too_often_is_stopped_with_the_limit(box: FakeServer) -> None:
    code = "x = 1\nfor i in range(7):\n    a = await mcp_box_mk(v=x)\n    x = a['id'] + 1"
    person = Person()
    async with shop_host(box, on_approval=person) as host:
        result = await host.session().run_script(code)
    assert len(person.asked) == 5 == len(box.calls("mk"))
    assert "may ask for 5 plans only" in result.text


RULE = {"when": 'tool == "put" && arguments.v > 2', "then": "deny", "reason": "three is too much"}


async def test_a_plan_with_a_call_that_a_rule_denies_is_not_asked_for(box: FakeServer) -> None:
    person = Person()
    config = {"policy": {"rules": [RULE]}}
    async with shop_host(box, on_approval=person, config=config) as host:
        result = await host.session().run_script("for i in range(5):\n    await mcp_box_put(v=i)")
        assert isinstance(result.error, PolicyDenied)
        assert "three is too much" in result.text
        assert "'mcp_box_put' with {\"v\":3}" in result.text
        assert (person.asked, box.calls("put")) == ([], [])
        result = await host.session().run_script("for i in range(3):\n    await mcp_box_put(v=i)")
    assert not result.is_error, result.text


async def test_a_rule_about_a_result_is_decided_when_the_result_is_known(box: FakeServer) -> None:
    """The stand-in is above the limit of the rule, the result is not."""
    rule = {"when": 'tool == "put" && arguments.v > 1000', "then": "deny", "reason": "too large"}
    code = "a = await mcp_box_mk(v=1)\nawait mcp_box_put(v=a['id'])"
    async with shop_host(box, on_approval=Person(), config={"policy": {"rules": [rule]}}) as host:
        result = await host.session().run_script(code)
    assert not result.is_error, result.text
    assert box.calls("put") == [{"v": 41}]
