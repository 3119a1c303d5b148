"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from mooring import Host, ServerConfig
from mooring.gateway import ClientBridge, asgi_app, serve_http
from mooring.testing import FakeServer


async def serve_http_(host: Host) -> None:
    async with serve_http(host) as serving:
        async with Host([ServerConfig(name="gateway", url=serving.url)]) as client:
            await client.ready()
            print((await client.call("mcp_gateway_mcp_shop_price", {"item": "rope"})).text)  # prints: 9.5


async def Serving(host: Host) -> None:
    async with serve_http(host, port=0) as serving:
        print(serving.url.endswith("/mcp"), serving.port > 0)  # prints: True True


async def serve_stdio(host: Host) -> None:
    from mooring.gateway import serve_stdio

    print(serve_stdio.__name__)  # prints: serve_stdio
    # await serve_stdio(host): serves standard input and output until the client closes them


async def ClientBridge_(shop: FakeServer) -> None:
    async with Host([shop.http()], relay=ClientBridge()) as host:  # questions of servers reach the client
        async with serve_http(host) as serving:
            print(serving.url.startswith("http://127.0.0.1:"))  # prints: True


async def asgi_app_(host: Host) -> None:
    app = asgi_app(host)  # uvicorn.run(app), or app.mount("/tools", asgi_app(host)) in Starlette
    print(callable(app))  # prints: True
