"""AG2: its MCP toolkit starts `mooring serve --stdio`."""

import asyncio

from ag2 import Agent
from ag2.events import ToolCallEvent, ToolResultEvent
from ag2.testing import TestConfig
from ag2.tools.toolkits import MCPStdioServerConfig, MCPToolkit


async def main() -> None:
    server = MCPStdioServerConfig(command="mooring", args=["--config", "mcp.json", "serve", "--stdio"])
    call = ToolCallEvent(name="mcp_notes_read_note", arguments='{"title": "welcome"}')
    model = TestConfig(call, "That is all.")  # model = OpenAIConfig(model="gpt-5")
    agent = Agent("assistant", config=model, tools=[MCPToolkit(server)])
    reply = await agent.ask("Read the note called welcome.")
    for event in await reply.history.get_events():
        if isinstance(event, ToolResultEvent):
            print(event.result.parts[0].content)


asyncio.run(main())
