"""Serve the catalog of a running host as one MCP server, over HTTP or over standard input and output.

    from mooring.gateway import ClientBridge, serve_http

    async with Host.from_config(relay=ClientBridge()) as host, serve_http(host, port=8080) as serving:
        print(serving.url)

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mooring.gateway.asgi import asgi_app
    from mooring.gateway.serve import Serving, serve_http, serve_stdio
    from mooring.transport.forwarding import ClientBridge

__all__ = ["ClientBridge", "Serving", "asgi_app", "serve_http", "serve_stdio"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = {"ClientBridge": "mooring.transport.forwarding", "asgi_app": "mooring.gateway.asgi"}
    return getattr(import_module(homes.get(name, "mooring.gateway.serve")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
