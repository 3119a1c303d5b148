"""A scripted model for pydantic-ai."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
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
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from . import Script, Shown


def scripted_model(script: Script) -> FunctionModel:
    def next_call(messages: list[ModelMessage], info: AgentInfo) -> tuple[str, dict[str, Any]] | None:
        script.shown = [
            _shown(part)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return script.turn(tool.name for tool in info.function_tools)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        call = next_call(messages, info)
        return ModelResponse(parts=[ToolCallPart(*call) if call else TextPart(script.answer)])

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncGenerator[str | dict[int, DeltaToolCall], None]:
        call = next_call(messages, info)
        yield {0: DeltaToolCall(call[0], json.dumps(call[1]))} if call else script.answer

    return FunctionModel(respond, stream_function=stream)


def _shown(part: ToolReturnPart[Any]) -> Shown:
    content: list[Any] = part.content if isinstance(part.content, list) else [part.content]
    texts = [item for item in content if isinstance(item, str)]
    images = [item.data for item in content if isinstance(item, BinaryContent)]
    return Shown("\n".join(texts), part.outcome != "success", images)
