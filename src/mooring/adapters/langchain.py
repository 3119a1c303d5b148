# pyright: basic
"""LangChain and LangGraph.

create_agent(model, langchain.tools(session))                      # the current tools
create_agent(model, [], middleware=[langchain.live(session)])      # lists them before each turn
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra, text
from mooring.core.types import Result

with extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[BaseTool]:
    """Return the tools that the model sees now, for `create_agent`, `ToolNode` or `bind_tools`."""
    bridge = Bridge(source, "plain")
    return [_tool(bridge, entry) for entry in bridge.tools()]


def live(source: AnySource) -> AgentMiddleware:
    """Return the current tools before each turn, for `create_agent(middleware=[…])`."""
    return _Middleware(Bridge(source, "plain", unlisted=True))


class _LangChainTool(BaseTool):
    """Not a `StructuredTool`: its run has parameters whose names could clash with arguments."""

    _bridge: Bridge = PrivateAttr()
    _entry: CompiledTool = PrivateAttr()

    def _run(self, /, *_: Any, **arguments: Any) -> tuple[Any, Any]:
        return _output(self._bridge.call_now(self.name, arguments, self._entry.compiled))

    async def _arun(self, /, *_: Any, **arguments: Any) -> tuple[Any, Any]:
        return _output(await self._bridge.call(self.name, arguments, self._entry.compiled))


def _tool(bridge: Bridge, entry: CompiledTool) -> _LangChainTool:
    made = _LangChainTool(
        name=entry.name,
        description=entry.description(),
        args_schema=entry.schema,
        response_format="content_and_artifact",
        # Errors become messages with status "error" instead of ending the run.
        handle_tool_error=True,
        metadata={"server": entry.tool.server, "remote_name": entry.tool.remote_name},
    )
    made._bridge, made._entry = bridge, entry
    return made


def _output(result: Result) -> tuple[Any, Any]:
    """Return the content for the model, and the structured value for the application."""
    if result.is_error:
        raise ToolException(text(result))
    shown: list[Any] = [
        {"type": "image", "base64": part.data, "mime_type": part.mime_type}
        if part.mime_type
        else {"type": "text", "text": part.text}
        for part in content_parts(result)
    ]
    content = shown if any(part["type"] == "image" for part in shown) else text(result)
    return content, {"structured_content": result.structured}


class _Middleware(AgentMiddleware):
    """Adds the tools to each request, and runs tools that the agent was not created with."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge
        self._shown: dict[str, BaseTool] = {}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._with(request, self._bridge.tools()))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._with(request, await self._bridge.fresh_tools()))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._found(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._found(request))

    def _with(self, request: Any, entries: list[CompiledTool]) -> Any:
        shown = {entry.name: _tool(self._bridge, entry) for entry in entries}
        self._shown.update(shown)  # other conversations may still call them
        return request.override(tools=[*request.tools, *shown.values()])

    def _found(self, request: Any) -> Any:
        name = request.tool_call["name"]
        tool = self._shown.get(name)
        if tool is None and request.tool is None and (entry := self._bridge.named(name)) is not None:
            tool = _tool(self._bridge, entry)
        return request if tool is None else request.override(tool=tool)
