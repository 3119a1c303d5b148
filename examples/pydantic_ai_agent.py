"""pydantic-ai. The agent lists the tools before each request."""

import asyncio

from harbour import QUESTION, script, servers
from pydantic_ai import Agent
from scripted.pydantic_ai import scripted_model

from mooring import Host
from mooring.adapters import pydantic_ai


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        model = scripted_model(script())  # model = "anthropic:claude-opus-5"
        agent = Agent(model, toolsets=[pydantic_ai.tools(host.session("chat-1"))])
        print((await agent.run(QUESTION)).output)


asyncio.run(main())
