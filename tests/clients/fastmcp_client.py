"""What fastmcp's client sees of the gateway, as one JSON document: python fastmcp_client.py URL"""

import asyncio
import json
import sys
from typing import Any

from fastmcp.client import Client
from fastmcp.client.transports import StreamableHttpTransport


async def main(url: str) -> None:
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    seen: dict[str, Any] = {}
    async with Client(StreamableHttpTransport(url), message_handler=heard) as client:
        before = len(await client.list_tools())
        seen["tools"] = before
        seen["text"] = (await client.call_tool("test_simple_text", {})).content[0].text
        seen["error"] = (await client.call_tool("test_error_handling", {}, raise_on_error=False)).is_error
        image = (await client.call_tool("test_image_content", {})).content[0]
        seen["image"] = [image.type, getattr(image, "mimeType", None) or image.mime_type]
        seen["resource"] = (await client.read_resource("test://static-text"))[0].text
        seen["prompt"] = (await client.get_prompt("test_simple_prompt")).messages[0].content.text
        slow = asyncio.create_task(client.call_tool("test_slow", {}))
        await asyncio.sleep(0.3)
        slow.cancel()
        seen["cancelled"] = isinstance((await asyncio.gather(slow, return_exceptions=True))[0], BaseException)
        await client.call_tool("test_trigger_tool_change", {})
        try:
            async with asyncio.timeout(4):
                await changed.wait()
        except TimeoutError:
            pass
        seen["changed"] = changed.is_set()
        seen["grown"] = len(await client.list_tools()) - before
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
