"""What a client of an older Python SDK sees of the gateway, as one JSON document: python python_sdk.py URL"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str) -> None:
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    seen: dict[str, Any] = {}
    async with streamablehttp_client(url) as (reader, writer, _):
        async with ClientSession(reader, writer, message_handler=heard) as client:
            await client.initialize()
            before = len((await client.list_tools()).tools)
            seen["tools"] = before
            seen["text"] = (await client.call_tool("test_simple_text", {})).content[0].text
            seen["error"] = (await client.call_tool("test_error_handling", {})).isError
            image = (await client.call_tool("test_image_content", {})).content[0]
            seen["image"] = [image.type, image.mimeType]
            seen["resource"] = (await client.read_resource("test://static-text")).contents[0].text
            seen["prompt"] = (await client.get_prompt("test_simple_prompt")).messages[0].content.text
            slow = asyncio.create_task(client.call_tool("test_slow", {}))
            await asyncio.sleep(0.3)
            slow.cancel()
            seen["cancelled"] = (await asyncio.gather(slow, return_exceptions=True))[
                0
            ].__class__.__name__ in (
                "CancelledError",
                "McpError",
            )
            await client.call_tool("test_trigger_tool_change", {})
            async with asyncio.timeout(8):
                await changed.wait()
            seen["changed"] = True
            seen["grown"] = len((await client.list_tools()).tools) - before
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
