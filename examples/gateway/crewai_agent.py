"""CrewAI: its MCP client starts `mooring serve --stdio`."""

from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters

server = StdioServerParameters(command="mooring", args=["--config", "mcp.json", "serve", "--stdio"])

with MCPServerAdapter(server) as tools:
    named = {tool.name: tool for tool in tools}  # agent = Agent(role="reader", tools=tools, ...)
    print(named["mcp_notes_read_note"].run(title="welcome"))
