"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from mooring import Host
from mooring.agents import Engine, EventBus, McpBridgeExtension, McpManager, McpRun, McpToolProvider
from mooring.testing import FakeServer


def McpManager_(shop: FakeServer) -> None:
    with McpManager() as manager:
        manager.connect_all([shop.http()])
        print(manager.call_tool("price", {"item": "rope"}).raw_text)  # prints: 9.5


def McpToolInfo(shop: FakeServer) -> None:
    with McpManager() as manager:
        tool = manager.connect_all([shop.http()])[-1]
        print(tool.server_name, tool.name, tool.description)  # prints: shop price What an item costs.


def McpCallResult(shop: FakeServer) -> None:
    with McpManager() as manager:
        manager.connect_all([shop.http()])
        result = manager.call_tool("price", {"item": "rope"})
        print(result.is_error, result.raw_text)  # prints: False 9.5


def McpRun_(shop: FakeServer) -> None:
    with McpRun([shop.http()]) as run:
        print(run.prompt.splitlines()[0])  # prints: MCP_TOOLS:


def StepResult(shop: FakeServer) -> None:
    with McpRun([shop.http()]) as run:
        params = {"tool_name": "price", "arguments": {"item": "rope"}}
        step = run.execute({"type": "mcp_call", "params": params})
        print(step.status, step.output)  # prints: completed 9.5


def EventBus_(shop: FakeServer) -> None:
    bus = EventBus()
    bus.subscribe("*", lambda name, payload: print(name))
    with McpRun([shop.http()], bus=bus):
        pass
    # prints: mcp_servers_connected
    # prints: mcp_servers_disconnected


def mcp_tools_section(shop: FakeServer) -> None:
    from mooring.agents import mcp_tools_section

    with McpManager() as manager:
        print(mcp_tools_section(manager.connect_all([shop.http()])).splitlines()[0])  # prints: MCP_TOOLS:


async def McpBridgeExtension_(shop: FakeServer) -> None:
    class Context:
        def get_secret(self, name: str) -> str | None:
            return None

    server = {"alias": "shop", "transport": "streamable-http", "url": shop.url}
    extension = McpBridgeExtension({"id": "mcp", "config": {"servers": [server]}})
    await extension.initialize(Context())
    await extension.start()
    print([tool.name for tool in extension.get_tools()])  # prints: ['mcp_shop_order', 'mcp_shop_price']
    await extension.stop()


async def FunctionTool(shop: FakeServer) -> None:
    from mooring.agents import FunctionTool

    async def invoke(context: object, arguments: str) -> str:
        return "9.5"

    tool = FunctionTool(name="price", description="", params_json_schema={}, on_invoke_tool=invoke)
    print(await tool.on_invoke_tool(None, "{}"))  # prints: 9.5


async def Engine_(shop: FakeServer) -> None:
    def hello(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    engine = Engine(hello).register_tool_provider(McpToolProvider([shop.http()]))
    async with engine:
        print((await engine.call("hello", {"name": "Ana"})).text)  # prints: hello Ana


async def McpToolProvider_(shop: FakeServer) -> None:
    provider = McpToolProvider([shop.http()])
    async with Engine().register_tool_provider(provider) as engine:
        await engine.refresh()
        print("mcp_shop_price" in engine.tools)  # prints: True


async def RefreshError(shop: FakeServer) -> None:
    from mooring.agents import RefreshError
    from mooring.testing import garbage

    async with Engine().register_tool_provider(McpToolProvider([shop.http()])) as engine:
        shop.fail("tools/list", garbage, times=None)
        try:
            await engine.refresh()
        except RefreshError as problem:
            print(list(problem.failures))  # prints: ['shop']


async def DeferredTool(host: Host) -> None:
    from mooring.agents import DeferredTool

    tool = DeferredTool(tool=host.catalog.tools["mcp_shop_price"], source=host)
    print((await tool({"item": "rope"})).text)  # prints: 9.5


async def register_factories(host: Host) -> None:
    from mooring.agents import register_factories

    registry: dict = {}
    register_factories(host, registry)
    print((await registry["mcp_shop_price"]()({"item": "rope"})).text)  # prints: 9.5


async def discovered_names(host: Host) -> None:
    from mooring.agents import discovered_names

    print(discovered_names(host))  # prints: ('mcp_shop_order', 'mcp_shop_price')


async def ContextProvider(reader: Host) -> None:
    from mooring import ContextProvider

    turn = await ContextProvider(reader, ["memo://*"], budget=4000).fetch()
    print("9 to 17" in turn.text, turn.included)  # prints: True ('memo://opening',)


async def TurnContext(reader: Host) -> None:
    from mooring import ContextProvider

    turn = await ContextProvider(reader, ["memo://*"], budget=100).fetch()
    print(turn.included, turn.left_out, dict(turn.failed))  # prints: ('memo://opening',) () {}
