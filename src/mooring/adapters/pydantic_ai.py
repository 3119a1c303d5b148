# pyright: basic
"""pydantic-ai: a toolset, asked for its tools before each request.

Agent(model, toolsets=[pydantic_ai.tools(session)])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces, text
from mooring.core.types import Result

with extra("pydantic_ai"):
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema

__all__ = ["tools"]

# The server checks its arguments: it knows its schema better than the dialect does.
_ANYTHING = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


def tools(source: AnySource, *, deferred: bool = False) -> AbstractToolset[Any]:
    """The tools that the model sees, for `Agent(toolsets=[…])`.

    Args:
        source: A host or a session.
        deferred: All tools of the catalog, where those that the session does not show are found by
            pydantic-ai's own tool search.
    """
    return _PydanticToolset(Bridge(source, "plain"), deferred)


class _PydanticToolset(AbstractToolset[Any]):
    def __init__(self, bridge: Bridge, deferred: bool) -> None:
        self._bridge = bridge
        self._deferred = deferred

    @property
    def id(self) -> str:
        return "mooring"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        offers = await self._bridge.fresh_offers(deferred=self._deferred)
        return {
            offer.name: _PydanticTool(
                toolset=self,
                tool_def=_definition(offer),
                max_retries=1,
                args_validator=_ANYTHING,
                offer=offer,
            )
            for offer in offers
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """The text and the images of the result; its structured value goes to the application.

        Raises:
            ToolFailed: the call failed; the model reads why and the run goes on.
        """
        compiled = tool.offer.compiled if isinstance(tool, _PydanticTool) else None
        result = await self._bridge.call(name, tool_args, compiled)
        if result.is_error:
            raise ToolFailed(text(result))
        return ToolReturn(return_value=_value(result), metadata={"structured_content": result.structured})


@dataclass(kw_only=True)
class _PydanticTool(ToolsetTool[Any]):
    """A tool that remembers what the model was shown."""

    offer: CompiledTool


def _definition(offer: CompiledTool) -> ToolDefinition:
    return ToolDefinition(
        name=offer.name,
        description=offer.description(),
        parameters_json_schema=offer.schema,
        defer_loading=offer.deferred,
        metadata={"server": offer.tool.server, "remote_name": offer.tool.remote_name},
    )


def _value(result: Result) -> Any:
    shown = [
        BinaryContent(piece.raw, media_type=piece.mime_type) if piece.mime_type else piece.text
        for piece in pieces(result)
    ]
    return shown if any(not isinstance(part, str) for part in shown) else "\n".join(map(str, shown))
