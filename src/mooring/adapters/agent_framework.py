# pyright: basic
"""Microsoft Agent Framework.

Agent(client=client, tools=agent_framework.tools(session))                   # those of this moment
Agent(client=client, context_providers=[agent_framework.live(session)])      # asks for them before each run
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces
from mooring.core.types import Result

with extra("agent_framework"):
    from agent_framework import Content, ContextProvider, FunctionInvocationContext, FunctionTool

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[FunctionTool]:
    """The tools that the model sees now, for `Agent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_tool(bridge, offer) for offer in bridge.offers()]


def live(source: AnySource) -> ContextProvider:
    """The tools of each run, for `Agent(context_providers=[…])`; what a call reveals joins in that run."""
    return _Provider(Bridge(source, "plain"))


def _tool(bridge: Bridge, offer: CompiledTool) -> FunctionTool:
    async def call(**arguments: Any) -> list[Content]:
        return _contents(await bridge.call(offer.name, arguments, offer.compiled))

    return _made(offer, call)


def _made(offer: CompiledTool, call: Any) -> FunctionTool:
    return FunctionTool(
        name=offer.name,
        description=offer.description(),
        func=call,
        input_model=offer.schema,
        additional_properties={"server": offer.tool.server, "remote_name": offer.tool.remote_name},
    )


def _contents(result: Result) -> list[Content]:
    """What is raised is hidden from the model ("Function failed") unless the application says otherwise: so a
    failure is told as text."""
    about = {"is_error": result.is_error, "structured_content": result.structured}
    return [
        Content.from_data(piece.raw, piece.mime_type)
        if piece.mime_type
        else Content.from_text(
            f"Error: {piece.text}" if result.is_error else piece.text, additional_properties=dict(about)
        )
        for piece in pieces(result)
    ]


class _Provider(ContextProvider):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__("mooring")
        self._bridge = bridge

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        shown: set[str] = set()
        context.extend_tools(self.source_id, await self._new(shown))

    async def _new(self, shown: set[str]) -> list[FunctionTool]:
        """The tools that this run has not been shown yet."""
        offers = [offer for offer in await self._bridge.fresh_offers() if offer.name not in shown]
        shown.update(offer.name for offer in offers)
        return [self._tool(offer, shown) for offer in offers]

    def _tool(self, offer: CompiledTool, shown: set[str]) -> FunctionTool:
        # The framework finds the context by its type; no server calls an argument like this.
        async def call(mooring_context: FunctionInvocationContext, **arguments: Any) -> list[Content]:
            result = await self._bridge.call(offer.name, arguments, offer.compiled)
            if more := await self._new(shown):
                mooring_context.add_tools(more)
            return _contents(result)

        # Written as text by the import above; the framework looks at the object.
        call.__annotations__["mooring_context"] = FunctionInvocationContext
        return _made(offer, call)
