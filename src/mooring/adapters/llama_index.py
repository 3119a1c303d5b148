# pyright: basic
"""LlamaIndex.

FunctionAgent(llm=llm, tools=llama_index.tools(session))             # those of this moment
FunctionAgent(llm=llm, tool_retriever=llama_index.live(session))     # asks for them before each turn
"""

from __future__ import annotations

import json
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces
from mooring.core.types import Result

with extra("llama_index"):
    from llama_index.core.base.llms.types import ImageBlock, TextBlock
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput

__all__ = ["live", "tools"]

_DESCRIPTION = 1_024
"""What `ToolMetadata` takes at most."""


def tools(source: AnySource) -> list[AsyncBaseTool]:
    """The tools that the model sees now, for `FunctionAgent(tools=…)` or `AgentWorkflow`."""
    bridge = Bridge(source, "plain")
    return [_LlamaTool(bridge, offer) for offer in bridge.offers()]


def live(source: AnySource) -> ObjectRetriever[AsyncBaseTool]:
    """The tools of each moment, for `FunctionAgent(tool_retriever=…)`."""
    return _Retriever(Bridge(source, "plain", unlisted=True))


class _Metadata(ToolMetadata):
    """A description of a tool around a schema instead of a pydantic model."""

    def __init__(self, offer: CompiledTool) -> None:
        super().__init__(description=offer.description(_DESCRIPTION), name=offer.name, fn_schema=None)
        self._schema = offer.schema

    def get_parameters_dict(self) -> dict[str, Any]:
        return self._schema

    @property
    def fn_schema_str(self) -> str:
        return json.dumps(self._schema, ensure_ascii=False)


class _LlamaTool(AsyncBaseTool):
    def __init__(self, bridge: Bridge, offer: CompiledTool) -> None:
        self._bridge = bridge
        self._offer = offer
        self._metadata = _Metadata(offer)

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def __call__(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        return self.call(**arguments)

    def call(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        name = self._offer.name
        return _output(name, arguments, self._bridge.call_now(name, arguments, self._offer.compiled))

    async def acall(self, /, *_: Any, **arguments: Any) -> ToolOutput:
        name = self._offer.name
        return _output(name, arguments, await self._bridge.call(name, arguments, self._offer.compiled))


def _output(name: str, arguments: dict[str, Any], result: Result) -> ToolOutput:
    return ToolOutput(
        tool_name=name,
        blocks=[
            # Its blocks keep base64, not bytes.
            ImageBlock(image=piece.data.encode(), image_mimetype=piece.mime_type)
            if piece.mime_type
            # The agent does not tell its model of `is_error`.
            else TextBlock(text=f"Error: {piece.text}" if result.is_error else piece.text)
            for piece in pieces(result)
        ],
        raw_input=arguments,
        raw_output=result.structured if result.structured is not None else result.text,
        is_error=result.is_error,
        exception=result.error,
    )


class _Retriever(ObjectRetriever[AsyncBaseTool]):
    """Finds all tools for every question: what the model sees is up to the session."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def retrieve(self, str_or_query_bundle: Any) -> list[AsyncBaseTool]:
        return self._found(self._bridge.offers(), str_or_query_bundle)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[AsyncBaseTool]:
        return self._found(await self._bridge.fresh_offers(), str_or_query_bundle)

    def _found(self, offers: list[CompiledTool], query: Any) -> list[AsyncBaseTool]:
        # To make a call, agents retrieve with the name of the tool, which may be one that is not listed.
        if isinstance(query, str) and all(offer.name != query for offer in offers):
            hidden = self._bridge.named(query)
            offers = [*offers, hidden] if hidden is not None else offers
        return [_LlamaTool(self._bridge, offer) for offer in offers]
