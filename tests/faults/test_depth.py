"""TH25: an entry that is nested too deeply or too large is left out, and blocks no other request."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mooring import ServerConfig
from mooring.transport.message import MAX_DEPTH, TOO_DEEP, decode
from tests.lab.http import HttpLab
from tests.lab.stdio import COMMAND, cue, lab_server

pytestmark = pytest.mark.anyio


def _nested(levels: int) -> str:
    """A JSON schema nested so many levels deep, as text: json cannot write it."""
    return '{"type":"object","properties":{"a":' * levels + '{"type":"string"}' + "}}" * levels


def _listing(schema: str, request_id: str = "@ID@") -> bytes:
    tools = (
        '{"name":"first","inputSchema":{"type":"object"}},'
        f'{{"name":"deep","description":"d","inputSchema":{schema}}},'
        '{"name":"echo","inputSchema":{"type":"object"}}'
    )
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"tools":[{tools}]}}}}\n'.encode()


@pytest.mark.parametrize("levels", [100, 300, 10_000])
@pytest.mark.parametrize("place", ["inputSchema", "outputSchema", "_meta"])
async def test_a_tool_that_is_nested_too_deeply_is_set_aside_and_the_others_are_listed_at_once(
    levels: int, place: str, tmp_path: Path, hosting: Any
) -> None:
    definition = _listing(_nested(levels))
    if place != "inputSchema":
        definition = definition.replace(b'"d","inputSchema"', f'"d","{place}"'.encode())
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"cues": {"tools/list": cue(definition, then="silence")}}))
    server = ServerConfig(name="lab", command=COMMAND[0], args=(*COMMAND[1:], f"@{script}"))
    started = time.monotonic()
    async with hosting(server) as host:
        assert time.monotonic() - started < 20  # list_timeout is 30 s
        assert sorted(host.catalog.tools) == ["mcp_lab_echo", "mcp_lab_first"]
        (warning,) = [text for text in host.status()[0].warnings if "deep" in text]
        assert f"tool 'deep' is left out: it is nested more than {MAX_DEPTH} levels deep" in warning
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


def test_a_deep_tool_is_left_out_of_a_listing_that_is_also_wide() -> None:
    wide = {f"p{number}": {"type": "string", "enum": ["[", "}"]} for number in range(60_000)}
    schemas = _nested(400), json.dumps({"type": "object", "properties": wide})
    tools = ",".join(
        f'{{"name":"t{number}","inputSchema":{schema}}}' for number, schema in enumerate(schemas)
    )
    deep, kept = decode(f'{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}]}}}}'.encode())["result"][
        "tools"
    ]
    assert deep == {"name": "t0", "inputSchema": TOO_DEEP}
    assert kept["inputSchema"]["properties"] == wide


async def test_over_http_too_one_deep_tool_costs_no_other(hosting: Any) -> None:
    from aiohttp import web

    async def listing(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        body = _listing(_nested(300), json.dumps(message["id"]))
        return web.Response(body=body, content_type="application/json")

    async with HttpLab() as lab:
        lab.faults["tools/list"] = listing
        async with hosting(lab.config()) as host:
            assert sorted(host.catalog.tools) == ["mcp_web_echo", "mcp_web_first"]


async def test_a_result_that_is_nested_too_deeply_comes_back_without_that_part(hosting: Any) -> None:
    deep = b'{"content":[{"type":"text","text":"kept"}],"structuredContent":{"a":{"b":' + b'{"c":' * 10_000
    answer = b'{"jsonrpc":"2.0","id":@ID@,"result":' + deep + b"1" + b"}" * 10_004 + b"\n"
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        result = await host.call("mcp_lab_say", cue(answer, then="silence"), timeout=20)
        assert result.blocks[0].text == "kept"
        assert result.structured == {"a": {"b": TOO_DEEP}}


async def test_a_notice_that_is_nested_too_deeply_disturbs_nothing(hosting: Any) -> None:
    notice = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":'
    deep = notice + b"[" * 10_000 + b"]" * 10_000 + b"}}\n"
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        assert (await host.call("mcp_lab_say", cue(deep * 5), timeout=20)).text == "said"
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


def test_brackets_in_texts_are_no_levels() -> None:
    text = "[{" * 500 + '\\"' + "]" * 10
    message = b'{"a":[{"b":{"text":' + json.dumps(text).encode() + b',"deep":' + b"[" * 300 + b"]" * 300
    assert decode(message + b"}}]}") == {"a": [{"b": {"text": text, "deep": TOO_DEEP}}]}


@pytest.mark.parametrize("line", [b"[" * 1_000_000, b'{"a":' * 300_000, b"[" * 300 + b"]" * 299])
def test_depth_without_end_is_given_up(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(line)


def test_a_large_message_is_not_searched_value_by_value_on_the_loop() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"type": "number", "minimum": 0.5} for n in range(10_000)},
    }
    line = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "big", "inputSchema": schema}]}}
    )
    steps = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        decode(line.encode())
    finally:
        sys.setprofile(None)
    assert steps < 10_000  # there are 30,000 values
    assert decode(line.replace("0.5", "-1e999", 1).encode()) == json.loads(line.replace("0.5", "null", 1))


async def test_a_schema_with_tens_of_thousands_of_properties_is_listed_off_the_loop(
    tmp_path: Path, hosting: Any
) -> None:
    properties = {f"property_{n}": {"type": "string", "description": f"The value {n}"} for n in range(30_000)}
    big = {"name": "big", "inputSchema": {"type": "object", "properties": properties}}
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"tools": ["echo"], "definitions": [big]}))
    args = (*COMMAND[1:], f"@{script}")
    env = {"API_TOKEN": "not-to-be-shown", "OTHER_TOKEN": "nor-this-one"}
    server = ServerConfig(name="lab", command=COMMAND[0], args=args, env=env)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with hosting(server) as host:
        assert "mcp_lab_big" in host.catalog.tools
        spinning = asyncio.create_task(turn())
        seen: list[int] = []
        within = host.redact.within

        def watched(value: Any) -> Any:
            before = turns
            found = within(value)
            seen.append(turns - before)
            return found

        live = host.provider("lab").supervisor.live
        live.redact = type(
            "Watched", (), {"within": staticmethod(watched), "__call__": lambda _, text: text}
        )()
        await host.refresh()
        spinning.cancel()
        assert max(seen) > 0, "the loop stood still while the list was looked through"
