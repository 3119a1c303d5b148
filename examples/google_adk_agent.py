"""Google's Agent Development Kit. The agent lists the tools before each turn."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from harbour import QUESTION, script, servers
from scripted.google_adk import ScriptedModel

from mooring import Host
from mooring.adapters import google_adk


async def main() -> None:
    async with Host(servers()) as host:
        await host.ready(20)
        model = ScriptedModel(script=script())  # model = "gemini-3.5-flash"
        agent = LlmAgent(name="harbour", model=model, tools=[google_adk.tools(host.session("chat-1"))])
        events = await InMemoryRunner(agent).run_debug(QUESTION, quiet=True)
        print(events[-1].content.parts[0].text)


asyncio.run(main())
