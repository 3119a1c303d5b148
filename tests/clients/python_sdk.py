"""What a client of an older Python SDK sees of the gateway, as one JSON document: python python_sdk.py URL"""

import asyncio
import json
import sys
from typing import Any

from figures import CANCELLED, UNDER_WAY, above, figure
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification


async def cancelled(url: str, client: ClientSession) -> bool:
    """Whether the gateway ends a call that this client gives up. The SDK tells nobody of a task that is
    cancelled: a program says so itself."""
    before = figure(url, CANCELLED)
    number = client._request_id
    slow = asyncio.create_task(client.call_tool("test_slow", {}))
    await above(url, UNDER_WAY, 0)
    said = CancelledNotificationParams(requestId=number, reason="nobody waits")
    notice = CancelledNotification(method="notifications/cancelled", params=said)
    await client.send_notification(ClientNotification(notice))
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    return await above(url, CANCELLED, before)


async def main(url: str) -> None:
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    seen: dict[str, Any] = {}
    async with streamablehttp_client(url) as (reader, writer, _):
        async with ClientSession(reader, writer, message_handler=heard) as client:
            seen["protocol"] = (await client.initialize()).protocolVersion
            before = len((await client.list_tools()).tools)
            seen["tools"] = before
            seen["text"] = (await client.call_tool("test_simple_text", {})).content[0].text
            seen["error"] = (await client.call_tool("test_error_handling", {})).isError
            image = (await client.call_tool("test_image_content", {})).content[0]
            seen["image"] = [image.type, image.mimeType]
            seen["resource"] = (await client.read_resource("test://static-text")).contents[0].text
            seen["prompt"] = (await client.get_prompt("test_simple_prompt")).messages[0].content.text
            seen["cancelled"] = await cancelled(url, client)
            await client.call_tool("test_trigger_tool_change", {})
            async with asyncio.timeout(8):
                await changed.wait()
            seen["changed"] = True
            seen["grown"] = len((await client.list_tools()).tools) - before
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
