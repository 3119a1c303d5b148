# pyright: basic
"""Simon Willison's llm.

with SyncHost.from_config() as host:
    print(llm.get_model("…").chain("…", tools=adapter.tools(host)).text())
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra, text
from mooring.core.types import Result

with extra("llm"):
    from llm import Attachment, Tool, ToolOutput

__all__ = ["tools"]


class LlmToolError(Exception):
    """A tool failed; llm shows the message to the model and continues."""


def tools(source: AnySource) -> list[Tool]:
    """Return the tools that the model sees now, for `model.chain(tools=…)` and `conversation.chain(tools=…)`.

    Tools of a `SyncHost` block; tools of a `Host` need a model of `llm.get_async_model`.
    """
    bridge = Bridge(source, "plain")
    return [_tool(bridge, entry) for entry in bridge.tools()]


def _tool(bridge: Bridge, entry: CompiledTool) -> Tool:
    def call(**arguments: Any) -> ToolOutput:
        return _output(bridge.call_now(entry.name, arguments, entry.compiled))

    async def acall(**arguments: Any) -> ToolOutput:
        return _output(await bridge.call(entry.name, arguments, entry.compiled))

    return Tool(
        name=entry.name,
        description=entry.description(),
        input_schema=entry.schema,
        implementation=call if bridge.blocking else acall,
        plugin="mooring",
    )


def _output(result: Result) -> ToolOutput:
    if result.is_error:
        raise LlmToolError(text(result))
    shown = content_parts(result)
    return ToolOutput(
        output="\n".join(part.text for part in shown if not part.mime_type),
        attachments=[Attachment(type=part.mime_type, content=part.raw) for part in shown if part.mime_type],
    )
