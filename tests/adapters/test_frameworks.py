"""Each framework's own agent loop over real servers. What is not installed is skipped (`make test-adapters`)."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

from examples.scripted import Script
from tests.adapters.contract import Contract

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("default")]


def framework(module: str, *names: str) -> Any:
    """The scripted model and the adapter of a framework, if it is installed."""
    pytest.importorskip(module, reason=f"{module} is not installed; see make test-adapters")
    return [import_module(f"examples.scripted.{names[0]}"), import_module(f"mooring.adapters.{names[-1]}")]


class TestOpenAIAgents(Contract):
    dialect = "openai"
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agents", "openai_agents")
        from agents import Agent, RunConfig, Runner

        agent = Agent(name="a", model=scripted.ScriptedModel(script), mcp_servers=[adapter.live(source)])
        done = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
        assert done.final_output == script.answer


class TestOpenAIAgentsFunctionTools(TestOpenAIAgents):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agents", "openai_agents")
        from agents import Agent, RunConfig, Runner

        agent = Agent(name="a", model=scripted.ScriptedModel(script), tools=adapter.tools(source))
        await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))


class TestPydanticAI(Contract):
    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("pydantic_ai", "pydantic_ai")
        from pydantic_ai import Agent

        agent = Agent(scripted.scripted_model(script), toolsets=[adapter.tools(source)])
        assert (await agent.run("go")).output == script.answer


class TestGoogleADK(Contract):
    dialect = "gemini"

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("google.adk", "google_adk")
        from google.adk.agents import LlmAgent
        from google.adk.runners import InMemoryRunner

        model = scripted.ScriptedModel(script=script)
        agent = LlmAgent(name="a", model=model, tools=[adapter.tools(source)])
        await InMemoryRunner(agent).run_debug("go", quiet=True)


class TestLangChain(Contract):
    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain", "langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), [], middleware=[adapter.live(source)])
        done = await agent.ainvoke({"messages": [("user", "go")]})
        assert done["messages"][-1].content == script.answer


class TestLangChainTools(Contract):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain", "langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), adapter.tools(source))
        await agent.ainvoke({"messages": [("user", "go")]})


class TestLangChainWithoutAwait(Contract):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("langchain", "langchain")
        from langchain.agents import create_agent

        agent = create_agent(scripted.ScriptedModel(script=script), adapter.tools(source))
        await asyncio.to_thread(agent.invoke, {"messages": [("user", "go")]})


class TestLlamaIndex(Contract):
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llama_index.core", "llama_index")
        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(
            llm=scripted.ScriptedModel(script=script), tool_retriever=adapter.live(source), streaming=False
        )
        assert str(await agent.run("go")) == script.answer


class TestLlamaIndexTools(Contract):
    lives = False
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llama_index.core", "llama_index")
        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(llm=scripted.ScriptedModel(script=script), tools=adapter.tools(source))
        await agent.run("go")


class TestAgentFramework(Contract):
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agent_framework", "agent_framework")
        from agent_framework import Agent

        agent = Agent(client=scripted.ScriptedClient(script), context_providers=[adapter.live(source)])
        assert (await agent.run("go")).text == script.answer


class TestAgentFrameworkTools(Contract):
    lives = False
    marks_errors = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("agent_framework", "agent_framework")
        from agent_framework import Agent

        await Agent(client=scripted.ScriptedClient(script), tools=adapter.tools(source)).run("go")


class TestStrands(Contract):
    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("strands", "strands")
        from strands import Agent

        agent = Agent(
            model=scripted.ScriptedModel(script), hooks=[adapter.live(source)], callback_handler=None
        )
        await agent.invoke_async("go")


class TestStrandsWithoutAwait(Contract):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("strands", "strands")
        from strands import Agent

        agent = Agent(model=scripted.ScriptedModel(script), tools=adapter.tools(source), callback_handler=None)
        await asyncio.to_thread(agent, "go")


class TestSmolagents(Contract):
    lives = False
    images = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("smolagents", "smolagents")
        from smolagents import ToolCallingAgent

        agent = ToolCallingAgent(
            model=scripted.ScriptedModel(script), tools=adapter.tools(source), verbosity_level=0
        )
        assert await asyncio.to_thread(agent.run, "go") == script.answer


class TestLLM(Contract):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llm", "llm")
        model = scripted.ScriptedAsyncModel(script)
        assert await model.chain("go", tools=adapter.tools(source)).text() == script.answer


class TestLLMWithoutAwait(Contract):
    lives = False

    async def converse(self, source: Any, script: Script) -> None:
        scripted, adapter = framework("llm", "llm")
        chain = scripted.ScriptedModel(script).chain("go", tools=adapter.tools(source))
        assert await asyncio.to_thread(chain.text) == script.answer
