"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

import mooring
from mooring import Host
from mooring.testing import FakeServer


async def Result(host: Host) -> None:
    result = await host.call("mcp_shop_price", {"item": "rope"})
    print(result.text, result.structured, result.is_error)  # prints: 9.5 {'result': 9.5} False
    result = await host.call("mcp_shop_prise", {"item": "rope"})
    print(result.is_error, type(result.error).__name__)  # prints: True UnknownTool


async def Block(host: Host) -> None:
    result = await host.call("mcp_shop_price", {"item": "rope"})
    for block in result.blocks:
        print(block.type, block.text, block.mime_type)  # prints: text 9.5 None


async def Contents(reader: Host) -> None:
    contents = await reader.read("memo://opening")
    print(contents.text, contents.server, contents.is_binary)  # prints: 9 to 17 library False


async def Message(reader: Host) -> None:
    for message in await reader.prompt("library", "greet", {"name": "Ana"}):
        print(message.role, message.block.text)  # prints: user Greet Ana.


async def Elicitation(shop: FakeServer) -> None:
    async def on_elicit(question: mooring.Elicitation) -> mooring.Answer | None:
        print(question.server, question.mode, question.message)
        return question.decline()

    async with Host([shop.http()], on_elicit=on_elicit) as host:  # asked when a server has a question
        print((await host.call("mcp_shop_price", {"item": "rope"})).text)  # prints: 9.5


def Answer() -> None:
    question = mooring.Elicitation(
        server="shop",
        mode="form",
        message="How many?",
        schema={"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
    )
    answer = question.accept({"count": 2})  # ValueError if it does not fit the schema
    print(answer.action, dict(answer.content or {}))  # prints: accept {'count': 2}
    print(question.decline().action)  # prints: decline
