"""Microsoft Agent Framework. The agent lists the tools before each run."""

import asyncio

from agent_framework import Agent
from harbour import QUESTION, script, servers
from scripted.agent_framework import ScriptedClient

from mooring import Host
from mooring.adapters import agent_framework


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        client = ScriptedClient(script())  # client = OpenAIChatClient()
        agent = Agent(client=client, context_providers=[agent_framework.live(host.session("chat-1"))])
        print((await agent.run(QUESTION)).text)


asyncio.run(main())
