"""The tool that stands for a server which wants a login."""

from __future__ import annotations

from mooring.core.names import AUTHENTICATE, LOGIN
from mooring.core.types import Tool

__all__ = ["login_tool"]


def login_tool(server: str) -> Tool:
    """The tool that begins a login to a server; no word of it is the server's own."""
    return Tool(
        name=AUTHENTICATE,
        server=server,
        remote_name=LOGIN,
        title="Log in",
        description=f"Log in to {server!r}, which wants that before it offers its tools or does more. "
        "Begins a login that a person finishes in a browser; the tools appear by themselves afterwards.",
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    )
