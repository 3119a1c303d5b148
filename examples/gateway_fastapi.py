"""The gateway inside a FastAPI application: `/` is a page of the application, `/tools/mcp` is the gateway.

pip install mooring fastapi granian
granian --interface asgi examples.gateway_fastapi:app     # or: uvicorn examples.gateway_fastapi:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from mooring import Host, ServerConfig
from mooring.demo import command
from mooring.gateway import ClientBridge, asgi_app

program, *args = command("clock")
host = Host([ServerConfig(name="clock", command=program, args=tuple(args))], relay=ClientBridge())
gateway = asgi_app(host)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with host, gateway:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/tools", gateway)


@app.get("/")
async def home() -> dict[str, int]:
    return {"tools": len(host.catalog.tools)}
