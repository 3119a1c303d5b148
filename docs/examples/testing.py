"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from pathlib import Path

import mooring.testing as testing
from mooring import Host
from mooring.testing import FakeServer


async def FakeServer_() -> None:
    bank = FakeServer("bank")

    @bank.tool
    def balance(account: str) -> int:
        """The balance of an account."""
        return 100

    async with bank, Host([bank.http()]) as host:
        print((await host.call("mcp_bank_balance", {"account": "1"})).text)  # prints: 100
    print(bank.calls("balance"))  # prints: [{'account': '1'}]


async def Request(host: Host, shop: FakeServer) -> None:
    await host.call("mcp_shop_price", {"item": "rope"})
    request = shop.requests[-1]
    print(request.method, request.params["name"])  # prints: tools/call price


async def Fault(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.Fault(kind="garbage"), times=1)
    print((await host.call("mcp_shop_price", {"item": "rope"})).is_error)  # prints: True
    print((await host.call("mcp_shop_price", {"item": "rope"})).is_error)  # prints: False


async def hang(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.hang)
    result = await host.call("mcp_shop_price", {"item": "rope"}, timeout=0.1)
    print(type(result.error).__name__)  # prints: CallTimeout


async def crash(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.crash)
    result = await host.call("mcp_shop_price", {"item": "rope"})
    print(type(result.error).__name__)  # prints: ConnectionLost


async def garbage(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.garbage)
    print((await host.call("mcp_shop_price", {"item": "rope"})).is_error)  # prints: True


async def slow(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.slow(0.05))
    print((await host.call("mcp_shop_price", {"item": "rope"})).text)  # prints: 9.5


async def unauthorized(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.unauthorized, times=None)
    result = await host.call("mcp_shop_price", {"item": "rope"})
    print(type(result.error).__name__)  # prints: AuthNeeded


async def rate_limited(host: Host, shop: FakeServer) -> None:
    shop.fail("price", testing.rate_limited(60))
    result = await host.call("mcp_shop_price", {"item": "rope"}, timeout=1)
    print(result.is_error)  # prints: True


def VirtualClock() -> None:
    import asyncio

    async def main() -> None:
        clock = testing.VirtualClock()
        waiting = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)  # the task starts
        await clock.advance(3600)
        await waiting
        print("an hour later")  # prints: an hour later

    asyncio.run(main())


async def Recorder(shop: FakeServer) -> None:
    with testing.Recorder("recording.jsonl"):
        async with Host([shop.http()]) as host:
            await host.call("mcp_shop_price", {"item": "rope"})
    print("rope" in Path("recording.jsonl").read_text())  # prints: True


async def Replay(shop: FakeServer) -> None:
    with testing.Recorder("recording.jsonl"):
        async with Host([shop.http()]) as host:
            await host.call("mcp_shop_price", {"item": "rope"})
    async with testing.Replay("recording.jsonl") as replay, Host(replay.servers) as host:
        print((await host.call("mcp_shop_price", {"item": "rope"})).text)  # prints: 9.5


async def replay_script(shop: FakeServer) -> None:
    with testing.Recorder("recording.jsonl"):
        async with Host([shop.http()]) as host:
            await host.call("mcp_shop_price", {"item": "rope"})
    code = "await mcp_shop_price(item='rope')"
    result = await testing.replay_script("recording.jsonl", code)
    print(result.is_error, "9.5" in result.text)  # prints: False True
