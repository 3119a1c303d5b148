# pyright: basic
"""LlamaIndex.

FunctionAgent(llm=llm, tools=llama_index.tools(session))             # the current tools
FunctionAgent(llm=llm, tool_retriever=llama_index.live(session))     # lists them before each turn
"""

from __future__ import annotations

import json
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, marked_parts
from mooring.core.types import Result

with extra("llama_index"):
    from llama_index.core.base.llms.types import ImageBlock, TextBlock
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput

__all__ = ["live", "tools"]

_DESCRIPTION = 1_024
"""Longest description in `ToolMetadata`."""


def tools(source: AnySource) -> list[AsyncBaseTool]:
    """Return the tools that the model sees now, for `FunctionAgent(tools=…)` or `AgentWorkflow`."""
    bridge = Bridge(source, "plain")
    return [_LlamaTool(bridge, entry) for entry in bridge.tools()]


def live(source: AnySource) -> ObjectRetriever[AsyncBaseTool]:
    """Return the current tools before each turn, for `FunctionAgent(tool_retriever=…)`."""
    return _Retriever(Bridge(source, "plain", unlisted=True))


class _Metadata(ToolMetadata):
    """Tool metadata with a JSON schema instead of a pydantic model."""

    def __init__(self, entry: CompiledTool) -> None:
        super().__init__(description=entry.description(_DESCRIPTION), name=entry.name, fn_schema=None)
        self._schema = entry.schema

    def get_parameters_dict(self) -> dict[str, Any]:
        return self._schema

    @property
    def fn_schema_str(self) -> str:
        return json.dumps(self._schema, ensure_ascii=False)


class _LlamaTool(AsyncBaseTool):
    def __init__(self, bridge: Bridge, entry: CompiledTool) -> None:
        self._bridge = bridge
        self._entry = entry
        self._metadata = _Metadata(entry)

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def __call__(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        return self.call(**arguments)

    def call(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        name = self._entry.name
        return _output(name, arguments, self._bridge.call_now(name, arguments, self._entry.compiled))

    async def acall(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        name = self._entry.name
        return _output(name, arguments, await self._bridge.call(name, arguments, self._entry.compiled))


def _output(name: str, arguments: dict[str, Any], result: Result) -> ToolOutput:
    return ToolOutput(
        tool_name=name,
        blocks=[
            # Image blocks hold base64.
            ImageBlock(image=part.data.encode(), image_mimetype=part.mime_type)
            if part.mime_type
            # The agent does not show `is_error` to its model.
            else TextBlock(text=part.text)
            for part in marked_parts(result)
        ],
        raw_input=arguments,
        raw_output=result.structured if result.structured is not None else result.text,
        is_error=result.is_error,
        exception=result.error,
    )


class _Retriever(ObjectRetriever[AsyncBaseTool]):
    """Returns all visible tools for every query."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def retrieve(self, str_or_query_bundle: Any) -> list[AsyncBaseTool]:
        return self._found(self._bridge.tools(), str_or_query_bundle)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[AsyncBaseTool]:
        return self._found(await self._bridge.fresh_tools(), str_or_query_bundle)

    def _found(self, entries: list[CompiledTool], query: Any) -> list[AsyncBaseTool]:
        # To run a call, agents query by tool name, which may be unlisted.
        if isinstance(query, str) and all(entry.name != query for entry in entries):
            hidden = self._bridge.named(query)
            entries = [*entries, hidden] if hidden is not None else entries
        return [_LlamaTool(self._bridge, entry) for entry in entries]
