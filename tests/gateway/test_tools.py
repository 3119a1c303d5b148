"""Tools through the gateway: both eras, whatever the server speaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mooring import ServerConfig
from tests.lab.caller import soon
from tests.lab.http import HttpLab
from tests.lab.stdio import cue, lab_server, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
UPSTREAM = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
@UPSTREAM
async def test_tools_are_listed_and_called_whatever_era_either_side_speaks(
    serving: Any, modern: bool, era: str
) -> None:
    async with serving(lab_server(era=era, tools=["echo", "fail"])) as here:
        client = await here.caller(modern=modern)
        assert await client.tools() == ["echo", "fail"]
        assert (await client.call("echo", {"text": "salut"})).text == "salut"
        failed = await client.call("fail")
        assert failed.status == 200
        assert failed.result["isError"] is True


@ERAS
@UPSTREAM
@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000], ids=["huge", "negative", "digits"])
async def test_a_number_that_no_float_can_hold_costs_neither_the_list_nor_the_other_tools(
    serving: Any, modern: bool, era: str, number: str
) -> None:
    odd = f'{{"name":"odd","inputSchema":{{"type":"object","properties":{{"n":{{"maximum":{number}}}}}}}}}'
    listed = f'{{"jsonrpc":"2.0","id":@ID@,"result":{{"tools":[{odd}]}}}}\n'.encode()
    server = lab_server(era=era, cues={"tools/list": cue(listed, then="silence")})
    async with serving(server, lab_server("other", tools=["echo"])) as here:
        client = await here.caller(modern=modern)
        assert await client.tools() == ["echo", "odd"]
        assert (await client.call("echo", {"text": "salut"})).text == "salut"


@ERAS
async def test_both_eras_are_served_at_once_on_one_port(serving: Any, modern: bool) -> None:
    async with serving(lab_server(era="legacy"), lab_server("other", era="modern"), style="mcp") as here:
        old, new = await here.caller(modern=False), await here.caller(modern=True)
        replies = await asyncio.gather(
            *(
                client.call(f"mcp_{server}_echo", {"text": f"{n}"})
                for n in range(10)
                for client in (old, new)
                for server in ("lab", "other")
            )
        )
        assert [reply.text for reply in replies] == [str(n) for n in range(10) for _ in range(4)]


@ERAS
async def test_an_unknown_tool_is_an_error_of_the_protocol_that_names_the_nearest(
    serving: Any, modern: bool
) -> None:
    async with serving(lab_server()) as here:
        client = await here.caller(modern=modern)
        reply = await client.call("ecko")
        assert reply.error["code"] == -32602
        assert "'echo'" in reply.error["message"]
        assert reply.status == (400 if modern else 200)


@ERAS
async def test_a_protocol_error_of_the_server_comes_through_with_code_text_and_data(
    serving: Any, modern: bool
) -> None:
    async with serving(lab_server(tools=["refuse"])) as here:
        client = await here.caller(modern=modern)
        reply = await client.call("refuse")
        direct = await here.host.call("refuse")
        assert reply.error["code"] == direct.error.code
        assert reply.error["message"] == direct.error.said


@ERAS
async def test_what_the_gateway_does_not_know_passes_through_unchanged(serving: Any, modern: bool) -> None:
    answer = {
        "content": [{"type": "hologram", "x-depth": 3, "_meta": {"a/b": [1]}}, {"type": "text", "text": "t"}],
        "structuredContent": {"deep": [{"er": None}]},
        "x-vendor": {"kept": True},
        "_meta": {"vendor/trace": "abc"},
    }
    definition = {
        "name": "odd",
        "description": "An odd one.",
        "inputSchema": {"type": "object", "$defs": {"x": {"const": 1}}, "x-extra": [1]},
        "outputSchema": {"type": "object", "properties": {"deep": {"type": "array"}}},
        "icons": [{"src": "data:,"}],
        "annotations": {"readOnlyHint": True, "vendor": 1},
        "_meta": {"vendor/kind": "odd"},
    }
    async with serving(lab_server(era="legacy", tools=["raw"], definitions=[definition])) as here:
        client = await here.caller(modern=modern)
        result = (await client.call("raw", {"result": answer})).result
        result.pop("resultType", None)
        assert result == answer
        listed = (await client.ask("tools/list")).result["tools"]
        assert next(tool for tool in listed if tool["name"] == "odd") == definition


@ERAS
async def test_TH05_the_metadata_of_a_client_reaches_the_server_but_its_token_and_era_do_not(
    serving: Any, modern: bool
) -> None:
    async with serving(lab_server(era="legacy", tools=["meta"])) as here:
        client = await here.caller(modern=modern)
        reply = await client.call("meta", _meta={"vendor/trace": "abc", "progressToken": "mine"})
        assert '"vendor/trace": "abc"' in reply.text.replace('":"', '": "')
        assert "mine" not in reply.text
        assert "protocolVersion" not in reply.text


@ERAS
async def test_progress_is_forwarded_under_the_clients_own_token_before_the_answer(
    serving: Any, modern: bool
) -> None:
    async def report(request: Any, message: dict[str, Any]) -> Any:
        import json

        from aiohttp import web

        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        token = message["params"]["_meta"]["progressToken"]
        for step in (1, 2):
            news = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
            news |= {"x-vendor": [step], "_meta": {"vendor/step": step}}
            notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": news}
            await stream.write(f"data: {json.dumps(notice)}\n\n".encode())
        answer = {"content": [{"type": "text", "text": "done"}]}
        done = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
        await stream.write(f"data: {json.dumps(done)}\n\n".encode())
        return stream

    async with HttpLab() as lab:
        lab.faults["tools/call"] = report
        async with serving(lab.config()) as here:
            client = await here.caller(modern=modern)
            reply = await client.call("echo", _meta={"progressToken": "mine"})
            heard = [m["params"] for m in reply.messages[:-1]]
            assert [news["progress"] for news in heard] == [1, 2]
            assert {news["progressToken"] for news in heard} == {"mine"}
            assert [(news["x-vendor"], news["_meta"]["vendor/step"]) for news in heard] == [
                ([1], 1),
                ([2], 2),
            ]
            assert reply.text == "done"
            assert [m.get("method") for m in (await client.call("echo")).messages] == [None]


async def test_closing_the_stream_cancels_a_modern_call_on_the_server(serving: Any, tmp_path: Path) -> None:
    log = tmp_path / "wire"
    async with serving(lab_server(tools=["sleep"], log=str(log))) as here:
        client = await here.caller(modern=True)
        call = asyncio.create_task(client.call("sleep", {"seconds": 30}))
        await until(lambda: any(entry.get("method") == "tools/call" for entry in wire_log(log)))
        call.cancel()
        await until(lambda: any(e.get("method") == "notifications/cancelled" for e in wire_log(log)))
        await until(lambda: here.serving.gateway.under_way == 0)


async def test_a_cancel_notice_of_a_handshake_client_cancels_its_call_on_the_server(
    serving: Any, tmp_path: Path
) -> None:
    log = tmp_path / "wire"
    async with serving(lab_server(tools=["sleep"], log=str(log))) as here:
        client = await here.caller(modern=False)
        body, headers = client.message("tools/call", {"name": "sleep", "arguments": {"seconds": 30}}, 77)
        call = asyncio.create_task(client.post(body, headers))
        await until(lambda: any(entry.get("method") == "tools/call" for entry in wire_log(log)))
        other = await here.caller(modern=False)
        await other.tell("notifications/cancelled", {"requestId": 77})  # not theirs to cancel
        await client.tell("notifications/cancelled", {"requestId": 77})
        assert (await call).messages == []
        await until(lambda: any(e.get("method") == "notifications/cancelled" for e in wire_log(log)))


async def test_changes_reach_handshake_clients_and_modern_subscribers(serving: Any) -> None:
    async with serving(lab_server(tools=["grow"])) as here:
        old, new = await here.caller(modern=False), await here.caller(modern=True)
        async with old.standing() as standing, new.listening(toolsListChanged=True) as listening:
            await new.call("grow", {"name": "echo"})
            assert (await soon(standing))["method"] == "notifications/tools/list_changed"
            heard = await soon(listening)
            assert heard["method"] == "notifications/tools/list_changed"
            assert heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "listen"
            assert "echo" in await old.tools()
            assert "echo" in await new.tools()
            for client in (old, new):  # whichever process of the server has it
                assert (await client.call("echo", {"text": "here"})).text == "here"


async def test_a_server_that_is_down_is_an_error_result_and_does_not_affect_others(serving: Any) -> None:
    broken = ServerConfig(name="broken", command="/does/not/exist")
    async with serving(lab_server(tools=["echo", "crash"]), broken) as here:
        client = await here.caller()
        assert (await client.call("crash")).result["isError"] is True
        assert (await client.call("echo", {"text": "again"})).text == "again"


async def test_a_large_result_comes_through_whole(serving: Any) -> None:
    async with serving(lab_server(tools=["big"])) as here:
        client = await here.caller()
        assert len((await client.call("big", {"size": 3_000_000})).text) >= 3_000_000
