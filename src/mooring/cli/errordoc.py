"""The JSON document that a command prints when it fails."""

from __future__ import annotations

import re
from typing import Any

from mooring.errors import (
    AuthNeeded,
    CallError,
    ConfigError,
    ConnectError,
    NotTrusted,
    ToolChanged,
    UnknownPrompt,
    UnknownResource,
    UnknownServer,
    UnknownTool,
)

__all__ = ["error_document"]

_NAMED = re.compile(r"`(mooring [^`\n]{1,200})`")
_FIELDS = ("server", "tool", "file", "place", "suggestions", "url", "outcome")


def error_document(message: str, code: int, problem: BaseException | None = None) -> dict[str, Any]:
    """`{"error": {"kind", "message", "exit_code", "next", ...}}`; what an error knows besides is added.

    Args:
        message: What standard error says.
        code: The exit code.
        problem: The exception; None when the command reported the failure itself.
    """
    kind = "Failed" if problem is None else type(problem).__name__
    if problem is None and code > 128:
        kind, message = "Interrupted", message or "A signal ended the command."
    known = {name: value for name in _FIELDS if (value := getattr(problem, name, None)) not in (None, "", ())}
    return {
        "error": {
            "kind": kind,
            "message": message or "The command failed.",
            "exit_code": code,
            "next": _next(message, problem),
            **known,
        }
    }


def _next(message: str, problem: BaseException | None) -> str | None:
    """The command to try next: the one that the message names, or the usual one for this kind of error."""
    if found := _NAMED.search(message):
        return found[1]
    match problem:
        case AuthNeeded():
            return f"mooring login {problem.server}"
        case NotTrusted():
            return f"mooring trust {problem.file}" if problem.file else "mooring trust"
        case ToolChanged():
            return f"mooring approve {problem.server}/{problem.tool}"
        case UnknownServer():
            return "mooring list"
        case UnknownTool():
            return "mooring tools"
        case UnknownResource():
            return "mooring resources"
        case UnknownPrompt():
            return "mooring prompts"
        case ConfigError() | ConnectError() | CallError():
            return "mooring doctor"
        case _:
            return None
