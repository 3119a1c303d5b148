"""OpenAI's Agents SDK. The agent lists the tools before each turn."""

import asyncio

from agents import Agent, RunConfig, Runner
from harbour import QUESTION, script, servers
from scripted.openai_agents import ScriptedModel

from mooring import Host
from mooring.adapters import openai_agents


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        model = ScriptedModel(script())  # model = "gpt-5"
        agent = Agent(name="harbour", model=model, mcp_servers=[openai_agents.live(host.session("chat-1"))])
        done = await Runner.run(agent, QUESTION, run_config=RunConfig(tracing_disabled=True))
        print(done.final_output)


asyncio.run(main())
