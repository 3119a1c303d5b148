"""The gateway inside a Litestar application: `/` is a page of the application, `/tools/mcp` is the gateway.

pip install mooring litestar uvicorn
uvicorn examples.gateway_litestar:app     # or: granian --interface asgi examples.gateway_litestar:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar, asgi, get

from mooring import Host, ServerConfig
from mooring.demo import command
from mooring.gateway import ClientBridge, asgi_app

program, *args = command("clock")
host = Host([ServerConfig(name="clock", command=program, args=tuple(args))], relay=ClientBridge())
gateway = asgi_app(host)


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with host, gateway:
        yield


@get("/")
async def home() -> dict[str, int]:
    return {"tools": len(host.catalog.tools)}


mounted = asgi("/tools", is_mount=True, copy_scope=True)(gateway)
app = Litestar([home, mounted], lifespan=[lifespan])
