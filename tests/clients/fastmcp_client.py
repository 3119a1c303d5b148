"""What fastmcp's client sees of the gateway, as one JSON document: fastmcp_client.py legacy|auto URL"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from fastmcp.client import Client
from fastmcp.client.transports import StreamableHttpTransport
from figures import CANCELLED, UNDER_WAY, above, figure
from mcp.client.subscriptions import listen


async def cancelled(url: str, client: Client[Any]) -> bool:
    """Whether the gateway ends a call that this client gives up."""
    before = figure(url, CANCELLED)
    slow = asyncio.create_task(client.call_tool("test_slow", {}))
    await above(url, UNDER_WAY, 0)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    return await above(url, CANCELLED, before)


async def main(mode: str, url: str) -> None:
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    async def follow(subscription: Any) -> None:
        async for _ in subscription:
            changed.set()

    seen: dict[str, Any] = {}
    async with (
        AsyncExitStack() as stack,
        Client(StreamableHttpTransport(url), message_handler=heard, mode=mode) as client,
    ):
        seen["protocol"] = client.protocol_version
        before = len(await client.list_tools())
        seen["tools"] = before
        seen["text"] = (await client.call_tool("test_simple_text", {})).content[0].text
        seen["error"] = (await client.call_tool("test_error_handling", {}, raise_on_error=False)).is_error
        image = (await client.call_tool("test_image_content", {})).content[0]
        seen["image"] = [image.type, getattr(image, "mimeType", None) or image.mime_type]
        seen["resource"] = (await client.read_resource("test://static-text"))[0].text
        seen["prompt"] = (await client.get_prompt("test_simple_prompt")).messages[0].content.text
        seen["cancelled"] = await cancelled(url, client)
        following = None
        if mode == "auto":  # of the 2026 era it is told what it listens for, by way of the SDK beneath it
            subscription = await stack.enter_async_context(listen(client.session, tools_list_changed=True))
            following = asyncio.create_task(follow(subscription))
        await client.call_tool("test_trigger_tool_change", {})
        async with asyncio.timeout(8):
            await changed.wait()
        seen["changed"] = True
        seen["grown"] = len(await client.list_tools()) - before
        if following is not None:
            following.cancel()
        await stack.aclose()
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1], sys.argv[2]))
