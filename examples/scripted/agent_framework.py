"""A scripted chat client for Microsoft Agent Framework."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)

from . import Script, Shown


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        if stream:
            return self._build_response_stream(self._updates(messages, options))
        return self._respond(messages, options)

    async def _updates(self, messages: Any, options: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        [said] = (await self._respond(messages, options)).messages
        yield ChatResponseUpdate(role="assistant", contents=said.contents)

    async def _respond(self, messages: Any, options: Any) -> ChatResponse:
        answers = [
            content
            for message in messages
            for content in message.contents
            if content.type == "function_result"
        ]
        self.script.shown = [_shown(answer) for answer in answers]
        call = self.script.turn(tool.name for tool in options.get("tools") or ())
        said: Any = (
            Content.from_function_call(f"c{len(answers)}", call[0], arguments=call[1])
            if call
            else Content.from_text(self.script.answer)
        )
        return ChatResponse(messages=[Message(role="assistant", contents=[said])])


def _shown(answer: Content) -> Shown:
    items = answer.items or []
    texts = [item.text or "" for item in items if item.type == "text"]
    images = [(item.uri or "").partition("base64,")[2] for item in items if item.type == "data"]
    return Shown("\n".join(texts), images=[base64.b64decode(image) for image in images])
