"""Arguments and failures of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring.core.json_values import not_json
from mooring.core.text import misspelt_arguments
from mooring.core.types import EMPTY, Block, Result, Tool
from mooring.core.value import replace
from mooring.errors import CallError, MooringError

__all__ = ["checked_arguments", "failed_result", "hinted", "not_called", "provider_failed"]


def checked_arguments(tool: Tool, arguments: object) -> Mapping[str, Any]:
    """Return the arguments of a call.

    Raises:
        CallError: They are not a mapping of JSON values.
    """
    if arguments is None:
        return EMPTY
    if not isinstance(arguments, Mapping):  # models send anything
        raise not_called(tool, f"arguments must be an object, not {type(arguments).__name__}")
    values = cast("Mapping[str, Any]", arguments)
    if problem := not_json(values):
        raise not_called(tool, f"the arguments are not JSON: {problem}")
    return values


def not_called(tool: Tool, problem: str) -> CallError:
    """Return the error of a call that was not sent."""
    return CallError(
        f"{tool.name!r} was not called: {problem}",
        server=tool.server,
        tool=tool.remote_name,
        outcome="not sent",
    )


def failed_result(problem: MooringError, name: str, tool: Tool | None, duration: float) -> Result:
    """Return the result of a call that failed."""
    return Result(
        server=tool.server if tool else "",
        tool=tool.remote_name if tool else name,
        blocks=(Block({"type": "text", "text": str(problem)}),),
        is_error=True,
        duration=duration,
        error=problem,
    )


def provider_failed(tool: Tool, bug: Exception) -> CallError:
    """Return the error of a call whose provider raised an exception. Its text may hold secrets, and is left
    out."""
    return CallError(
        f"{tool.name!r} failed: provider {tool.server!r} raised {type(bug).__name__}; see the log",
        server=tool.server,
        tool=tool.remote_name,
        outcome="unknown",
    )


def hinted(result: Result, tool: Tool, arguments: object) -> Result:
    """Return a failed result with a note on misspelt arguments, if there are any."""
    note = misspelt_arguments(tool.input_schema, arguments)
    if note is None:
        return result
    return replace(result, blocks=(*result.blocks, Block({"type": "text", "text": note})))
