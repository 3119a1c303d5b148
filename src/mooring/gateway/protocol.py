"""JSON-RPC messages of both protocol eras: era of a request, errors, results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring import __version__
from mooring.core.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, UNSUPPORTED_VERSION
from mooring.core.types import Era, Result
from mooring.errors import ServerError, UnknownTool
from mooring.transport.message import INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR, RequestId, encode

__all__ = [
    "CAPABILITIES",
    "HANDSHAKE_VERSIONS",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LOG_LEVEL",
    "METHOD_NOT_FOUND",
    "MODERN_VERSIONS",
    "PARSE_ERROR",
    "SERVER_INFO",
    "SUBSCRIPTION",
    "VERSION",
    "Refusal",
    "era_of_message",
    "error_body",
    "fields",
    "forwarded_meta",
    "handshake_version",
    "is_id",
    "modern_stamp",
    "no_resource",
    "notice_body",
    "outcome",
    "refusal",
    "result_body",
    "shaped",
    "text",
]


INVALID_REQUEST, INVALID_PARAMS = -32600, -32602
HEADER_MISMATCH, MISSING_CAPABILITY = -32020, -32021
_PREFIX = "io.modelcontextprotocol/"
VERSION = _PREFIX + "protocolVersion"
CAPABILITIES = _PREFIX + "clientCapabilities"
LOG_LEVEL = _PREFIX + "logLevel"
SUBSCRIPTION = _PREFIX + "subscriptionId"
_SERVER = _PREFIX + "serverInfo"
CHOSEN_SERVER = "mooring/server"
"""Key in `_meta` of a request: the server that a method of an extension is for."""
SERVER_INFO: Mapping[str, str] = {"name": "mooring", "title": "mooring gateway", "version": __version__}
_NOT_FORWARDED = frozenset(
    (
        *("progressToken", VERSION, CAPABILITIES, LOG_LEVEL, SUBSCRIPTION, _SERVER, _PREFIX + "clientInfo"),
        CHOSEN_SERVER,
    )
)
_STATUS = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}
"""HTTP statuses of the 2026 era other than 400."""
_BAD_REQUEST = (
    PARSE_ERROR,
    INVALID_REQUEST,
    INVALID_PARAMS,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
MAX_ID = 256


class Refusal(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status or _STATUS.get(code, 400 if code in _BAD_REQUEST else 200)
        """HTTP status in the 2026 era; before, most errors have status 200."""


def fields(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def is_id(value: object) -> bool:
    """Whether this is a valid request id."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)


def era_of_message(message: Mapping[str, Any], header: str | None) -> Era:
    """Return the era of a request; `header` is its `MCP-Protocol-Version`."""
    meta = fields(fields(message.get("params")).get("_meta"))
    if VERSION in meta or message.get("method") == "server/discover":
        return "modern"
    return "legacy" if header is None or header in HANDSHAKE_VERSIONS else "modern"


def modern_stamp(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated `_meta` of a 2026 request.

    Raises:
        Refusal: A required field is missing, or the version is not supported.
    """
    meta = fields(fields(message.get("params")).get("_meta"))
    version = meta.get(VERSION)
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"the request has no {VERSION!r} in its _meta")
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise Refusal(UNSUPPORTED_VERSION, f"protocol version {version[:40]!r} is not supported", data)
    if not isinstance(meta.get(CAPABILITIES), dict):
        raise Refusal(INVALID_PARAMS, f"the request has no {CAPABILITIES!r} in its _meta")
    return meta


def forwarded_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a client's `_meta` that is forwarded to servers."""
    return {key: value for key, value in meta.items() if key not in _NOT_FORWARDED}


def result_body(request_id: RequestId | None, result: Mapping[str, Any] | bytes) -> bytes:
    """Return an encoded response. A result given as bytes is JSON that was encoded before."""
    if isinstance(result, bytes):
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (encode_value(request_id), result)
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_body(request_id: RequestId | None, refusal: Refusal) -> bytes:
    error: dict[str, Any] = {"code": refusal.code, "message": str(refusal)}
    if refusal.data is not None:
        error["data"] = refusal.data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def notice_body(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return encode(message)


def encode_value(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


def stamped(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a result of the gateway itself for the 2026 era."""
    return {"resultType": "complete", **result, **more, "_meta": {_SERVER: SERVER_INFO}}


_NOT_FOUND = -32002
"""Error code of an unknown resource before 2026."""
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")


def outcome(result: Result, era: Era) -> dict[str, Any]:
    """Return the server's result of a call; calls that reached no server become error results.

    Raises:
        Refusal: The server returned a JSON-RPC error, or the tool is unknown.
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
    """Return a result in the format of this era; unknown fields stay."""
    if era == "modern":
        return {"resultType": "complete", **raw}
    result = {key: value for key, value in raw.items() if key not in _MODERN_ONLY}
    if not isinstance(result.get("structuredContent"), dict | None):
        del result["structuredContent"]  # before 2026 it had to be an object; the content repeats it as text
    return result


def refusal(problem: ServerError, era: Era) -> Refusal:
    """Return the server's error for a client of this era."""
    code = INVALID_PARAMS if problem.code == _NOT_FOUND and era == "modern" else problem.code
    return Refusal(code, problem.said or str(problem), problem.data)


def no_resource(uri: str, era: Era) -> Refusal:
    return Refusal(INVALID_PARAMS if era == "modern" else _NOT_FOUND, "Resource not found", {"uri": uri})


def text(params: Mapping[str, Any], key: str) -> str:
    """Return a parameter that must be a non-empty string.

    Raises:
        Refusal: It is not.
    """
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise Refusal(INVALID_PARAMS, f"{key!r} must be a non-empty string")
    return value


def handshake_version(asked: object) -> str:
    """Return the version for a handshake: the client's if supported, else the newest."""
    return asked if isinstance(asked, str) and asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
