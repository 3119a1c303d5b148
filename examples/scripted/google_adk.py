"""A scripted model for Google's Agent Development Kit."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from . import Script, Shown


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    script: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        script: Script = self.script
        answers = [
            part.function_response
            for content in llm_request.contents
            for part in content.parts or ()
            if part.function_response
        ]
        script.shown = [_shown(answer) for answer in answers]
        declared = [
            declaration.name or ""
            for tool in llm_request.config.tools or ()
            for declaration in getattr(tool, "function_declarations", None) or ()
        ]
        call = script.turn(declared)
        part = (
            types.Part.from_function_call(name=call[0], args=call[1])
            if call
            else types.Part(text=script.answer)
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def _shown(answer: Any) -> Shown:
    response = answer.response
    images = [part.inline_data.data for part in answer.parts or ()]
    return Shown(str(response.get("output", response.get("error"))), "error" in response, images)
