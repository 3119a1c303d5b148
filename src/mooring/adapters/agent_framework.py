# pyright: basic
"""Microsoft Agent Framework.

Agent(client=client, tools=agent_framework.tools(session))                   # the current tools
Agent(client=client, context_providers=[agent_framework.live(session)])      # lists them before each run
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, marked_parts
from mooring.core.types import Result

with extra("agent_framework"):
    from agent_framework import Content, ContextProvider, FunctionInvocationContext, FunctionTool

__all__ = ["live", "tools"]


def tools(source: AnySource) -> list[FunctionTool]:
    """Return the tools that the model sees now, for `Agent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_tool(bridge, entry) for entry in bridge.tools()]


def live(source: AnySource) -> ContextProvider:
    """Return the tools of each run, for `Agent(context_providers=[…])`. Revealed tools are added."""
    return _Provider(Bridge(source, "plain"))


def _tool(bridge: Bridge, entry: CompiledTool) -> FunctionTool:
    async def call(**arguments: Any) -> list[Content]:
        return _contents(await bridge.call(entry.name, arguments, entry.compiled))

    return _made(entry, call)


def _made(entry: CompiledTool, call: Any) -> FunctionTool:
    return FunctionTool(
        name=entry.name,
        description=entry.description(),
        func=call,
        input_model=entry.schema,
        additional_properties={"server": entry.tool.server, "remote_name": entry.tool.remote_name},
    )


def _contents(result: Result) -> list[Content]:
    """Return errors as text: by default the framework hides exceptions from the model ("Function failed")."""
    about = {"is_error": result.is_error, "structured_content": result.structured}
    return [
        Content.from_data(part.raw, part.mime_type)
        if part.mime_type
        else Content.from_text(part.text, additional_properties=dict(about))
        for part in marked_parts(result)
    ]


class _Provider(ContextProvider):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__("mooring")
        self._bridge = bridge

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        shown: set[str] = set()
        context.extend_tools(self.source_id, await self._new(shown))

    async def _new(self, shown: set[str]) -> list[FunctionTool]:
        """Return the tools that are new in this run."""
        entries = [entry for entry in await self._bridge.fresh_tools() if entry.name not in shown]
        shown.update(entry.name for entry in entries)
        return [self._tool(entry, shown) for entry in entries]

    def _tool(self, entry: CompiledTool, shown: set[str]) -> FunctionTool:
        # The framework finds the context by its type.
        async def call(mooring_context: FunctionInvocationContext, **arguments: Any) -> list[Content]:
            result = await self._bridge.call(entry.name, arguments, entry.compiled)
            if more := await self._new(shown):
                mooring_context.add_tools(more)
            return _contents(result)

        # The framework needs the class, not its name as text.
        call.__annotations__["mooring_context"] = FunctionInvocationContext
        return _made(entry, call)
