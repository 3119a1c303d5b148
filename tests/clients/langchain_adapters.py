"""The recipe for frameworks that need an older SDK: tools of `mooring serve`, used by langchain-mcp-adapters.

python langchain_adapters.py COMMAND [ARGS ...]
"""

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(command: str, *args: str) -> None:
    client = MultiServerMCPClient({"mooring": {"transport": "stdio", "command": command, "args": list(args)}})
    seen: dict[str, Any] = {}
    async with client.session("mooring") as session:
        from langchain_mcp_adapters.tools import load_mcp_tools

        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        seen["tools"] = sorted(tools)
        answer = await tools["mcp_notes_read_note"].ainvoke({"title": "welcome"})
        seen["text"] = answer if isinstance(answer, str) else answer[0]["text"]
        try:
            seen["error"] = str(await tools["mcp_notes_read_note"].ainvoke({"title": "no such note"}))
        except Exception as problem:
            seen["error"] = str(problem)
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
