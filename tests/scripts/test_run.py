"""Scripts through a session: values, checks, limits, and calls that are ordinary calls."""

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
from mooring import ScriptCalled, ScriptFinished, ScriptStarted
from mooring.errors import CallTimeout, ConfigError, PolicyDenied
from mooring.host import runtime_of
from mooring.testing import FakeServer, hang, slow
from tests.scripts.shop import made, shop, shop_host

pytestmark = pytest.mark.anyio


async def test_the_last_expression_is_the_value_and_prints_are_text(server: FakeServer) -> None:
    async with shop_host(server) as host:
        result = await host.session().run_script(
            "rows = [await mcp_shop_get(id=i) for i in range(3)]\n"
            "print('got', len(rows))\n"
            "sum(row['price'] for row in rows)"
        )
    assert (result.is_error, result.structured, result.text) == (False, 4.5, "got 3\n4.5")
    assert made(result) == [("mcp_shop_get", "ok")] * 3
    assert [call["id"] for call in server.calls("get")] == [0, 1, 2]


async def test_gathered_calls_run_at_the_same_time(server: FakeServer) -> None:
    reached = asyncio.Event()
    running = 0

    async def meet() -> str:
        """Wait for the other call."""
        nonlocal running
        running += 1
        if running == 2:
            reached.set()
        await asyncio.wait_for(reached.wait(), 20)
        return "met"

    async with shop_host(server, local=[meet], config={"policy": mooring.Policy(allow=("meet",))}) as host:
        result = await host.session().run_script("import asyncio\nawait asyncio.gather(meet(), meet())")
    assert result.structured == ["met", "met"], result.text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("await mcp_shop_gett(id=1)", "line 1: `mcp_shop_gett` is not defined; did you mean `mcp_shop_get`?"),
        ("x = 1\nawait mcp_shop_get(idd=1)", "line 2: Argument `idd` does not match"),
        ("await mcp_shop_get(id='a')", "line 1: Argument to function `mcp_shop_get` is incorrect"),
        ("r = await mcp_shop_get(id=1)\nr['prize']", 'line 2: Unknown key "prize"'),
        ("r = mcp_shop_get(id=1)\nr['price']", "line 2: the call is not awaited"),
        ("await mcp_shop_get(id=1)\nimport statistics", "line 2: module `statistics` is not available"),
        ("await mcp_shop_get(id=1)\nreturn 1", "line 2: `return` outside a function"),
        ("await mcp_shop_get(id=1", "line 1: invalid syntax"),
        (
            "await asyncio.gather(mcp_shop_get(id=1))",
            "line 1: `asyncio` is not imported; add `import asyncio`",
        ),
        (
            "r = await mcp_shop_get(id=1)\nr.price",
            'line 2: a result is a dict without attributes; write `["price"]`',
        ),
        ("await mcp_shop_app_only(id=1)", "line 1: `mcp_shop_app_only` is not defined"),
    ],
)
async def test_mistakes_are_listed_with_their_lines_and_nothing_runs(
    server: FakeServer, code: str, said: str
) -> None:
    async with shop_host(server) as host:
        result = await host.session().run_script(code)
    assert result.is_error
    assert said in result.text
    assert [request for request in server.requests if request.method == "tools/call"] == []


async def test_programs_that_were_checked_before_leave_no_names_behind(server: FakeServer) -> None:
    async with shop_host(server) as host:
        session = host.session()
        first = await session.run_script("left = (await mcp_shop_get(id=1))['price']\nleft")
        later = await session.run_script("await mcp_shop_get(id=2)\nleft")
        again = await session.run_script("left = (await mcp_shop_get(id=3))['price']\nleft")
    assert (first.structured, again.structured) == (1.5, 4.5)
    assert "line 2: `left` is not defined" in later.text
    assert [call["id"] for call in server.calls("get")] == [1, 3]


@pytest.mark.parametrize("future", ["annotations", "(\n    annotations,\n)"])
async def test_an_import_of_the_future_is_accepted_and_lines_are_right(
    server: FakeServer, future: str
) -> None:
    start = f"from __future__ import {future}\n"
    async with shop_host(server) as host:
        good = await host.session().run_script(f"{start}(await mcp_shop_get(id=1))['id']")
        bad = await host.session().run_script(f"{start}(await mcp_shop_get(id=1))['ids']")
    assert good.structured == 1, good.text
    assert f"line {start.count(chr(10)) + 1}: Unknown key" in bad.text


