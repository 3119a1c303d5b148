"""LlamaIndex. The agent lists the tools before each turn."""

import asyncio

from harbour import QUESTION, script, servers
from llama_index.core.agent.workflow import FunctionAgent
from scripted.llama_index import ScriptedModel

from mooring import Host
from mooring.adapters import llama_index


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        llm = ScriptedModel(script=script())  # llm = OpenAI(model="gpt-5")
        agent = FunctionAgent(llm=llm, tool_retriever=llama_index.live(host.session("chat-1")))
        print(await agent.run(QUESTION))


asyncio.run(main())
