"""A plain server of the SDK, which speaks both eras and asks its user through the session in each of them.

python dual.py stdio | http PORT | sse PORT
"""

from __future__ import annotations

import os
import signal
import sys

import mcp.types as T  # noqa: N812 -- as its own documentation writes it
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("dual", log_level="ERROR")
effects: list[str] = []


class Name(BaseModel):
    name: str


def asking() -> T.InputRequiredResult:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = T.ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
    return T.InputRequiredResult(
        request_state="asked", input_requests={"who": T.ElicitRequest(params=params)}
    )


@server.tool()
async def who(ctx: Context) -> str:
    """Ask during the call, after something was done."""
    effects.append("who")
    answer = await ctx.elicit("Who are you?", Name)
    return f"{answer.action}: {answer.data.name if answer.action == 'accept' else ''}"


@server.tool()
async def who_by_result(ctx: Context) -> str | T.InputRequiredResult:
    """Ask by the result of the call, as only the 2026 era can."""
    effects.append("who_by_result")
    if not ctx.input_responses:
        return asking()
    return f"by result: {ctx.input_responses['who'].content}"


@server.prompt()
async def greeting(ctx: Context) -> str | T.InputRequiredResult:
    """A prompt that asks by its result."""
    if not ctx.input_responses:
        return asking()
    return f"Greet {ctx.input_responses['who'].content}."


@server.tool()
def broken() -> T.CallToolResult:
    """A result that no client can read."""
    effects.append("broken")
    return T.CallToolResult.model_construct(content=[{"type": "nonsense"}])  # pyright: ignore[reportArgumentType]


@server.tool()
def done() -> str:
    """The effects so far, and the process."""
    return f"{os.getpid()} {','.join(effects)}"


@server.tool()
def spoken(ctx: Context) -> str:
    """The protocol version of this call."""
    return str(ctx.request_context.protocol_version)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        # The process serves many tests, and each asks only for its own effects.
        signal.signal(signal.SIGUSR1, lambda *_: effects.clear())
        way = {"http": "streamable-http", "sse": "sse"}[sys.argv[1]]
        server.run(way, host="127.0.0.1", port=int(sys.argv[2]))  # pyright: ignore[reportArgumentType]
