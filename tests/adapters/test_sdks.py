"""Adapters for model APIs through the providers' own SDKs, which speak to a scripted service."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from examples.scripted import Script, http
from mooring import SyncHost
from mooring.adapters import anthropic, google_genai, openai
from tests.adapters.contract import Contract, installed, settled, shown_later
from tests.adapters.loopback import provider

if not any(map(installed, ("openai", "anthropic", "google.genai"))):
    pytest.skip("no SDK of a model provider is installed; see make test-adapters", allow_module_level=True)

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("default")]


class TestResponsesWithTheSdk(Contract):
    calls_unlisted = True
    needs = "openai"
    dialect = "openai"
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        sdk = import_module("openai")
        with provider(partial(http.responses, script)) as url:
            async with sdk.AsyncOpenAI(base_url=url, api_key="none") as client:
                items: list[Any] = [{"role": "user", "content": "go"}]
                while True:
                    tools = openai.tools(source)
                    reply = await client.responses.create(model="m", input=items, tools=tools)
                    answers = await settled(openai.results(source, reply))
                    items += [*reply.output, *answers]
                    if not answers:
                        break
        assert reply.output_text == script.answer


class TestMessagesWithTheSdk(Contract):
    calls_unlisted = True
    needs = "anthropic"
    dialect = "anthropic"

    async def converse(self, source: Any, script: Script) -> None:
        sdk = import_module("anthropic")
        with provider(partial(http.messages, script)) as url:
            async with sdk.AsyncAnthropic(base_url=url, api_key="none") as client:
                said: list[Any] = [{"role": "user", "content": "go"}]
                while True:
                    tools = anthropic.tools(source)
                    reply = await client.messages.create(model="m", max_tokens=9, messages=said, tools=tools)
                    answers = await settled(anthropic.results(source, reply))
                    said += [
                        {"role": "assistant", "content": reply.content},
                        {"role": "user", "content": answers},
                    ]
                    if not answers:
                        break
        assert reply.content[0].text == script.answer


def remembering(script: Script) -> Any:
    """The runner may send only what is new and leave the thread to the service."""
    thread: list[Any] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if thread[:1] == request["messages"][:1]:
            thread.clear()
        thread.extend(request["messages"])
        return http.messages(script, {**request, "messages": thread})

    return answer


class TestAnthropicRunner(Contract):
    needs = "anthropic"
    dialect = "anthropic"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        sdk = import_module("anthropic")
        if isinstance(source, SyncHost):
            await asyncio.to_thread(self.wait, sdk, source, script)
            return
        with provider(remembering(script)) as url:
            async with sdk.AsyncAnthropic(base_url=url, api_key="none") as client:
                runner = client.beta.messages.tool_runner(
                    model="m",
                    max_tokens=9,
                    messages=[{"role": "user", "content": "go"}],
                    tools=anthropic.runner_tools(source),
                )
                assert (await runner.until_done()).content[0].text == script.answer

    def wait(self, sdk: Any, source: SyncHost, script: Script) -> None:
        with provider(remembering(script)) as url, sdk.Anthropic(base_url=url, api_key="n") as client:
            runner = client.beta.messages.tool_runner(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": "go"}],
                tools=anthropic.runner_tools(source),
            )
            assert runner.until_done().content[0].text == script.answer


class TestGenerateContentWithTheSdk(Contract):
    calls_unlisted = True
    needs = "google.genai"
    dialect = "gemini"

    async def converse(self, source: Any, script: Script) -> None:
        sdk = import_module("google.genai")
        with provider(partial(http.generate_content, script)) as url:
            client = sdk.Client(api_key="none", http_options={"base_url": url})
            contents: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
            while True:
                response = await client.aio.models.generate_content(
                    model="m", contents=contents, config={"tools": google_genai.tools(source)}
                )
                answers = await settled(google_genai.results(source, response))
                contents += [response.candidates[0].content, {"role": "user", "parts": answers}]
                if not answers:
                    break
        assert response.text == script.answer


async def test_the_definitions_are_what_the_sdks_declare() -> None:
    from pydantic import TypeAdapter

    responses = pytest.importorskip("openai.types.responses", reason="openai is not installed")
    messages = pytest.importorskip("anthropic.types.beta", reason="anthropic is not installed")
    deferred = await shown_later("always", lambda session: openai.tools(session, deferred=True))
    for tool in deferred:
        TypeAdapter(responses.ToolParam).validate_python(tool)
    for tool in await shown_later("always", lambda session: anthropic.tools(session, deferred=True)):
        TypeAdapter(messages.BetaToolUnionParam).validate_python(tool)
