"""Each framework's own agent loop over real servers. Frameworks that are not installed are skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from examples.scripted import Script
from mooring import Host
from tests.adapters.contract import NAMES, Contract, framework, installed, lab, shown_later

FRAMEWORKS = (
    "agents",
    "pydantic_ai",
    "google.adk",
    "langchain",
    "llama_index.core",
    "agent_framework",
    "strands",
    "smolagents",
    "llm",
)
if not any(map(installed, FRAMEWORKS)):
    pytest.skip("no agent framework is installed; see make test-adapters", allow_module_level=True)

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("default")]


class TestOpenAIAgents(Contract):
    needs = "agents"
    dialect = "openai"
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("openai_agents")
        from agents import Agent, RunConfig, Runner

        agent = Agent(name="a", model=scripted.ScriptedModel(script), mcp_servers=[adapter.live(source)])
        done = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
        assert done.final_output == script.answer


async def test_deferred_tools_of_the_agents_sdk_are_marked_for_its_search() -> None:
    pytest.importorskip("agents", reason="agents is not installed; see make test-adapters")
    _, adapter = framework("openai_agents")
    *found, search = await shown_later("always", lambda session: adapter.tools(session, deferred=True))
    assert type(search).__name__ == "ToolSearchTool"
    assert sorted(tool.name for tool in found) == NAMES
    assert [tool.name for tool in found if not tool.defer_loading] == ["mcp_lab_echo"]


class TestOpenAIAgentsFunctionTools(TestOpenAIAgents):
    needs = "agents"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("openai_agents")
        from agents import Agent, RunConfig, Runner

        agent = Agent(name="a", model=scripted.ScriptedModel(script), tools=adapter.tools(source))
        await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))


class TestPydanticAI(Contract):
    needs = "pydantic_ai"

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("pydantic_ai")
        from pydantic_ai import Agent

        agent = Agent(scripted.scripted_model(script), toolsets=[adapter.tools(source)])
        assert (await agent.run("go")).output == script.answer


async def test_deferred_tools_are_found_by_the_search_of_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai", reason="pydantic_ai is not installed; see make test-adapters")
    scripted, adapter = framework("pydantic_ai")
    from pydantic_ai import Agent

    async with Host(lab("always")) as host:
        assert await host.ready(20)
        script = Script([("search_tools", {"queries": ["echo"]}), ("mcp_lab_echo", {"text": "found"})])
        agent = Agent(scripted.scripted_model(script), toolsets=[adapter.tools(host, deferred=True)])
        await agent.run("go")
        assert script.turns[:2] == [[], ["mcp_lab_echo"]]
        assert script.shown[-1].text == "found"


class TestGoogleADK(Contract):
    needs = "google.adk"
    calls_unlisted = True
    dialect = "gemini"

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("google_adk")
        from google.adk.agents import LlmAgent
        from google.adk.runners import InMemoryRunner

        model = scripted.ScriptedModel(script=script)
        agent = LlmAgent(name="a", model=model, tools=[adapter.tools(source)])
        await InMemoryRunner(agent).run_debug("go", quiet=True)


class TestLangChain(Contract):
    needs = "langchain"
    calls_unlisted = True

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), [], middleware=[adapter.live(source)])
        done = await agent.ainvoke({"messages": [("user", "go")]})
        assert done["messages"][-1].content == script.answer


class TestLangChainTools(Contract):
    needs = "langchain"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), adapter.tools(source))
        await agent.ainvoke({"messages": [("user", "go")]})


class TestLangChainWithoutAwait(Contract):
    needs = "langchain"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), adapter.tools(source))
        await asyncio.to_thread(agent.invoke, {"messages": [("user", "go")]})


class TestLlamaIndex(Contract):
    needs = "llama_index.core"
    calls_unlisted = True
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llama_index")
        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(
            llm=scripted.ScriptedModel(script=script), tool_retriever=adapter.live(source), streaming=False
        )
        assert str(await agent.run("go")) == script.answer


class TestLlamaIndexTools(Contract):
    needs = "llama_index.core"
    lives = False
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llama_index")
        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(llm=scripted.ScriptedModel(script=script), tools=adapter.tools(source))
        await agent.run("go")


class TestAgentFramework(Contract):
    needs = "agent_framework"
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agent_framework")
        from agent_framework import Agent

        agent = Agent(client=scripted.ScriptedClient(script), context_providers=[adapter.live(source)])
        assert (await agent.run("go")).text == script.answer


class TestAgentFrameworkTools(Contract):
    needs = "agent_framework"
    lives = False
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agent_framework")
        from agent_framework import Agent

        await Agent(client=scripted.ScriptedClient(script), tools=adapter.tools(source)).run("go")


class TestStrands(Contract):
    needs = "strands"
    calls_unlisted = True

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("strands")
        from strands import Agent

        agent = Agent(
            model=scripted.ScriptedModel(script), hooks=[adapter.live(source)], callback_handler=None
        )
        await agent.invoke_async("go")


class TestStrandsWithoutAwait(Contract):
    needs = "strands"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("strands")
        from strands import Agent

        agent = Agent(
            model=scripted.ScriptedModel(script), tools=adapter.tools(source), callback_handler=None
        )
        await asyncio.to_thread(agent, "go")


class TestSmolagents(Contract):
    needs = "smolagents"
    lives = False
    images = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("smolagents")
        from smolagents import ToolCallingAgent

        agent = ToolCallingAgent(
            model=scripted.ScriptedModel(script), tools=adapter.tools(source), verbosity_level=0
        )
        assert await asyncio.to_thread(agent.run, "go") == script.answer


class TestLLM(Contract):
    needs = "llm"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llm")
        model = scripted.ScriptedAsyncModel(script)
        assert await model.chain("go", tools=adapter.tools(source)).text() == script.answer


class TestLLMWithoutAwait(Contract):
    needs = "llm"
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llm")
        chain = scripted.ScriptedModel(script).chain("go", tools=adapter.tools(source))
        assert await asyncio.to_thread(chain.text) == script.answer
