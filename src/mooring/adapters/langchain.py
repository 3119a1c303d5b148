# pyright: basic
"""LangChain and LangGraph.

create_agent(model, langchain.tools(session))                      # those of this moment
create_agent(model, [], middleware=[langchain.live(session)])      # asks for them before each turn
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces, text
from mooring.core.types import Result

with extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[BaseTool]:
    """The tools that the model sees now, for `create_agent`, `ToolNode` or `bind_tools`."""
    bridge = Bridge(source, "plain")
    return [_tool(bridge, offer) for offer in bridge.offers()]


def live(source: AnySource) -> AgentMiddleware:
    """The tools of each moment, for `create_agent(middleware=[…])`."""
    return _Middleware(Bridge(source, "plain", unlisted=True))


class _LangChainTool(BaseTool):
    """Not a `StructuredTool`: its run takes members of its own, which arguments of a server may be called."""

    _bridge: Bridge = PrivateAttr()
    _offer: CompiledTool = PrivateAttr()

    def _run(self, /, *_: Any, **arguments: Any) -> tuple[Any, Any]:
        return _output(self._bridge.call_now(self.name, arguments, self._offer.compiled))

    async def _arun(self, /, *_: Any, **arguments: Any) -> tuple[Any, Any]:
        return _output(await self._bridge.call(self.name, arguments, self._offer.compiled))


def _tool(bridge: Bridge, offer: CompiledTool) -> _LangChainTool:
    made = _LangChainTool(
        name=offer.name,
        description=offer.description(),
        args_schema=offer.schema,
        response_format="content_and_artifact",
        # A message with status "error", which the model reads; without it the run would end.
        handle_tool_error=True,
        metadata={"server": offer.tool.server, "remote_name": offer.tool.remote_name},
    )
    made._bridge, made._offer = bridge, offer
    return made


def _output(result: Result) -> tuple[Any, Any]:
    """What the model reads, and the structured value for the application."""
    if result.is_error:
        raise ToolException(text(result))
    shown: list[Any] = [
        {"type": "image", "base64": piece.data, "mime_type": piece.mime_type}
        if piece.mime_type
        else {"type": "text", "text": piece.text}
        for piece in pieces(result)
    ]
    content = shown if any(part["type"] == "image" for part in shown) else text(result)
    return content, {"structured_content": result.structured}


class _Middleware(AgentMiddleware):
    """Adds the tools to each request, and runs those that the agent was not made with."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge
        self._shown: dict[str, BaseTool] = {}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._with(request, self._bridge.offers()))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._with(request, await self._bridge.fresh_offers()))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._found(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._found(request))

    def _with(self, request: Any, offers: list[CompiledTool]) -> Any:
        shown = {offer.name: _tool(self._bridge, offer) for offer in offers}
        self._shown.update(shown)  # other conversations may still call what this one no longer sees
        return request.override(tools=[*request.tools, *shown.values()])

    def _found(self, request: Any) -> Any:
        name = request.tool_call["name"]
        tool = self._shown.get(name)
        if tool is None and request.tool is None and (offer := self._bridge.named(name)) is not None:
            tool = _tool(self._bridge, offer)
        return request if tool is None else request.override(tool=tool)
