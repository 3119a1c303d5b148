"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from mooring import Host, ServerConfig, SyncHost
from mooring.testing import FakeServer


async def Host_(shop: FakeServer) -> None:
    async with Host([shop.http()]) as host:  # or Host.from_config("mcp.json")
        await host.ready(20)
        result = await host.call("mcp_shop_price", {"item": "rope"}, timeout=10)
        print(result.text)  # prints: 9.5


async def Session(host: Host) -> None:
    async with host.session("chat-42", discovery="always") as chat:
        print([tool.name for tool in chat.tools()][:2])  # prints: ['tools_groups', 'tools_search']
        await chat.call("tools_select", {"tools": ["mcp_shop_price"]})
        print(chat.tools()[-1].name)  # prints: mcp_shop_price


def SyncHost_(shop: FakeServer) -> None:
    with SyncHost([shop.http()]) as host:
        print(host.call("mcp_shop_price", {"item": "rope"}).text)  # prints: 9.5


def SyncSession(shop: FakeServer) -> None:
    with SyncHost([shop.http()]) as host, host.session("chat-42") as chat:
        print(chat.call("mcp_shop_price", {"item": "rope"}).text)  # prints: 9.5


async def ServerStatus(host: Host) -> None:
    for status in host.status():
        print(status.name, status.state, status.tools, status.error)  # prints: shop connected 2 None


async def RefreshReport(host: Host) -> None:
    report = await host.refresh()
    print(report["shop"].ok, report["shop"].tools)  # prints: True 2


async def Plan(host: Host) -> None:
    from mooring import HostConfig

    plan = await host.apply(
        HostConfig(servers=(ServerConfig(name="later", command="later-mcp", start="lazy"),))
    )
    print([server.name for server in plan.start], plan.stop)  # prints: ['later'] ('shop',)


async def EventStream(host: Host) -> None:
    from mooring import CallFinished

    events = host.events(CallFinished)  # without an argument: all events
    await host.call("mcp_shop_price", {"item": "rope"})
    event = await anext(events)  # or: async for event in events
    print(event.tool, event.is_error)  # prints: price False


async def Login(host: Host) -> None:
    from mooring import MooringError

    try:
        login = await host.login("shop")
        print("Open", login.url)  # then: await login.done()
    except MooringError as problem:  # this server needs no login
        print(type(problem).__name__)  # prints: AuthNeeded


def SyncLogin(shop: FakeServer) -> None:
    from mooring import MooringError

    with SyncHost([shop.http()]) as host:
        try:
            login = host.login("shop")
            print("Open", login.url)  # then: login.done()
        except MooringError as problem:  # this server needs no login
            print(type(problem).__name__)  # prints: AuthNeeded
