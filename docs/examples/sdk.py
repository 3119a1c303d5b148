"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from mooring import Host


async def client_session(host: Host) -> None:
    from mooring.sdk import client_session

    async with client_session(host, "shop") as client:  # an mcp.ClientSession
        result = await client.call_tool("price", {"item": "rope"})
        print(result.content[0].text)  # prints: 9.5
