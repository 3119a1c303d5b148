"""Prompts as tools: a model that wants one calls `get_prompt_<name>` and reads its messages as a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.core.tokens import dumps
from mooring.core.types import Block, Message, Prompt, Result, Tool
from mooring.core.untrusted import quote

__all__ = ["MOST_ARGUMENTS", "fitting", "prompt_result", "prompt_tools"]

MOST_ARGUMENTS = 64
"""Arguments of one prompt that are looked at."""


def prompt_tools(prompts: Iterable[Prompt]) -> dict[str, Tool]:
    """Return a tool for each prompt, by the name it has beside its server's own tools."""
    tools: dict[str, Tool] = {}
    for prompt in prompts:
        name = f"get_prompt_{prompt.name}"
        tools.setdefault(name, _tool(prompt, name))
    return tools


def _tool(prompt: Prompt, name: str) -> Tool:
    given = prompt.arguments[:MOST_ARGUMENTS]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {argument["name"]: {"type": "string", **_description(argument)} for argument in given},
        "additionalProperties": False,
    }
    if required := [argument["name"] for argument in given if argument.get("required") is True]:
        schema["required"] = required
    return Tool(
        name=name,
        server=prompt.server,
        remote_name=prompt.name,
        title=prompt.title,
        description=f"Get the prompt {prompt.name!r}. {prompt.description}".strip(),
        input_schema=schema,
        annotations={"readOnlyHint": True},
        verb="prompt",
    )


def _description(argument: Mapping[str, Any]) -> dict[str, str]:
    text = argument.get("description")
    return {"description": text} if isinstance(text, str) and text else {}


def fitting(prompt: Prompt, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments as the texts that a prompt takes.

    Raises:
        ValueError: one is missing, unknown, or no plain value.
    """
    given = prompt.arguments[:MOST_ARGUMENTS]
    known = [argument["name"] for argument in given]
    if unknown := sorted(set(arguments) - set(known)):
        takes = f"it takes {', '.join(map(repr, known))}" if known else "it takes none"
        raise ValueError(f"it has no argument {unknown[0]!r}; {takes}")
    missing = [a["name"] for a in given if a.get("required") is True and a["name"] not in arguments]
    if missing:
        raise ValueError(f"it needs {', '.join(map(repr, missing))}")
    return {name: _text(name, value) for name, value in arguments.items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return dumps(value)
    raise ValueError(f"its argument {name!r} must be text, not {type(value).__name__}")


def prompt_result(prompt: Prompt, messages: Iterable[Message], duration: float) -> Result:
    """Return the messages of a prompt as a model reads them: each text marked as the server's own."""
    blocks = tuple(_shown(prompt, message) for message in messages)
    return Result(server=prompt.server, tool=prompt.name, blocks=blocks, duration=duration)


def _shown(prompt: Prompt, message: Message) -> Block:
    if message.text is None:
        return message.block
    return Block({"type": "text", "text": quote(message.text, prompt.server, role=message.role)})
