"""The sections "Streaming" of docs/adapters: each framework streams a run that calls a tool of a server."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import Any

import pytest

from examples.scripted import Script, http
from mooring import Host, SyncHost
from mooring.adapters import anthropic, google_genai, openai
from tests.adapters.contract import framework, installed, lab
from tests.adapters.loopback import provider

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("default")]


def script() -> Script:
    return Script([("mcp_lab_echo", {"text": "pier 7"})], answer="It lies at pier 7.")


def needs(*modules: str) -> Any:
    missing = [name for name in modules if not installed(name)]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} not installed; see make test-adapters")


def responses_events(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A reply of OpenAI's Responses API as a stream."""
    [item] = reply["output"]
    begun = {**item, "arguments": ""} if item["type"] == "function_call" else {**item, "content": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**reply, "output": [], "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
    ]
    place = {"output_index": 0, "item_id": item["id"]}
    if item["type"] == "function_call":
        events += [
            {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
            {
                "type": "response.function_call_arguments.done",
                **place,
                "name": item["name"],
                "arguments": item["arguments"],
            },
        ]
    else:
        [part] = item["content"]
        place["content_index"] = 0
        events += [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []},
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**reply, "status": "completed"}},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


@needs("openai")
async def test_responses_of_openai() -> None:
    sdk, plan = import_module("openai"), script()
    async with Host(lab()) as host:
        await host.ready(20)
        with provider(lambda request: responses_events(http.responses(plan, request))) as url:
            async with sdk.AsyncOpenAI(base_url=url, api_key="none") as client:
                items: list[Any] = [{"role": "user", "content": "go"}]
                while True:
                    tools = openai.tools(host)
                    async with client.responses.stream(model="m", input=items, tools=tools) as stream:
                        reply = await stream.get_final_response()
                    answers = await openai.results(host, reply)
                    items += [*reply.output, *answers]
                    if not answers:
                        break
    assert (plan.shown[-1].text, reply.output_text) == ("pier 7", plan.answer)


