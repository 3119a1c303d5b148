"""What both eras of the protocol say, as values: which era a message is of, refusals, and envelopes.

Pure: dicts and bytes in, dicts and bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring import __version__
from mooring.net.message import INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR, RequestId, encode
from mooring.net.negotiate import HANDSHAKE_VERSIONS, MODERN_VERSIONS, UNSUPPORTED_VERSION, Era

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
    "is_id",
    "modern_stamp",
    "notice_body",
    "result_body",
]

INVALID_REQUEST, INVALID_PARAMS = -32600, -32602
HEADER_MISMATCH, MISSING_CAPABILITY = -32020, -32021
_PREFIX = "io.modelcontextprotocol/"
VERSION = _PREFIX + "protocolVersion"
CAPABILITIES = _PREFIX + "clientCapabilities"
LOG_LEVEL = _PREFIX + "logLevel"
SUBSCRIPTION = _PREFIX + "subscriptionId"
_SERVER = _PREFIX + "serverInfo"
SERVER_INFO: Mapping[str, str] = {"name": "mooring", "title": "mooring gateway", "version": __version__}
_BETWEEN_US = frozenset(
    ("progressToken", VERSION, CAPABILITIES, LOG_LEVEL, SUBSCRIPTION, _SERVER, _PREFIX + "clientInfo")
)
_STATUS = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}
"""HTTP statuses of the 2026 era, where they are not 400."""
_BAD_REQUEST = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, -32021, UNSUPPORTED_VERSION)
MAX_ID = 256


class Refusal(Exception):
    """A request that gets an error for its answer."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status or _STATUS.get(code, 400 if code in _BAD_REQUEST else 200)
        """Of the HTTP answer, in the 2026 era; before it most errors came with 200."""


def fields(value: object) -> dict[str, Any]:
    """The object, or an empty one where there is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def is_id(value: object) -> bool:
    """Whether this may be the id of a request."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)


def era_of_message(message: Mapping[str, Any], header: str | None) -> Era:
    """The era that a request is of; `header` is its `MCP-Protocol-Version`."""
    meta = fields(fields(message.get("params")).get("_meta"))
    if VERSION in meta or message.get("method") == "server/discover":
        return "modern"
    return "legacy" if header is None or header in HANDSHAKE_VERSIONS else "modern"


def modern_stamp(message: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` of a modern request, with all that it must hold.

    Raises:
        Refusal: something of it is missing, or the version is none of ours.
    """
    meta = fields(fields(message.get("params")).get("_meta"))
    version = meta.get(VERSION)
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"the request has no {VERSION!r} in its _meta")
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise Refusal(UNSUPPORTED_VERSION, f"protocol version {version[:40]!r} is not spoken here", data)
    if not isinstance(meta.get(CAPABILITIES), dict):
        raise Refusal(INVALID_PARAMS, f"the request has no {CAPABILITIES!r} in its _meta")
    return meta


def forwarded_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What of a client's `_meta` goes on: all but what concerns only the client and us."""
    return {key: value for key, value in meta.items() if key not in _BETWEEN_US}


def result_body(request_id: RequestId | None, result: Mapping[str, Any] | bytes) -> bytes:
    """An answer. A result that is bytes already is JSON, made for many."""
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
    """A result of ours for the 2026 era."""
    return {"resultType": "complete", **result, **more, "_meta": {_SERVER: SERVER_INFO}}
