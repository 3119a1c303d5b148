"""LangChain's agent, a LangGraph graph. The agent lists the tools before each turn."""

import asyncio

from harbour import QUESTION, script, servers
from langchain.agents import create_agent
from scripted.langchain import ScriptedModel

from mooring import Host
from mooring.adapters import langchain


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        model = ScriptedModel(script=script())  # model = "openai:gpt-5"
        agent = create_agent(model, [], middleware=[langchain.live(host.session("chat-1"))])
        done = await agent.ainvoke({"messages": [("user", QUESTION)]})
        print(done["messages"][-1].content)


asyncio.run(main())