async def test_the_types_are_checked_again_if_their_checker_has_ended(server: FakeServer) -> None:
    async with shop_host(server) as host:
        await host.session().run_script("(await mcp_shop_get(id=1))['id']")
        (worker,) = runtime_of(host).workers._all
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        result = await host.session().run_script("(await mcp_shop_get(id=2))['id']")
    assert len(children) == 2
    assert result.structured == 2, result.text


async def test_a_failed_call_raises_and_can_be_handled(server: FakeServer) -> None:
    code = "try:\n    await mcp_shop_fails(id=1)\nexcept RuntimeError as e:\n    said = str(e)\nsaid"
    async with shop_host(server) as host:
        result = await host.session().run_script(code)
        unhandled = await host.session().run_script("await mcp_shop_fails(id=1)")
    assert result.structured == "mcp_shop_fails failed: out of stock"
    assert unhandled.is_error
    assert "RuntimeError: mcp_shop_fails failed: out of stock" in unhandled.text
    assert "Calls so far: mcp_shop_fails (1 failed)." in unhandled.text


async def test_an_unknown_outcome_stops_the_script_and_names_the_call(server: FakeServer) -> None:
    server.fail("get", hang)
    code = "try:\n    await mcp_shop_get(id=1)\nexcept Exception:\n    pass\nawait mcp_shop_get(id=2)"
    async with shop_host(server, more={"call_timeout": 0.3}) as host:
        result = await host.session().run_script(code)
    assert result.is_error
    assert "it is not known whether 'mcp_shop_get' took effect" in result.text
    assert len(server.calls("get")) == 1


async def test_the_time_limit_ends_the_script_and_cancels_its_call_at_the_server(server: FakeServer) -> None:
    server.fail("get", hang)
    async with shop_host(server) as host:
        await host.session().run_script("await mcp_shop_items()")  # a worker is running
        result = await host.session().run_script("await mcp_shop_get(id=1)", timeout=3.0)
        assert isinstance(result.error, CallTimeout)
        assert "Calls so far: mcp_shop_get (1 cancelled, outcome unknown)." in result.text
        again = await host.session().run_script("1 + 1")
    assert again.structured == 2


async def test_cancelling_a_script_cancels_its_calls_and_frees_its_worker(server: FakeServer) -> None:
    server.fail("get", slow(60))
    async with shop_host(server) as host:
        task = asyncio.ensure_future(host.session().run_script("await mcp_shop_get(id=1)"))
        with anyio.fail_after(30):
            async for event in host.events(ScriptCalled):
                assert event.state == "started"
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await host.session().run_script("2")).structured == 2


async def test_a_limit_of_calls_ends_the_script(server: FakeServer) -> None:
    async with shop_host(server, scripts={"calls": 5}) as host:
        result = await host.session().run_script("for i in range(50):\n    await mcp_shop_get(id=i)")
    assert result.is_error
    assert "it made more calls than its limit" in result.text
    assert len(server.calls("get")) == 5


async def test_calls_inside_have_events_with_the_id_of_the_script(server: FakeServer) -> None:
    async with shop_host(server) as host:
        events = host.events(ScriptStarted, ScriptCalled, ScriptFinished)
        reports: list[Any] = []
        result = await host.session("s").run_script(
            "await mcp_shop_get(id=1)\nawait mcp_shop_get(id=2)",
            on_progress=lambda *report: reports.append(report),
        )
        seen = [await anext(events) for _ in range(6)]
    script = result.meta["mooring/script"]["id"]
    assert {event.script for event in seen} == {script}
    states = [(e.number, e.state) for e in seen if isinstance(e, ScriptCalled)]
    assert states == [(1, "started"), (1, "finished"), (2, "started"), (2, "finished")]
    assert isinstance(seen[-1], ScriptFinished)
    assert [report[0] for report in reports] == [1.0, 2.0]


