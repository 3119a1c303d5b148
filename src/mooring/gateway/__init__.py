"""Serve the catalog of a running host as one MCP server, over HTTP or over standard input and output.

    from mooring.gateway import ClientBridge, serve_http

    async with Host.from_config(relay=ClientBridge()) as host, serve_http(host, port=8080) as serving:
        print(serving.url)

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mooring.gateway.serve import Serving, serve_http, serve_stdio
    from mooring.transport.message import ClientBridge

__all__ = ["ClientBridge", "Serving", "serve_http", "serve_stdio"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "mooring.transport.message" if name == "ClientBridge" else "mooring.gateway.serve"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
