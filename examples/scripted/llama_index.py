"""A scripted model for LlamaIndex."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from . import Script, Shown


class ScriptedModel(FunctionCallingLLM):
    script: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True)

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None,
                                 **_: Any) -> dict[str, Any]:  # fmt: skip
        return {"messages": chat_history or [], "tools": tools}

    def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[ToolSelection]:
        return response.message.additional_kwargs.get("calls", [])

    async def achat(self, messages: Any, tools: Any = (), **_: Any) -> ChatResponse:
        script: Script = self.script
        answers = [message for message in messages if message.role == MessageRole.TOOL]
        script.shown = [_shown(message) for message in answers]
        call = script.turn(tool.metadata.name for tool in tools)
        said = ChatMessage(role="assistant", content="" if call else script.answer)
        if call:
            name, arguments = call
            said.additional_kwargs["calls"] = [
                ToolSelection(tool_id=f"c{len(answers)}", tool_name=name, tool_kwargs=arguments)
            ]
        return ChatResponse(message=said, delta=str(said.content))

    async def astream_chat(self, messages: Any, **settings: Any) -> AsyncGenerator[ChatResponse, None]:
        response = await self.achat(messages, **settings)

        async def once() -> AsyncGenerator[ChatResponse, None]:
            yield response

        return once()

    def chat(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    stream_chat = complete = stream_complete = acomplete = astream_complete = chat


def _shown(message: ChatMessage) -> Shown:
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    images = [block.resolve_image().read() for block in message.blocks if isinstance(block, ImageBlock)]
    return Shown("\n".join(texts), images=images)
