"""A scripted chat model for LangChain."""

from __future__ import annotations

import base64
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from . import Script, Shown


class ScriptedModel(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self.bind(names=[tool.name for tool in tools])

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, *,
                  names: Any = (), **_: Any) -> ChatResult:  # fmt: skip
        script: Script = self.script
        script.shown = [_shown(message) for message in messages if isinstance(message, ToolMessage)]
        call = script.turn(names)
        said = (
            AIMessage("", tool_calls=[{"name": call[0], "args": call[1], "id": f"c{len(messages)}"}])
            if call
            else AIMessage(script.answer)
        )
        return ChatResult(generations=[ChatGeneration(message=said)])


def _shown(message: ToolMessage) -> Shown:
    content = message.content if isinstance(message.content, list) else [message.content]
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    images = [base64.b64decode(part["base64"]) for part in parts if part["type"] == "image"]
    return Shown("\n".join(texts), message.status == "error", images)
