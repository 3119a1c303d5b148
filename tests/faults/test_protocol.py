"""FA30-FA44: servers that violate the protocol."""

from __future__ import annotations

import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from mooring import Host
from tests.lab.stdio import cue, lab_server, methods, starts

pytestmark = pytest.mark.anyio


def _status(host: Host) -> Any:
    return host.status()[0]


async def test_FA30_versions_that_have_nothing_in_common_are_listed_and_not_tried_again(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(era="legacy", protocol="1999-01-01", log=str(log))) as host:
        assert (_status(host).state, _status(host).retry_in) == ("failed", None)
        assert "1999-01-01" in _status(host).error
        assert "2026-07-28" in _status(host).error
        assert (await host.call("mcp_lab_echo")).is_error
        assert len(starts(log)) == 1


async def test_FA31_all_but_the_malformed_tools_are_kept_and_those_are_named(hosting: Any) -> None:
    bad: list[Any] = [
        {"name": "no_schema", "inputSchema": "text"},
        {"name": 7, "inputSchema": {}},
        {"inputSchema": {}},
        "not even an object",
        None,
    ]
    tools = [f"good{n}" for n in range(20)]
    async with hosting(lab_server(tools=tools, definitions=bad)) as host:
        assert len(host.catalog.tools) == 20
        warnings = "\n".join(_status(host).warnings)
        assert len(_status(host).warnings) == len(bad)
        assert "'no_schema'" in warnings


async def test_FA32_of_two_tools_with_one_name_the_first_is_taken_with_a_warning(hosting: Any) -> None:
    twice = [
        {"name": "same", "description": description, "inputSchema": {"type": "object"}}
        for description in ("first", "second")
    ]
    async with hosting(lab_server(tools=["echo"], definitions=twice)) as host:
        assert sorted(host.catalog.tools) == ["mcp_lab_echo", "mcp_lab_same"]
        assert host.catalog.tools["mcp_lab_same"].description == "first"
        assert any("same" in str(warning) for warning in host.catalog.warnings)


async def test_FA33_tools_of_one_name_on_several_servers_are_all_reachable(hosting: Any) -> None:
    servers = [lab_server(f"s{n}", tools=["search", "pid"]) for n in range(4)]
    async with hosting(*servers) as host:
        assert len(host.catalog.tools) == 8
        pids = {(await host.call(f"mcp_s{n}_pid")).text for n in range(4)}
        assert len(pids) == 4


async def test_FA34_a_thousand_random_names_are_all_there_apart_and_callable(hosting: Any) -> None:
    chance = random.Random(34)
    alphabet = "aZ09_-. /:äß€漢字🙂\u202e\u0301\t"
    names = ["".join(chance.choices(alphabet, k=chance.randint(1, 90))) for _ in range(1000)]
    offers = [sorted(set(names[n::4])) for n in range(4)]
    async with hosting(*(lab_server(f"s{n}", tools=offer) for n, offer in enumerate(offers))) as host:
        tools = host.catalog.tools
        found = {(tool.server, tool.remote_name) for tool in tools.values()}
        assert found == {(f"s{n}", name) for n, offer in enumerate(offers) for name in offer}
        assert len(tools) == len(found)
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in tools)
        for name in chance.sample(sorted(tools), 20):
            assert (await host.call(name)).text == f"called {tools[name].remote_name}"


async def test_FA35_ten_thousand_tools_are_merged_within_bounded_memory(hosting: Any) -> None:
    tracemalloc.start()
    try:
        async with hosting(lab_server(tools=[f"tool_{n}" for n in range(10_000)])) as host:
            assert len(host.catalog.tools) == 10_000
            assert (await host.call("mcp_lab_tool_9999")).text == "called tool_9999"
            assert tracemalloc.get_traced_memory()[0] < 150 * 2**20
    finally:
        tracemalloc.stop()


async def test_FA37_an_empty_cursor_is_a_cursor(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["one", "two", "three"], page_size=2, empty_cursor=True, log=str(log))
    async with hosting(server) as host:
        assert len(host.catalog.tools) == 3
        assert methods(log).count("tools/list") == 2


