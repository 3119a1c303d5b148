"""OpenAI's Responses and Chat APIs: tools as JSON, and the answers to the calls in a reply. Needs no package.

reply = await client.responses.create(model=…, input=items, tools=openai.tools(session))
items += [*reply.output, *await openai.results(session, reply)]
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal, overload

from mooring.adapters._common import (
    Answer,
    AnySource,
    Bridge,
    Call,
    CompiledTool,
    SyncToolSource,
    ToolSource,
    answers,
    marked_parts,
    member,
    parsed,
    text,
)
from mooring.core.schema.compile import Dialect
from mooring.core.types import Result

__all__ = ["results", "tools"]

_DESCRIPTION = 1_024
"""Longest description in the Chat API."""


def tools(
    source: AnySource,
    *,
    api: Literal["responses", "chat"] = "responses",
    strict: bool = False,
    deferred: bool = False,
) -> list[dict[str, Any]]:
    """Return the tools that the model sees now, for `tools=` of a request.

    Args:
        source: A host or a session.
        api: The API whose format to return.
        strict: Return schemas for Structured Outputs, which the arguments always match.
        deferred: All tools of the catalog, by namespace, where those that the session does not show are
            found by OpenAI's own tool search. Responses only.
    """
    if deferred and api == "chat":
        raise ValueError("the Chat API has no tool search; use deferred=True with api='responses'")
    bridge = Bridge(source, _dialect(strict), unlisted=True)
    if api == "chat":
        return [{"type": "function", "function": _function(entry, strict)} for entry in bridge.tools()]
    if not deferred:
        return [{"type": "function", **_function(entry, strict)} for entry in bridge.tools()]
    spaces, rest = bridge.namespaces()
    found: list[dict[str, Any]] = [
        {
            "type": "namespace",
            "name": space.name,
            "description": space.description,
            "tools": [_deferrable(entry, strict) for entry in members],
        }
        for space, members in spaces
    ]
    return [*found, *(_deferrable(entry, strict) for entry in rest), {"type": "tool_search"}]


@overload
def results(source: ToolSource, reply: Any, *, strict: bool = False) -> Coroutine[Any, Any, list[Answer]]: ...
@overload
def results(source: SyncToolSource, reply: Any, *, strict: bool = False) -> list[Answer]: ...
def results(source: AnySource, reply: Any, *, strict: bool = False) -> Any:
    """Run the calls in `reply` and return the answers to send: input items, or tool messages for Chat.

    Args:
        source: The source that `tools` was given. With a `Host` or a `Session`, await the answers.
        reply: A response, a chat completion, or a message; the SDK's object or the same as a dict.
        strict: The same as for `tools`.
    """
    output = member(reply, "output")
    bridge = Bridge(source, _dialect(strict), unlisted=True)
    if output is not None:
        return answers(bridge, [_call(item) for item in output if _is_call(item)], _item)
    choices = member(reply, "choices")
    message = member(choices[0], "message") if choices else reply
    calls = [_chat_call(call) for call in member(message, "tool_calls") or ()]
    return answers(bridge, calls, _message)


def _dialect(strict: bool) -> Dialect:
    return "openai-strict" if strict else "openai"


def _function(entry: CompiledTool, strict: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "description": entry.description(_DESCRIPTION),
        "parameters": entry.schema,
        "strict": strict,
    }


def _deferrable(entry: CompiledTool, strict: bool) -> dict[str, Any]:
    later = {"defer_loading": True} if entry.deferred else {}
    return {"type": "function", **_function(entry, strict), **later}


def _is_call(item: Any) -> bool:
    return member(item, "type") == "function_call"


def _call(item: Any) -> Call:
    return Call(
        id=member(item, "call_id"), name=member(item, "name"), arguments=parsed(member(item, "arguments"))
    )


def _chat_call(call: Any) -> Call:
    function = member(call, "function")
    return Call(
        id=member(call, "id"), name=member(function, "name"), arguments=parsed(member(function, "arguments"))
    )


def _item(call: Call, result: Result) -> Answer:
    """OpenAI has no error flag: the text starts with "Error:"."""
    shown = marked_parts(result)
    output: Any = "\n".join(part.text for part in shown)
    if any(part.mime_type for part in shown):
        output = [
            {"type": "input_image", "image_url": part.url, "detail": "auto"}
            if part.mime_type
            else {"type": "input_text", "text": part.text}
            for part in shown
        ]
    return {"type": "function_call_output", "call_id": call.id, "output": output}


def _message(call: Call, result: Result) -> Answer:
    """Tool messages of the Chat API hold no images."""
    shown = f"Error: {text(result)}" if result.is_error else text(result)
    return {"role": "tool", "tool_call_id": call.id, "content": shown}
