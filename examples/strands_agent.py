"""Strands Agents. The agent lists the tools before each turn."""

import asyncio

from harbour import QUESTION, script, servers
from scripted.strands import ScriptedModel
from strands import Agent

from mooring import Host
from mooring.adapters import strands


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        model = ScriptedModel(script())  # model = BedrockModel()
        agent = Agent(model=model, hooks=[strands.live(host.session("chat-1"))], callback_handler=None)
        print(await agent.invoke_async(QUESTION))


asyncio.run(main())
