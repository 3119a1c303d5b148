"""A scripted model for OpenAI's Agents SDK."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from . import Script, Shown


class ScriptedModel(Model):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any,  # noqa: A002
                           *_: Any, **__: Any) -> ModelResponse:  # fmt: skip
        answers = [
            item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"
        ]
        self.script.shown = [_shown(answer["output"]) for answer in answers]
        call = self.script.turn(tool.name for tool in tools)
        output: Any
        if call is not None:
            name, arguments = call
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{len(answers)}", name=name, arguments=json.dumps(arguments)
            )
        else:
            said = ResponseOutputText(type="output_text", text=self.script.answer, annotations=[])
            output = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[said]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    async def stream_response(self, *given: Any, **settings: Any) -> AsyncGenerator[Any, None]:
        reply = await self.get_response(*given, **settings)
        about: dict[str, Any] = {"id": "r", "created_at": 0, "model": "scripted", "object": "response"}
        about |= {"tool_choice": "auto", "tools": [], "parallel_tool_calls": False}
        done = Response(output=reply.output, **about)  # pyright: ignore[reportArgumentType] (fewer kinds of items)
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=done)


def _shown(output: Any) -> Shown:
    parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    images = [part["image_url"].partition("base64,")[2] for part in parts if part["type"] == "input_image"]
    return Shown("\n".join(texts), images=[base64.b64decode(image) for image in images])