async def test_FA38_a_listing_that_fails_costs_that_kind_only(hosting: Any) -> None:
    broken = cue(
        b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32603,"message":"no such table"}}\n', then="silence"
    )
    server = lab_server(
        era="legacy",
        capabilities={"tools": {}, "prompts": {}, "resources": {}},
        resources=[{"uri": "lab://a", "name": "a"}],
        cues={"prompts/list": broken},
    )
    async with hosting(server) as host:
        assert "mcp_lab_echo" in host.catalog.tools
        assert len(host.catalog.resources) == 1
        assert any("prompts/list failed: no such table" in warning for warning in _status(host).warnings)


async def test_FA38_a_listing_that_is_promised_and_not_there_is_simply_empty(hosting: Any) -> None:
    unknown = cue(b'{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32601,"message":"?"}}\n', then="silence")
    server = lab_server(
        era="legacy", capabilities={"tools": {}, "prompts": {}}, cues={"prompts/list": unknown}
    )
    async with hosting(server) as host:
        assert "mcp_lab_echo" in host.catalog.tools
        assert _status(host).warnings == ()


async def test_FA41_an_answer_without_a_result_type_is_complete(hosting: Any) -> None:
    async with hosting(lab_server(era="modern", no_result_type=True)) as host:
        assert (await host.call("mcp_lab_echo", {"text": "hi"})).text == "hi"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"content": "text"},
        {"content": [{"type": "text"}, {"type": "text", "text": "kept"}]},
        {"content": [7, {"type": "text", "text": "kept"}]},
        {"content": [{"type": "resource", "resource": {}}, {"type": "text", "text": "kept"}]},
    ],
)
async def test_FA42_an_answer_that_is_not_valid_is_an_error_result_that_keeps_what_can_be_read(
    raw: Any, hosting: Any
) -> None:
    async with hosting(lab_server(tools=["raw", "echo"])) as host:
        result = await host.call("mcp_lab_raw", {"result": raw})
        assert result.is_error
        assert result.error is None
        assert "not valid" in result.text
        assert ("kept" in result.text) == (isinstance(raw.get("content"), list))
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("structured", ["text", 7, [1], {"wrong": True}, None])
async def test_FA42_odd_structured_content_never_costs_the_content(structured: Any, hosting: Any) -> None:
    raw = {"content": [{"type": "text", "text": "kept"}], "structuredContent": structured}
    async with hosting(lab_server(tools=["raw"])) as host:
        result = await host.call("mcp_lab_raw", {"result": raw})
        assert (result.text, result.structured) == ("kept", structured)


async def test_FA44_a_server_that_wants_more_input_for_ever_is_given_up(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    again = {"resultType": "input_required", "inputRequests": {}, "requestState": "x"}
    async with hosting(lab_server(era="modern", tools=["raw"], log=str(log))) as host:
        result = await host.call("mcp_lab_raw", {"result": again}, timeout=10)
        assert result.is_error
        assert methods(log).count("tools/call") <= 10


@pytest.mark.parametrize(
    "answer", [b'{"tools": {}}', b"{}", b'{"tools": null}', b"7", b"null", b'"x"', b"[]"]
)
async def test_a_list_that_is_no_list_is_a_warning_or_a_failure_but_never_a_crash(
    answer: bytes, hosting: Any
) -> None:
    odd = cue(b'{"jsonrpc":"2.0","id":@ID@,"result":' + answer + b"}\n", then="silence")
    async with hosting(lab_server(cues={"tools/list": odd}), lab_server("fine")) as host:
        status = next(status for status in host.status() if status.name == "lab")
        assert status.warnings or status.error
        assert "unexpected" not in (status.error or "")
        assert (await host.call("mcp_fine_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize(
    "answer",
    [
        b'{"supportedVersions": 7, "capabilities": []}',
        b'{"supportedVersions": ["2026-07-28"], "capabilities": {"tools": 7}, "instructions": []}',
        b'{"supportedVersions": [null, {}, "2026-07-28"], "capabilities": null, "_meta": 3}',
        b'{"supportedVersions": {"a": 1}}',
        b"[]",
        b"7",
    ],
)
async def test_an_odd_answer_to_the_probe_never_crashes_the_owner(answer: bytes, hosting: Any) -> None:
    odd = cue(b'{"jsonrpc":"2.0","id":@ID@,"result":' + answer + b"}\n", then="silence")
    async with hosting(lab_server(cues={"server/discover": odd})) as host:
        assert "unexpected" not in (_status(host).error or "")
        assert _status(host).state == "connected"
