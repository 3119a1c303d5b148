"""Google's GenAI SDK: tools as the dicts that it takes, and the answers to the calls in a response.

    response = await client.aio.models.generate_content(
        model=…, contents=contents, config={"tools": google_genai.tools(session)})
    contents += [response.candidates[0].content,
                 {"role": "user", "parts": await google_genai.results(session, response)}]

Needs no package.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from mooring.adapters._common import (
    Answer,
    AnySource,
    Bridge,
    Call,
    SyncToolSource,
    ToolSource,
    answers,
    content_parts,
    fields,
    member,
)
from mooring.core.types import Result

__all__ = ["results", "tools"]

_IMAGES = frozenset(("image/png", "image/jpeg", "image/webp"))
"""Image types that a function response may hold."""


def tools(source: AnySource) -> list[dict[str, Any]]:
    """Return the tools that the model sees now, for `tools` in the configuration of a request."""
    declarations = [
        # In `parameters`, not `parameters_json_schema`: the dialect is that of Google's own `Schema`, which
        # says `nullable` where JSON Schema says null.
        {"name": entry.name, "description": entry.description(), "parameters": entry.schema}
        for entry in Bridge(source, "gemini", unlisted=True).tools()
    ]
    return [{"function_declarations": declarations}] if declarations else []


@overload
def results(source: ToolSource, response: Any) -> Coroutine[Any, Any, list[Answer]]: ...
@overload
def results(source: SyncToolSource, response: Any) -> list[Answer]: ...
def results(source: AnySource, response: Any) -> Any:
    """Run the calls in `response` and return the parts of the next content, whose role is `user`.

    Args:
        source: The source that `tools` was given. With a `Host` or a `Session`, await the parts.
        response: A response, or the content of its candidate; the SDK's object or the same as a dict.
    """
    candidates = member(response, "candidates")
    content = member(candidates[0], "content") if candidates else response
    calls = [
        Call(id=member(call, "id"), name=member(call, "name"), arguments=member(call, "args") or {})
        for part in member(content, "parts") or ()
        if (call := member(part, "function_call") or member(part, "functionCall")) is not None
    ]
    return answers(Bridge(source, "gemini", unlisted=True), calls, _part)


def _part(call: Call, result: Result) -> Answer:
    answer: dict[str, Any] = {"name": call.name, "response": fields(result)}
    if call.id is not None:
        answer["id"] = call.id
    shown = [
        {"inline_data": {"mime_type": part.mime_type, "data": part.raw}}
        for part in content_parts(result, _IMAGES)
        if part.mime_type
    ]
    if shown:
        answer["parts"] = shown
    return {"function_response": answer}
