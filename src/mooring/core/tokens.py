"""What text costs a model: an estimate that needs no tokenizer, and says so in its name."""

from __future__ import annotations

import json
from typing import Any

from mooring.core.types import Tool

__all__ = ["definition", "dumps", "estimate", "tool_cost"]


def estimate(text: str) -> int:
    """Return about how many tokens a text has: four ASCII characters each, one for any other character."""
    if text.isascii():
        return len(text) // 4
    plain = len(text.encode("ascii", "ignore"))
    return plain // 4 + len(text) - plain


def definition(tool: Tool) -> dict[str, Any]:
    """Return what a model is given of a tool."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def tool_cost(tool: Tool) -> int:
    """Return about how many tokens the definition of a tool takes in a prompt."""
    return estimate(dumps(definition(tool)))


def dumps(value: Any) -> str:
    """Return compact JSON that can always be encoded; what is not JSON is named, never raised over."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_other)
    except (TypeError, ValueError, RecursionError):
        # Keys of several types, cycles, bottomless nesting: only a program can have built that.
        text = json.dumps({"error": "not representable as JSON"})
    # A lone surrogate is legal in a JSON text and fatal in the UTF-8 that everybody makes of it.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _other(value: Any) -> Any:
    try:
        return dict(value)
    except (TypeError, ValueError):
        return f"<{type(value).__name__}>"