async def test_every_call_inside_has_an_audit_line_with_the_id_of_the_script(
    server: FakeServer, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.jsonl"
    async with shop_host(server, config={"audit": {"path": str(audit)}}) as host:
        result = await host.session().run_script("await mcp_shop_get(id=1)\nawait mcp_shop_get(id=2)")
        await host.call("mcp_shop_get", {"id": 3})
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    script = result.meta["mooring/script"]["id"]
    assert [(line["name"], line.get("script")) for line in lines] == [
        ("mcp_shop_get", script),
        ("mcp_shop_get", script),
        ("script_run", script),
        ("mcp_shop_get", None),
    ]


async def test_a_resource_that_a_script_reads_has_an_audit_line_with_its_id(
    server: FakeServer, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.jsonl"
    server.resource("memo://a", "text")
    async with shop_host(server, config={"audit": {"path": str(audit)}}) as host:
        result = await host.session().run_script("await read_mcp_resource(server='shop', uri='memo://a')")
        await host.read("memo://a", server="shop")
    assert not result.is_error, result.text
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    script = result.meta["mooring/script"]["id"]
    found = [(line["verb"], line["name"], line.get("script")) for line in lines]
    assert found.count(("read", "memo://a", script)) == 1
    assert ("read", "memo://a", None) in found


async def test_a_value_that_is_not_json_is_returned_as_text_and_the_result_says_so(
    server: FakeServer,
) -> None:
    async with shop_host(server) as host:
        session = host.session()
        result = await session.run_script("class A:\n    pass\n[A()]")
        plain = await session.run_script("'[1]'")
    assert isinstance(result.structured, str)
    assert "is not a JSON value, so its text is returned" in result.text
    assert plain.text == "[1]"


async def test_a_tool_that_the_policy_denies_does_not_exist_in_a_script(server: FakeServer) -> None:
    policy = mooring.Policy(deny=("shop/get",))
    async with shop_host(server, config={"policy": policy}) as host:
        result = await host.session().run_script("await mcp_shop_get(id=1)")
    assert "`mcp_shop_get` is not defined" in result.text
    assert server.calls("get") == []


async def test_large_results_reach_the_script_and_not_the_prompt(server: FakeServer) -> None:
    async with shop_host(server, config={"result_budget": 1000}) as host:
        session = host.session("s", scripts=True)
        small = await session.call("script_run", {"code": "len(await mcp_shop_big(id=3_000_000))"})
        large = await session.call("script_run", {"code": "await mcp_shop_big(id=300_000)"})
        rest = await session.call("result_read", {"handle": large.handle, "offset": 299_000})
    assert small.structured == 3_000_000
    assert large.handle is not None
    assert len(large.text) < 10_000
    assert "x" * 900 in rest.text


async def test_scripts_are_off_by_default_and_the_names_are_unknown_tools(server: FakeServer) -> None:
    async with shop_host(server) as host:
        names = [tool.name for tool in host.tools()]
        result = await host.call("script_run", {"code": "1"})
    assert "script_run" not in names
    assert "There is no tool 'script_run'" in result.text


async def test_the_model_gets_stubs_and_runs_code(server: FakeServer) -> None:
    async with shop_host(server, scripts={"enabled": True}) as host:
        assert [tool.name for tool in host.tools()][:2] == ["script_api", "script_run"]
        api = await host.call("script_api", {"tools": ["mcp_shop_get", "mcp_shop_nothing"]})
        found = await host.call("script_api", {"query": "label something"})
        neither = await host.call("script_api", {})
        ran = await host.call("script_run", {"code": "(await mcp_shop_get(id=2))['name']"})
        empty = await host.call("script_run", {"code": ""})
    assert "async def mcp_shop_get(*, id: int) -> mcp_shop_get_Result: ...  # get something" in api.text
    assert "There is no tool 'mcp_shop_nothing'" in api.text
    assert "async def mcp_shop_label(" in found.text
    assert "wait for approval: mcp_shop_label" in found.text
    assert neither.is_error
    assert ran.structured == "item 2"
    assert empty.is_error


async def test_one_tool_can_replace_the_catalog(server: FakeServer) -> None:
    async with shop_host(server) as host:
        session = host.session("only", scripts="only")
        (tool,) = session.tools()
        ran = await session.call("script_run", {"code": "(await mcp_shop_get(id=2))['name']"})
        assert host.session("none", scripts=False).tools() == host.tools()
    assert "async def mcp_shop_get(" in tool.description
    assert "app_only" not in tool.description
    assert ran.structured == "item 2"


async def test_a_script_waits_for_the_servers_that_it_names(server: FakeServer) -> None:
    async with mooring.Host([server.http(trust_hints=True)], lock=False, home=None) as host:
        result = await host.session().run_script("(await mcp_shop_get(id=2))['name']")
    assert result.structured == "item 2", result.text


async def test_without_the_extra_the_error_names_it(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mooring.scripts import workers

    monkeypatch.setattr(workers.importlib.util, "find_spec", lambda name: None)
    workers._setup.cache_clear()
    try:
        async with shop_host(server, scripts={"enabled": True}) as host:
            result = await host.session().run_script("1")
            assert "script_run" not in [tool.name for tool in host.tools()]
    finally:
        workers._setup.cache_clear()
    assert isinstance(result.error, ConfigError)
    assert "pip install 'mooring[scripts]'" in result.text


async def test_a_killed_worker_is_reported_with_what_is_known_and_replaced(server: FakeServer) -> None:
    server.fail("get", slow(60))
    async with shop_host(server) as host:
        task = asyncio.ensure_future(
            host.session().run_script("await mcp_shop_items()\nawait mcp_shop_get(id=1)")
        )
        async for event in host.events(ScriptCalled):
            if event.tool == "get":
                break
        (worker,) = runtime_of(host).workers._all
        os.killpg(worker.pid, signal.SIGKILL)
        with anyio.fail_after(30):
            killed = await task
        again = await host.session().run_script("(await mcp_shop_items())['items']")
    assert killed.is_error
    assert "the worker process ended (signal 9)" in killed.text
    assert "mcp_shop_items (1 ok), mcp_shop_get (1 cancelled, outcome unknown)" in killed.text
    assert again.structured == [1, 2, 3]
    assert len(server.calls("get")) == 1


async def test_secrets_in_the_environment_do_not_reach_the_worker(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter22")
    async with shop_host(server) as host:
        await host.session().run_script("1")
        (worker,) = runtime_of(host).workers._all
        environment = Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert b"hunter22" not in environment


async def test_closing_the_host_ends_its_workers(server: FakeServer) -> None:
    async with shop_host(server) as host:
        await host.session().run_script("1")
        (worker,) = runtime_of(host).workers._all
    with anyio.fail_after(20), pytest.raises(ProcessLookupError):
        while True:  # the interpreter is a child of the worker, and ends a moment later
            os.killpg(worker.pid, 0)
            await anyio.sleep(0.02)


def test_the_sync_face_runs_scripts() -> None:
    with shop() as server, mooring.SyncHost([server.http(trust_hints=True)], lock=False, home=None) as host:
        result = host.session().run_script("(await mcp_shop_get(id=2))['name']")
    assert result.structured == "item 2"


async def test_denied_writes_end_the_script(server: FakeServer) -> None:
    async with shop_host(server, scripts={"writes": "deny"}, on_approval=lambda request: True) as host:
        result = await host.session().run_script("print('a')\nawait mcp_shop_note(id=1)")
    assert isinstance(result.error, PolicyDenied)
    assert "`scripts.writes` is `deny`" in result.text
    assert "Printed before that:\na" in result.text
    assert server.calls("note") == []


async def test_the_time_of_a_script_covers_its_calls(server: FakeServer) -> None:
    server.fail("get", hang)
    async with shop_host(server, scripts={"time": 0.5}) as host:
        result = await host.session().run_script("await mcp_shop_get(id=1)", timeout=60)
    assert isinstance(result.error, CallTimeout)


async def test_sleeping_is_part_of_the_time(server: FakeServer) -> None:
    async with shop_host(server, scripts={"time": 0.5}) as host:
        result = await host.session().run_script("import asyncio\nawait asyncio.sleep(30)\n1")
    assert isinstance(result.error, CallTimeout)


@pytest.mark.parametrize("code", ["import yaml\n1", "from mcp_shop import get\n1", "import foo.bar"])
async def test_a_module_that_does_not_exist_is_reported_with_its_line(server: FakeServer, code: str) -> None:
    async with shop_host(server) as host:
        result = await host.session().run_script(code)
    assert "line 1: module `" in result.text
    assert "these modules exist: asyncio" in result.text


async def test_a_program_that_was_run_before_is_checked_again_when_a_tool_has_changed(
    server: FakeServer,
) -> None:
    code = "(await mcp_shop_get(id=1))['name']"
    other = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    hints = {"readOnlyHint": True}
    async with shop_host(server) as host:
        session = host.session()
        for _ in range(2):
            assert (await session.run_script(code)).structured == "item 1"
        server.define({"name": "get", "inputSchema": other, "annotations": hints}, "changed")
        await host.refresh()
        for _ in range(2):
            refused = await session.run_script(code)
            assert "No argument provided for required parameter `key`" in refused.text
    assert len(server.calls("get")) == 2
