"""A scripted model for pydantic-ai."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from . import Script, Shown


def scripted_model(script: Script) -> FunctionModel:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        script.shown = [
            _shown(part)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        call = script.turn(tool.name for tool in info.function_tools)
        return ModelResponse(parts=[ToolCallPart(*call) if call else TextPart(script.answer)])

    return FunctionModel(respond)


def _shown(part: ToolReturnPart[Any]) -> Shown:
    content: list[Any] = part.content if isinstance(part.content, list) else [part.content]
    texts = [item for item in content if isinstance(item, str)]
    images = [item.data for item in content if isinstance(item, BinaryContent)]
    return Shown("\n".join(texts), part.outcome != "success", images)
