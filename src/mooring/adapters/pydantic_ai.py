# pyright: basic
"""pydantic-ai: a toolset, listed before each request.

Agent(model, toolsets=[pydantic_ai.tools(session)])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra, text
from mooring.core.types import Result

with extra("pydantic_ai"):
    from pydantic_ai import BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema

__all__ = ["tools"]

# The server validates its arguments.
_ANYTHING = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


def tools(source: AnySource, *, deferred: bool = False) -> AbstractToolset[Any]:
    """Return the tools that the model sees, for `Agent(toolsets=[…])`.

    Args:
        source: A host or a session.
        deferred: Return all tools of the catalog; those that the session does not show are found by
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
        entries = await self._bridge.fresh_tools(deferred=self._deferred)
        return {
            entry.name: _PydanticTool(
                toolset=self,
                tool_def=_definition(entry),
                max_retries=1,
                args_validator=_ANYTHING,
                entry=entry,
            )
            for entry in entries
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the text and images for the model, and the structured value as metadata.

        Raises:
            ToolFailed: The call failed; the model sees the reason and the run continues.
        """
        compiled = tool.entry.compiled if isinstance(tool, _PydanticTool) else None
        result = await self._bridge.call(name, tool_args, compiled)
        if result.is_error:
            raise ToolFailed(text(result))
        return ToolReturn(return_value=_value(result), metadata={"structured_content": result.structured})


@dataclass(kw_only=True)
class _PydanticTool(ToolsetTool[Any]):
    """A tool with its compiled schema."""

    entry: CompiledTool


def _definition(entry: CompiledTool) -> ToolDefinition:
    return ToolDefinition(
        name=entry.name,
        description=entry.description(),
        parameters_json_schema=entry.schema,
        defer_loading=entry.deferred,
        metadata={"server": entry.tool.server, "remote_name": entry.tool.remote_name},
    )


def _value(result: Result) -> Any:
    shown = [
        BinaryContent(part.raw, media_type=part.mime_type) if part.mime_type else part.text
        for part in content_parts(result)
    ]
    return shown if any(not isinstance(part, str) for part in shown) else "\n".join(map(str, shown))
