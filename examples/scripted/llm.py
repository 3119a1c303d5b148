"""Scripted models for llm: one that waits, one that is awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import llm

from . import Script, Shown


class ScriptedModel(llm.Model):
    model_id = "scripted"
    supports_tools = True
    attachment_types = {"image/png"}  # noqa: RUF012 (llm declares it so)

    def __init__(self, script: Script) -> None:
        self.script = script

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        yield from _follow(self.script, prompt, response)


class ScriptedAsyncModel(llm.AsyncModel):
    model_id = "scripted"
    supports_tools = True
    attachment_types = {"image/png"}  # noqa: RUF012

    def __init__(self, script: Script) -> None:
        self.script = script

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any
    ) -> AsyncGenerator[str, None]:
        for said in _follow(self.script, prompt, response):
            yield said


def _follow(script: Script, prompt: Any, response: Any) -> Iterator[str]:
    # Each turn is a prompt of its own, with the results of the one before.
    for result in prompt.tool_results:
        images = [attachment.content for attachment in result.attachments]
        script.shown.append(Shown(result.output, result.exception is not None, images))
    call = script.turn(tool.name for tool in prompt.tools)
    if call:
        response.add_tool_call(llm.ToolCall(name=call[0], arguments=call[1]))
    else:
        yield script.answer
