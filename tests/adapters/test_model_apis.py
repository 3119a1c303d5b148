"""Adapters for model APIs without an agent loop, as plain JSON: no package is needed."""

from __future__ import annotations

from typing import Any

import pytest

from examples.scripted import Script, http
from mooring import Host, SyncHost
from mooring.adapters import anthropic, google_genai, openai
from tests.adapters.contract import NAMES, Contract, lab, settled, shown_later

pytestmark = pytest.mark.anyio


class TestResponsesAsJson(Contract):
    calls_unlisted = True
    dialect = "openai"
    marks_errors = False
    strict = False

    async def converse(self, source: Any, script: Script) -> None:
        items: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            tools = openai.tools(source, strict=self.strict)
            reply = http.responses(script, {"input": items, "tools": tools})
            answers = await settled(openai.results(source, reply, strict=self.strict))
            items += [*reply["output"], *answers]
            if not answers:
                return


class TestStrictResponsesAsJson(TestResponsesAsJson):
    dialect = "openai-strict"
    strict = True

    async def test_a_null_for_what_is_optional_is_dropped(self, host: Host) -> None:
        script = await self.play(host, ("mirror", {"config": "a", "ctx": None, "filter": None}))
        assert script.shown[0].text == '{"config": "a"}'


class TestChatAsJson(Contract):
    calls_unlisted = True
    dialect = "openai"
    marks_errors = False
    images = False

    async def converse(self, source: Any, script: Script) -> None:
        said: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            reply = http.chat(script, {"messages": said, "tools": openai.tools(source, api="chat")})
            answers = await settled(openai.results(source, reply))
            said += [reply["choices"][0]["message"], *answers]
            if not answers:
                return


class TestMessagesAsJson(Contract):
    calls_unlisted = True
    dialect = "anthropic"

    async def converse(self, source: Any, script: Script) -> None:
        said: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            reply = http.messages(script, {"messages": said, "tools": anthropic.tools(source)})
            answers = await settled(anthropic.results(source, reply))
            said += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": answers}]
            if not answers:
                return


class TestGenerateContentAsJson(Contract):
    calls_unlisted = True
    dialect = "gemini"

    async def converse(self, source: Any, script: Script) -> None:
        contents: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
        while True:
            tools = [
                {"functionDeclarations": tool["function_declarations"]} for tool in google_genai.tools(source)
            ]
            reply = http.generate_content(script, {"contents": contents, "tools": tools})
            answers = await settled(google_genai.results(source, reply))
            sent = [
                {"functionResponse": self._camel(part["function_response"])} for part in answers
            ]  # as the SDK writes it
            contents += [reply["candidates"][0]["content"], {"role": "user", "parts": sent}]
            if not answers:
                return

    @staticmethod
    def _camel(answer: dict[str, Any]) -> dict[str, Any]:
        parts = [{"inlineData": part["inline_data"]} for part in answer.get("parts", ())]
        return {**answer, "parts": parts}


async def test_deferred_tools_of_anthropic_are_found_by_its_own_search() -> None:
    tools = await shown_later("always", lambda session: anthropic.tools(session, deferred=True))
    assert tools[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert sorted(tool["name"] for tool in tools[1:]) == NAMES
    assert [tool["name"] for tool in tools[1:] if not tool.get("defer_loading")] == ["mcp_lab_echo"]


async def test_deferred_tools_of_openai_come_in_namespaces() -> None:
    space, search = await shown_later("always", lambda session: openai.tools(session, deferred=True))
    assert search == {"type": "tool_search"}
    assert (space["type"], space["name"]) == ("namespace", "mcp_lab")
    assert sorted(tool["name"] for tool in space["tools"]) == NAMES
    assert [tool["name"] for tool in space["tools"] if not tool.get("defer_loading")] == ["mcp_lab_echo"]


async def test_nothing_is_deferred_of_a_catalog_that_is_shown_whole() -> None:
    tools = await shown_later("never", lambda session: anthropic.tools(session, deferred=True))
    assert [tool for tool in tools if tool.get("defer_loading")] == []


async def test_the_chat_api_has_no_deferred_tools() -> None:
    with pytest.raises(ValueError, match="no tool search"):
        await shown_later("never", lambda session: openai.tools(session, api="chat", deferred=True))


async def test_what_is_no_json_is_answered_and_not_sent() -> None:
    async with Host(lab()) as host:
        assert await host.ready(20)
        call = {"type": "function_call", "call_id": "c", "name": "mcp_lab_echo", "arguments": '{"text": '}
        (answer,) = await openai.results(host, {"output": [call]})
        assert answer["call_id"] == "c"
        assert "arguments must be an object" in answer["output"]


async def test_the_calls_of_one_reply_are_answered_in_their_order() -> None:
    with SyncHost(lab()) as host:
        assert host.ready(20)
        calls = [
            {"type": "tool_use", "id": str(number), "name": "mcp_lab_echo", "input": {"text": f"n{number}"}}
            for number in range(20)
        ]
        answers = anthropic.results(host, {"content": calls})
        assert [(answer["tool_use_id"], answer["content"][0]["text"]) for answer in answers] == [
            (str(number), f"n{number}") for number in range(20)
        ]
