"""Semantic Kernel: its MCP plugin starts `mooring serve --stdio`."""

import asyncio

from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStdioPlugin


async def main() -> None:
    args = ["--config", "mcp.json", "serve", "--stdio"]
    async with MCPStdioPlugin(name="mooring", command="mooring", args=args) as plugin:
        kernel = Kernel()
        kernel.add_plugin(plugin)
        result = await kernel.invoke(
            plugin_name="mooring", function_name="mcp_notes_read_note", title="welcome"
        )
        print(result.value[0].text)


asyncio.run(main())
