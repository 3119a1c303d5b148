# pyright: basic
"""Simon Willison's llm.

with SyncHost.from_config() as host:
    print(llm.get_model("…").chain("…", tools=adapter.tools(host)).text())
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces, text
from mooring.core.types import Result

with extra("llm"):
    from llm import Attachment, Tool, ToolOutput

__all__ = ["tools"]


class LlmToolError(Exception):
    """A tool failed; llm shows the message to the model and goes on."""


def tools(source: AnySource) -> list[Tool]:
    """The tools that the model sees now, for `model.chain(tools=…)` and `conversation.chain(tools=…)`.

    Those of a `SyncHost` wait; those of a `Host` are awaited by models of `llm.get_async_model`.
    """
    bridge = Bridge(source, "plain")
    return [_tool(bridge, offer) for offer in bridge.offers()]


def _tool(bridge: Bridge, offer: CompiledTool) -> Tool:
    def call(**arguments: Any) -> ToolOutput:
        return _output(bridge.call_now(offer.name, arguments, offer.compiled))

    async def acall(**arguments: Any) -> ToolOutput:
        return _output(await bridge.call(offer.name, arguments, offer.compiled))

    return Tool(
        name=offer.name,
        description=offer.description(),
        input_schema=offer.schema,
        implementation=call if bridge.blocking else acall,
        plugin="mooring",
    )


def _output(result: Result) -> ToolOutput:
    if result.is_error:
        raise LlmToolError(text(result))
    shown = pieces(result)
    return ToolOutput(
        output="\n".join(piece.text for piece in shown if not piece.mime_type),
        attachments=[
            Attachment(type=piece.mime_type, content=piece.raw) for piece in shown if piece.mime_type
        ],
    )
