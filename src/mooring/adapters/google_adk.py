# pyright: basic
"""Google's Agent Development Kit: a toolset, listed before each turn.

LlmAgent(name=…, model=…, tools=[google_adk.tools(session)])
"""

from __future__ import annotations

from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra, fields
from mooring.core.types import Result

with extra("google_adk"):
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types

__all__ = ["tools"]

_IMAGES = frozenset(("image/png", "image/jpeg", "image/webp"))
"""Image types that a function response may hold."""


def tools(source: AnySource) -> BaseToolset:
    """Return the tools that the model sees, for `LlmAgent(tools=[…])`."""
    return _AdkToolset(Bridge(source, "gemini", unlisted=True))


class _AdkToolset(BaseToolset):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge
        # Tools that a call selects must be visible in the next turn of the same invocation.
        self._use_invocation_cache = False

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        shown = [_AdkTool(self._bridge, entry) for entry in await self._bridge.fresh_tools()]
        return [*shown, _UnlistedTools(self._bridge, frozenset(tool.name for tool in shown))]


class _UnlistedTools(BaseTool):
    """Makes unlisted tools callable. Models do not see it."""

    def __init__(self, bridge: Bridge, shown: frozenset[str]) -> None:
        super().__init__(name="mooring_unlisted", description="Tools that are not listed.")
        self._bridge, self._shown = bridge, shown

    async def process_llm_request(self, *, tool_context: Any, llm_request: Any) -> None:
        for name in self._bridge.names():
            if name not in self._shown and name not in llm_request.tools_dict:
                llm_request.tools_dict[name] = _UnlistedTool(self._bridge, name)


class _UnlistedTool(BaseTool):
    """An unlisted tool, looked up when it is called."""

    def __init__(self, bridge: Bridge, name: str) -> None:
        super().__init__(name=name, description=name)
        self._bridge = bridge

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        return _answer(await self._bridge.call(self.name, args))


class _AdkTool(BaseTool):
    def __init__(self, bridge: Bridge, entry: CompiledTool) -> None:
        super().__init__(name=entry.name, description=entry.description())
        self._bridge = bridge
        self._entry = entry

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            # The dialect is that of Google's own `Schema`, which says `nullable` where JSON Schema says null.
            parameters=types.Schema.model_validate(self._entry.schema),
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        """`{"output": …}`, or `{"error": …}` for the model to read; images as parts beside it."""
        return _answer(await self._bridge.call(self._entry.name, args, self._entry.compiled))


def _answer(result: Result) -> dict[str, Any]:
    shown: dict[str, Any] = fields(result)
    images = [
        types.Part.from_bytes(data=part.raw, mime_type=part.mime_type)
        for part in content_parts(result, _IMAGES)
        if part.mime_type
    ]
    return {**shown, "images": images} if images else shown
