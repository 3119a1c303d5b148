"""What the gateway does not understand passes through unchanged, in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from tests.lab.caller import Caller
from tests.lab.http import HttpLab
from tests.lab.spans import recorded
from tests.lab.stdio import cue, lab_server

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
BOTH = {"tools": {}, "resources": {}, "prompts": {}}


@ERAS
async def test_definitions_of_resources_templates_and_prompts_keep_what_is_not_known(
    serving: Any, modern: bool
) -> None:
    odd = {"x-vendor": {"a": [1]}, "_meta": {"vendor/kind": "odd"}, "icons": [{"src": "data:,"}]}
    resource = {"uri": "lab://a", "name": "a", "size": 3, "annotations": {"priority": 1, "x": 2}, **odd}
    template = {"uriTemplate": "lab://{id}", "name": "t", **odd}
    prompt = {"name": "p", "arguments": [{"name": "n", "required": True, "x-vendor": 1}], **odd}
    server = lab_server(
        era="legacy", capabilities=BOTH, resources=[resource], templates=[template], prompts=[prompt]
    )
    async with serving(server) as here:
        client = await here.caller(modern=modern)
        for method, key, wanted in (
            ("resources/list", "resources", resource),
            ("resources/templates/list", "resourceTemplates", template),
            ("prompts/list", "prompts", prompt),
        ):
            assert (await client.ask(method)).result[key] == [wanted]


@ERAS
async def test_an_error_keeps_its_code_text_and_data(serving: Any, modern: bool) -> None:
    error = {"code": -31999, "message": "not today", "data": {"why": ["a", None], "x-vendor": 1}}

    async def refuse(request: Any, message: dict[str, Any]) -> Any:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with HttpLab() as lab, serving(lab.config()) as here:
        lab.faults["tools/call"] = refuse
        client = await here.caller(modern=modern)
        assert (await client.call("echo", {"text": "x"})).error == error


@ERAS
async def test_unknown_notifications_reach_the_client_whose_call_they_belong_to(
    serving: Any, modern: bool
) -> None:
    notice = {
        "jsonrpc": "2.0",
        "method": "notifications/vendor/weather",
        "params": {"sky": "blue", "_meta": {"a/b": 1}},
    }
    async with serving(lab_server(tools=["say"])) as here:
        client = await here.caller(modern=modern)
        reply = await client.call("say", cue(json.dumps(notice).encode() + b"\n"))
        assert reply.messages[0] == notice
        assert "result" in reply.messages[1]


@ERAS
async def test_unknown_parameters_and_metadata_reach_the_server(serving: Any, modern: bool) -> None:
    async with HttpLab() as lab, serving(lab.config()) as here:
        client = await here.caller(modern=modern, capabilities={"experimental": {"vendor": {"x": 1}}})
        meta = {"vendor/trace": "abc", "traceparent": "00-1", "io.modelcontextprotocol/later": [1]}
        await client.ask(
            "tools/call", {"name": "echo", "arguments": {"text": "x"}, "x-vendor": {"y": 2}, "_meta": meta}
        )
        sent = next(m for m in lab.messages if m.get("method") == "tools/call")["params"]
        assert sent["x-vendor"] == {"y": 2}
        assert {key: sent["_meta"][key] for key in meta} == meta
        able = sent["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert able["experimental"] == {"vendor": {"x": 1}}


async def begun(here: Any, version: str) -> Caller:
    client = Caller(here.http, here.base + "/mcp", modern=False)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    reply = await client.ask("initialize", params)
    assert reply.result["protocolVersion"] == version
    client.session = reply.headers["Mcp-Session-Id"]
    return client


async def batch(client: Caller, messages: list[Any]) -> tuple[int, Any]:
    _, headers = client.message("ping", {}, 0)
    async with client.http.post(client.url, data=json.dumps(messages), headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text) if text else None


def request(key: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}


async def test_a_batch_of_a_client_of_2025_03_26_is_answered_as_one(serving: Any) -> None:
    async with serving(lab_server()) as here:
        client = await begun(here, "2025-03-26")
        calls = [request(n, "tools/call", name="echo", arguments={"text": f"{n}"}) for n in range(3)]
        notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        status, answers = await batch(client, [*calls, notice, request("u", "no/such"), {"a": 1}])
        assert status == 200
        by_id = {answer["id"]: answer for answer in answers}
        assert [by_id[n]["result"]["content"][0]["text"] for n in range(3)] == ["0", "1", "2"]
        assert by_id["u"]["error"]["code"] == -32601
        assert by_id[None]["error"]["code"] == -32600
        assert await batch(client, [notice]) == (202, None)


@pytest.mark.parametrize("messages", [[], [request(1, "ping")] * 33])
async def test_a_batch_that_is_empty_or_too_long_is_refused(serving: Any, messages: list[Any]) -> None:
    async with serving(lab_server()) as here:
        status, answer = await batch(await begun(here, "2025-03-26"), messages)
        assert (status, answer["error"]["code"]) == (400, -32600)


async def test_no_other_revision_has_batches(serving: Any) -> None:
    async with serving(lab_server()) as here:
        status, answer = await batch(await begun(here, "2025-11-25"), [request(1, "ping")])
        assert (status, answer["error"]["code"]) == (400, -32600)


@ERAS
async def test_a_clients_own_trace_goes_on_though_the_gateway_records_spans(
    serving: Any, modern: bool
) -> None:
    recorded()
    async with HttpLab() as lab, serving(lab.config()) as here:
        client = await here.caller(modern=modern)
        asked = {"name": "echo", "arguments": {"text": "x"}}
        await client.ask("tools/call", {**asked, "_meta": {"traceparent": "00-1"}})
        await client.ask("tools/call", asked)
        first, second = [m["params"]["_meta"] for m in lab.messages if m.get("method") == "tools/call"]
        assert first["traceparent"] == "00-1"
        assert second["traceparent"] not in ("", "00-1")  # of a client without one, the gateway's own
