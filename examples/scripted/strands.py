"""A scripted model for Strands Agents."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from strands.models import Model

from . import Script, Shown


class ScriptedModel(Model):
    def __init__(self, script: Script) -> None:
        self.script = script

    def update_config(self, **_: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any
    ) -> AsyncGenerator[Any, None]:
        answers = [
            block["toolResult"]
            for message in messages
            for block in message["content"]
            if "toolResult" in block
        ]
        self.script.shown = [_shown(answer) for answer in answers]
        call = self.script.turn(spec["name"] for spec in tool_specs or ())
        yield {"messageStart": {"role": "assistant"}}
        if call:
            name, arguments = call
            use = {"name": name, "toolUseId": f"c{len(answers)}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": self.script.answer}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}


def _shown(answer: Any) -> Shown:
    texts = [part["text"] for part in answer["content"] if "text" in part]
    images = [part["image"]["source"]["bytes"] for part in answer["content"] if "image" in part]
    return Shown("\n".join(texts), answer["status"] == "error", images)
