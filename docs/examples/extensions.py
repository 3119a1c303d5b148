"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from typing import Any

from mooring import Host, SyncHost
from mooring.testing import FakeServer


async def View(app: FakeServer) -> None:
    async with Host([app.http()]) as host:
        await host.ready()
        view = await host.view("mcp_app_cart")
        print(view.html)  # prints: <h1>Cart</h1>
        print(view.csp.split(";")[0])  # prints: default-src 'none'


async def ViewBridge(app: FakeServer) -> None:
    sent: list[dict[str, Any]] = []  # deliver these to the page with postMessage
    async with Host([app.http()]) as host:
        await host.ready()
        bridge = (await host.view("mcp_app_cart")).bridge(sent.append)
        await bridge.receive({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        print(sent[0]["id"], sent[0]["result"])  # prints: 1 {}


def SyncView(app: FakeServer) -> None:
    with SyncHost([app.http()]) as host:
        host.ready()
        print(host.view("mcp_app_cart").html)  # prints: <h1>Cart</h1>


def SyncViewBridge(app: FakeServer) -> None:
    sent: list[dict[str, Any]] = []
    with SyncHost([app.http()]) as host:
        host.ready()
        bridge = host.view("mcp_app_cart").bridge(sent.append)
        bridge.receive({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        print(sent[0]["id"], sent[0]["result"])  # prints: 1 {}
