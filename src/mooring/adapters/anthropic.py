"""Anthropic's Messages API: tools as JSON, the answers to a message, and tools for the SDK's tool runner.

    message = await client.messages.create(model=…, messages=messages, tools=anthropic.tools(session), …)
    messages += [{"role": "assistant", "content": message.content},
                 {"role": "user", "content": await anthropic.results(session, message)}]

Only `runner_tools` needs the package.
"""

from __future__ import annotations

from collections.abc import Coroutine
from importlib import import_module
from typing import Any, overload

from mooring.adapters._common import (
    Answer,
    AnySource,
    Bridge,
    Call,
    CompiledTool,
    SyncToolSource,
    ToolSource,
    answers,
    content_parts,
    extra,
    member,
)
from mooring.core.types import Result

__all__ = ["results", "runner_tools", "tools"]

_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def tools(source: AnySource, *, deferred: bool = False) -> list[dict[str, Any]]:
    """Return the tools that the model sees now, for `tools=` of a request.

    Args:
        source: A host or a session.
        deferred: Return all tools of the catalog; those that the session does not show are found by
            Anthropic's own tool search.
    """
    found: list[dict[str, Any]] = [
        _definition(entry) for entry in Bridge(source, "anthropic", unlisted=True).tools(deferred=deferred)
    ]
    return [dict(_SEARCH), *found] if deferred else found


@overload
def results(source: ToolSource, message: Any) -> Coroutine[Any, Any, list[Answer]]: ...
@overload
def results(source: SyncToolSource, message: Any) -> list[Answer]: ...
def results(source: AnySource, message: Any) -> Any:
    """Run the calls in `message` and return the `tool_result` blocks for the next user message.

    Args:
        source: The source that `tools` was given. With a `Host` or a `Session`, await the blocks.
        message: A message of the model; the SDK's object or the same as a dict.
    """
    calls = [
        Call(id=member(block, "id"), name=member(block, "name"), arguments=member(block, "input"))
        for block in member(message, "content") or ()
        if member(block, "type") == "tool_use"
    ]
    return answers(Bridge(source, "anthropic", unlisted=True), calls, _block)


def runner_tools(source: AnySource, *, deferred: bool = False) -> list[Any]:
    """Return the tools that the model sees now, for `client.beta.messages.tool_runner(tools=…)`.

    Those of a `SyncHost` or a `SyncSession` are for the `Anthropic` client, others for `AsyncAnthropic`.
    """
    with extra("anthropic"):
        sdk: Any = import_module("anthropic.lib.tools")

    bridge = Bridge(source, "anthropic")

    def content(result: Result) -> Any:
        if result.is_error:
            raise sdk.ToolError(_content(result))
        return _content(result)

    def made(entry: CompiledTool) -> Any:
        async def awaited(**arguments: Any) -> Any:
            return content(await bridge.call(entry.name, arguments, entry.compiled))

        def now(**arguments: Any) -> Any:
            return content(bridge.call_now(entry.name, arguments, entry.compiled))

        later: dict[str, Any] = {"defer_loading": True} if entry.deferred else {}
        wrap: Any = sdk.beta_tool if bridge.blocking else sdk.beta_async_tool
        return wrap(
            now if bridge.blocking else awaited,
            name=entry.name,
            description=entry.description(),
            input_schema=entry.schema,
            **later,
        )

    found = [made(entry) for entry in bridge.tools(deferred=deferred)]
    return [dict(_SEARCH), *found] if deferred else found


def _definition(entry: CompiledTool) -> dict[str, Any]:
    later = {"defer_loading": True} if entry.deferred else {}
    return {
        "name": entry.name,
        "description": entry.description(),
        "input_schema": entry.schema,
        **later,
    }


def _block(call: Call, result: Result) -> Answer:
    failed = {"is_error": True} if result.is_error else {}
    return {"type": "tool_result", "tool_use_id": call.id, "content": _content(result), **failed}


def _content(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": part.mime_type, "data": part.data},
        }
        if part.mime_type
        else {"type": "text", "text": part.text}
        for part in content_parts(result)
    ]
