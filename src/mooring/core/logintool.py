"""The tool that stands for a server which wants a login."""

from __future__ import annotations

from mooring.core.names import AUTHENTICATE, LOGIN
from mooring.core.types import Tool

__all__ = ["is_login", "login_tool"]


def login_tool(server: str, *, possible: bool = True) -> Tool:
    """The tool that begins a login to a server; no word of it is the server's own.

    Args:
        server: Its name.
        possible: Whether a login in a browser is possible. If not, the tool explains what to do instead.
    """
    description = (
        f"Log in to {server!r}, which wants that before it offers its tools or does more. "
        "Begins a login that a person finishes in a browser; the tools appear by themselves afterwards."
        if possible
        else f"Explain why {server!r} refuses access and what the user can do. A login in a browser is not "
        "possible; the tools appear when the credentials in its configuration are corrected."
    )
    return Tool(
        name=AUTHENTICATE,
        server=server,
        remote_name=LOGIN,
        title="Log in",
        description=description,
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    )


def is_login(tool: Tool) -> bool:
    """Whether a tool of the catalog is that one, under whatever name."""
    return tool.remote_name == LOGIN
