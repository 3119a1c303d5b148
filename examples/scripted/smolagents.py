"""A scripted model for smolagents."""

from __future__ import annotations

from typing import Any

from smolagents import ChatMessage, MessageRole, Model
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from . import Script, Shown


class ScriptedModel(Model):
    def __init__(self, script: Script) -> None:
        super().__init__(model_id="scripted")
        self.script = script

    def generate(self, messages: Any, stop_sequences: Any = None, response_format: Any = None,
                 tools_to_call_from: Any = None, **_: Any) -> ChatMessage:  # fmt: skip
        # Failures and images come as more messages of this role.
        answers = [message for message in messages if message.role == MessageRole.TOOL_RESPONSE]
        self.script.shown = [_shown(message) for message in answers]
        names = [tool.name for tool in tools_to_call_from or () if tool.name != "final_answer"]
        name, arguments = self.script.turn(names) or ("final_answer", {"answer": self.script.answer})
        call = ChatMessageToolCall(
            id=f"c{len(answers)}",
            type="function",
            function=ChatMessageToolCallFunction(name=name, arguments=arguments),
        )
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def _shown(message: ChatMessage) -> Shown:
    content = message.content if isinstance(message.content, list) else [{"text": message.content}]
    text = "\n".join(str(part["text"]) for part in content if "text" in part)
    return Shown(text, is_error="Error" in text)
