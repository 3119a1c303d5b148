"""Results and errors on their way to a client: as the server gave them, in the writing of the client's era.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.types import Result
from mooring.errors import ServerError, UnknownTool
from mooring.gateway.protocol import INVALID_PARAMS, Refusal
from mooring.net.negotiate import HANDSHAKE_VERSIONS, Era

__all__ = ["handshake_version", "no_resource", "outcome", "refusal", "shaped", "text"]

_NOT_FOUND = -32002
"""What a resource that is not there was called before 2026."""
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")


def outcome(result: Result, era: Era) -> dict[str, Any]:
    """The result of a call as the server gave it; what never reached a server is told to the model.

    Raises:
        Refusal: the server answered with an error of the protocol, or there is no such tool.
    """
    if isinstance(result.error, ServerError) and result.error.said:
        raise refusal(result.error, era)
    if isinstance(result.error, UnknownTool):
        raise Refusal(INVALID_PARAMS, str(result.error))
    if result.raw is not None:
        return shaped(result.raw, era)
    made: dict[str, Any] = {"content": result.content, "isError": result.is_error}
    if result.structured is not None:
        made["structuredContent"] = result.structured
    return shaped(made, era)


def shaped(raw: Mapping[str, Any], era: Era) -> dict[str, Any]:
    """A result as this era writes it; all else in it stays."""
    if era == "modern":
        return {"resultType": "complete", **raw}
    result = {key: value for key, value in raw.items() if key not in _MODERN_ONLY}
    if not isinstance(result.get("structuredContent"), dict | None):
        del result["structuredContent"]  # before 2026 it was an object; the text says the same
    return result


def refusal(problem: ServerError, era: Era) -> Refusal:
    """The server's own error."""
    code = INVALID_PARAMS if problem.code == _NOT_FOUND and era == "modern" else problem.code
    return Refusal(code, problem.said or str(problem), problem.data)


def no_resource(uri: str, era: Era) -> Refusal:
    return Refusal(INVALID_PARAMS if era == "modern" else _NOT_FOUND, "Resource not found", {"uri": uri})


def text(params: Mapping[str, Any], key: str) -> str:
    """A parameter that must be a text.

    Raises:
        Refusal: it is none.
    """
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise Refusal(INVALID_PARAMS, f"{key!r} must be a text")
    return value


def handshake_version(asked: object) -> str:
    """The version that we answer a handshake with: the client's, or else our newest."""
    return asked if isinstance(asked, str) and asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