def messages_events(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A reply of Anthropic's Messages API as a stream."""
    [block] = reply["content"]
    text = block["type"] == "text"
    delta = {"type": "text_delta", "text": block["text"]} if text else {"type": "input_json_delta"}
    if not text:
        delta["partial_json"] = json.dumps(block["input"])
    return [
        {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {**block, "text": ""} if text else {**block, "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reply["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]


@needs("anthropic")
async def test_messages_of_anthropic() -> None:
    sdk, plan = import_module("anthropic"), script()
    async with Host(lab()) as host:
        await host.ready(20)
        with provider(lambda request: messages_events(http.messages(plan, request))) as url:
            async with sdk.AsyncAnthropic(base_url=url, api_key="none") as client:
                said: list[Any] = [{"role": "user", "content": "go"}]
                while True:
                    tools = anthropic.tools(host)
                    async with client.messages.stream(
                        model="m", max_tokens=9, messages=said, tools=tools
                    ) as stream:
                        reply = await stream.get_final_message()
                    answers = await anthropic.results(host, reply)
                    said += [
                        {"role": "assistant", "content": reply.content},
                        {"role": "user", "content": answers},
                    ]
                    if not answers:
                        break
    assert (plan.shown[-1].text, reply.content[0].text) == ("pier 7", plan.answer)


def content_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A reply of the Gemini API in two chunks; the second has no content."""
    [candidate] = reply["candidates"]
    return [
        {"candidates": [{"content": candidate["content"]}]},
        {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]},
    ]


@needs("google.genai")
async def test_generate_content_stream_of_google() -> None:
    sdk, plan = import_module("google.genai"), script()
    async with Host(lab()) as host:
        await host.ready(20)
        with provider(lambda request: content_chunks(http.generate_content(plan, request))) as url:
            client = sdk.Client(api_key="none", http_options={"base_url": url})
            contents: list[Any] = [{"role": "user", "parts": [{"text": "go"}]}]
            while True:
                config = {"tools": google_genai.tools(host)}
                stream = await client.aio.models.generate_content_stream(
                    model="m", contents=contents, config=config
                )
                parts = [
                    part
                    async for chunk in stream
                    for candidate in chunk.candidates
                    for part in candidate.content.parts or ()
                ]
                reply = sdk.types.GenerateContentResponse(
                    candidates=[sdk.types.Candidate(content=sdk.types.Content(role="model", parts=parts))]
                )
                answers = await google_genai.results(host, reply)
                contents += [reply.candidates[0].content, {"role": "user", "parts": answers}]
                if not answers:
                    break
    assert (plan.shown[-1].text, reply.text) == ("pier 7", plan.answer)


@needs("agents")
async def test_openai_agents() -> None:
    scripted, adapter = framework("openai_agents")
    from agents import Agent, RunConfig, Runner

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = Agent(name="a", model=scripted.ScriptedModel(plan), mcp_servers=[adapter.live(host)])
        run = Runner.run_streamed(agent, "go", run_config=RunConfig(tracing_disabled=True))
        names = [event.name async for event in run.stream_events() if event.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created"]
    assert (plan.shown[-1].text, run.final_output) == ("pier 7", plan.answer)


@needs("google.adk")
async def test_google_adk() -> None:
    scripted, adapter = framework("google_adk")
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = LlmAgent(name="a", model=scripted.ScriptedModel(script=plan), tools=[adapter.tools(host)])
        runner = InMemoryRunner(agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        asked = types.Content(role="user", parts=[types.Part(text="go")])
        events = [
            event async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked)
        ]
    assert [len(event.get_function_calls()) for event in events] == [1, 0, 0]
    assert [len(event.get_function_responses()) for event in events] == [0, 1, 0]
    assert (plan.shown[-1].text, events[-1].content.parts[0].text) == ("pier 7", plan.answer)


@needs("langchain")
async def test_langchain() -> None:
    scripted, adapter = framework("langchain")
    from langchain.agents import create_agent

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = create_agent(scripted.ScriptedModel(script=plan), [], middleware=[adapter.live(host)])
        asked = {"messages": [("user", "go")]}
        updates = [update async for update in agent.astream(asked, stream_mode="updates")]
    nodes = [name for update in updates for name in update if name in ("model", "tools")]
    assert nodes == ["model", "tools", "model"]
    assert plan.shown[-1].text == "pier 7"


@needs("pydantic_ai")
@pytest.mark.parametrize("verb", ["run_stream", "iter"])
async def test_pydantic_ai(verb: str) -> None:
    scripted, adapter = framework("pydantic_ai")
    from pydantic_ai import Agent

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = Agent(scripted.scripted_model(plan), toolsets=[adapter.tools(host)])
        if verb == "run_stream":
            async with agent.run_stream("go") as run:
                text = [part async for part in run.stream_text(delta=True)]
            assert "".join(text) == plan.answer
        else:
            async with agent.iter("go") as run:
                nodes = [type(node).__name__ async for node in run]
            assert "CallToolsNode" in nodes
            assert run.result is not None
            assert run.result.output == plan.answer
    assert plan.shown[-1].text == "pier 7"


@needs("llama_index.core")
async def test_llama_index() -> None:
    scripted, adapter = framework("llama_index")
    from llama_index.core.agent.workflow import FunctionAgent

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = FunctionAgent(llm=scripted.ScriptedModel(script=plan), tool_retriever=adapter.live(host))
        handler = agent.run("go")
        names = [type(event).__name__ async for event in handler.stream_events()]
        assert str(await handler) == plan.answer
    assert {"ToolCall", "ToolCallResult", "AgentStream"} <= set(names)
    assert plan.shown[-1].text == "pier 7"


@needs("agent_framework")
async def test_agent_framework() -> None:
    scripted, adapter = framework("agent_framework")
    from agent_framework import Agent

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        agent = Agent(client=scripted.ScriptedClient(plan), context_providers=[adapter.live(host)])
        updates = [update async for update in agent.run("go", stream=True)]
    kinds = [content.type for update in updates for content in update.contents]
    assert kinds == ["function_call", "function_result", "text"]
    assert plan.shown[-1].text == "pier 7"


@needs("strands")
async def test_strands() -> None:
    scripted, adapter = framework("strands")
    from strands import Agent

    plan = script()
    async with Host(lab()) as host:
        await host.ready(20)
        model = scripted.ScriptedModel(plan)
        agent = Agent(model=model, hooks=[adapter.live(host)], callback_handler=None)
        events = [event async for event in agent.stream_async("go")]
    assert "".join(event["data"] for event in events if "data" in event) == plan.answer
    assert plan.shown[-1].text == "pier 7"


@needs("smolagents")
async def test_smolagents() -> None:
    scripted, adapter = framework("smolagents")
    from smolagents import ToolCallingAgent

    plan = script()

    def run() -> list[str]:
        with SyncHost(lab()) as host:
            host.ready(20)
            model = scripted.ScriptedModel(plan)
            agent = ToolCallingAgent(model=model, tools=adapter.tools(host), verbosity_level=0)
            return [type(step).__name__ for step in agent.run("go", stream=True)]

    steps = await asyncio.to_thread(run)
    assert {"ToolCall", "ToolOutput", "ActionStep", "FinalAnswerStep"} <= set(steps)
    assert "pier 7" in plan.shown[-1].text


@needs("llm")
async def test_llm() -> None:
    scripted, adapter = framework("llm")
    plan = script()

    def run() -> str:
        with SyncHost(lab()) as host:
            host.ready(20)
            return "".join(scripted.ScriptedModel(plan).chain("go", tools=adapter.tools(host)))

    assert await asyncio.to_thread(run) == plan.answer
    assert plan.shown[-1].text == "pier 7"
