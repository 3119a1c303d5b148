"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

import mooring
from mooring import Host, HostConfig
from mooring.testing import FakeServer


async def Policy(shop: FakeServer) -> None:
    config = HostConfig(servers=(shop.http(),), policy=mooring.Policy(deny=("order",)))
    async with Host(config) as host:
        await host.ready()
        print(list(host.catalog.tools))  # prints: ['mcp_shop_price']


async def ApprovalRequest(shop: FakeServer) -> None:
    async def approve(request: mooring.ApprovalRequest) -> bool:
        print(request.name, dict(request.arguments))  # prints: mcp_shop_order {'item': 'rope'}
        return False

    config = HostConfig(servers=(shop.http(),), policy=mooring.Policy(ask=("order",)))
    async with Host(config, on_approval=approve) as host:
        result = await host.call("mcp_shop_order", {"item": "rope"})
        print(type(result.error).__name__)  # prints: PolicyDenied


async def Decision(shop: FakeServer) -> None:
    def decide(call: mooring.ToolCall) -> mooring.Decision:
        expensive = call.tool == "order" and call.arguments.get("count", 1) > 10
        return mooring.Decision(verdict="deny" if expensive else "allow", reason="at most 10")

    async with Host([shop.http()], decide=decide) as host:
        result = await host.call("mcp_shop_order", {"item": "rope", "count": 11})
        print(result.is_error, "at most 10" in result.text)  # prints: True True


async def ToolCall(shop: FakeServer) -> None:
    def decide(call: mooring.ToolCall) -> bool:
        print(call.server, call.tool, dict(call.arguments))  # prints: shop price {'item': 'rope'}
        return True

    async with Host([shop.http()], decide=decide) as host:
        await host.call("mcp_shop_price", {"item": "rope"})


async def Guard(shop: FakeServer) -> None:
    class LowerCase(mooring.Guard):
        async def before(self, call: mooring.ToolCall) -> dict[str, object]:
            return {name: str(value).lower() for name, value in call.arguments.items()}

    async with Host([shop.http()], guards=[LowerCase()]) as host:
        await host.call("mcp_shop_price", {"item": "ROPE"})
        print(shop.calls("price")[-1])  # prints: {'item': 'rope'}


async def SecretGuard(shop: FakeServer) -> None:
    async with Host([shop.http()], guards=[mooring.SecretGuard()]) as host:
        result = await host.call("mcp_shop_price", {"item": "ghp_" + "a1B2" * 9})
        print(type(result.error).__name__)  # prints: PolicyDenied


async def BudgetGuard(shop: FakeServer) -> None:
    guard = mooring.BudgetGuard(2, costs={"shop/order": 2}, path="budget.sqlite3")
    async with Host([shop.http()], guards=[guard]) as host:
        print((await host.call("mcp_shop_order", {"item": "rope"})).is_error)  # prints: False
        print((await host.call("mcp_shop_order", {"item": "rope"})).is_error)  # prints: True
