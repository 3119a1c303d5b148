"""JSON-RPC messages: encoding, decoding, responses and error codes."""

from __future__ import annotations

import json
import marshal
import math
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic_core import from_json

from mooring.errors import Outcome

if TYPE_CHECKING:
    pass

RequestId = int | str
Kind = Literal["closed", "timeout", "refused", "auth", "session", "status", "answer", "invalid", "too-large"]

PARSE_ERROR, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32601, -32602, -32603
CONNECTION_CLOSED, REQUEST_TIMEOUT = -32000, -32001
MAX_ID_DIGITS = 18
MAX_DEPTH = 150
"""Nesting levels of one message; deeper parts are left out."""
TOO_DEEP = f"[nested more than {MAX_DEPTH} levels deep]"
"""Replaces a part of an entry that was left out."""
ENTRY_PART = 5
"""The level of the values of an entry (such as the schema of a tool), which are left out as a whole."""
MAX_BRACKETS = 100_000
"""Brackets that are scanned to find deep nesting."""


LARGE = 2**20
"""Size in bytes above which equal strings of a message are not shared, because that takes too long."""
_AS_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 200
_INFINITY = struct.pack("<d", math.inf)[:7]
"""How `marshal` writes both infinities, without the last byte, which has the sign."""
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class WireError(Exception):
    """A request failed; `kind` says where, `outcome` whether the server may have acted on it."""

    def __init__(
        self,
        message: str,
        *,
        kind: Kind,
        outcome: Outcome,
        code: int = INTERNAL_ERROR,
        data: Any = None,
        status: int | None = None,
        retry_after: float | None = None,
        challenge: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.outcome: Outcome = outcome
        self.code = code
        self.data = data
        self.status = status
        """HTTP status, where there was one."""
        self.retry_after = retry_after
        self.challenge = challenge
        """`WWW-Authenticate` of a 401 or 403."""
        self.failure_reason: str | None = None
        """Details of the close of the transport, when that was the reason."""
        self.news = True
        """False when another request has already reported the same close of the transport."""


def closed(reason: str, outcome: Outcome) -> WireError:
    return WireError(reason, kind="closed", outcome=outcome, code=CONNECTION_CLOSED)


def not_offered(method: str) -> WireError:
    """Return the error response to a server request that is not supported."""
    return WireError(f"{method} is not offered", kind="answer", outcome="failed", code=METHOD_NOT_FOUND)


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the message as one line of JSON.

    Raises:
        ValueError, TypeError: It contains a value that is not JSON, such as NaN.
    """
    return _encode(message).encode()


def decode(line: bytes) -> Any:
    """Return the JSON value in `line`.

    Bytes that are not UTF-8 and lone surrogates become U+FFFD. NaN and infinities, which are not JSON but
    which Python servers write, become null; so do numbers that Python cannot represent (`1e999`, integers of
    thousands of digits). A part that is nested too deeply becomes `TOO_DEEP`, so that one bad entry does not
    affect the others.

    Raises:
        ValueError: It is not JSON, or too much of it is nested too deeply.
    """
    try:
        value = from_json(line, allow_inf_nan=False, cache_strings=len(line) < LARGE)
    except ValueError as problem:
        value = _decode_text(_without_depths(line) if "recursion" in str(problem) else line)
    return _repaired(value) if _may_overflow(line) and _has_infinities(value) else value


def _decode_text(line: bytes) -> Any:
    try:
        return from_json(line, allow_inf_nan=False)
    except ValueError:
        text = line.decode("utf-8", "replace")
        try:
            return _repaired(json.loads(text, parse_constant=_null, parse_int=_integer))
        except RecursionError:
            raise ValueError("nested too deeply") from None


@cache
def _bracket() -> re.Pattern[bytes]:
    """Return a pattern of the next bracket that skips values of up to three levels."""
    shallow = plain = rb'[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"'
    for _ in range(3):
        shallow = rb"%b|\{(?:%b)*+\}|\[(?:%b)*+\]" % (plain, shallow, shallow)
    return re.compile(rb"(?:%b)*+([\[\]{}])" % shallow, re.DOTALL)


def _without_depths(line: bytes) -> bytes:
    """Return the message with `TOO_DEEP` for every part of an entry that is nested too deeply."""
    kept: list[bytes] = []
    depth = copied = start = 0
    deep = False
    for number, bracket in enumerate(_bracket().finditer(line)):
        if number > MAX_BRACKETS:
            raise ValueError("nested too deeply")
        if bracket[1] in b"[{":
            depth += 1
            if depth == ENTRY_PART:
                start = bracket.start(1)
            deep = deep or depth > MAX_DEPTH
        else:
            if depth == ENTRY_PART and deep:
                kept += (line[copied:start], json.dumps(TOO_DEEP).encode())
                copied, deep = bracket.end(), False
            depth -= 1
    kept.append(line[copied:])
    return b"".join(kept)


def _null(constant: str) -> None:
    return None


def _integer(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return None


def _may_overflow(line: bytes) -> bool:
    """Whether a number in the text may be too large for a float. Quick: this runs for every message."""
    digits = line.translate(_AS_ZEROS)
    return b"0e000" in digits or b"0e+000" in digits or _MANY_DIGITS in digits


def _has_infinities(value: Any) -> bool:
    """Whether a number in the value was too large for a float: `from_json` reads `1e999` as infinity."""
    if _INFINITY not in marshal.dumps(value, 2):
        return False
    containers: list[Any] = [(value,)]
    for container in containers:  # grows during the iteration
        items: Iterable[Any] = container.values() if container.__class__ is dict else container
        for item in items:
            if isinstance(item, dict | list):
                containers.append(item)
            elif isinstance(item, float) and math.isinf(item):
                return True
    return False


def _repaired(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isinf(value) else value
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_repaired(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def answer_id(value: object) -> RequestId | None:
    """Return the id of a response as a key: `"7"` matches 7; None for an invalid id."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        number = value.isascii() and value.isdecimal() and len(value) <= MAX_ID_DIGITS
        return int(value) if number else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    """Return the value as a float; None when it is not a number, or too large."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def take_answer(message: Mapping[str, Any], *, status: int | None = None) -> dict[str, Any]:
    """Return the result of a response, or raise its error as a `WireError`."""
    error = message.get("error")
    if error is None:
        result = message.get("result")
        if isinstance(result, dict):
            return cast("dict[str, Any]", result)
        raise WireError(
            "the response has neither a result nor an error",
            kind="invalid",
            outcome="unknown",
            code=PARSE_ERROR,
            status=status,
        )
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    code, text = fields.get("code"), fields.get("message")
    raise WireError(
        text if isinstance(text, str) and text else "the server returned an error without a message",
        kind="answer",
        outcome="failed",
        code=code if isinstance(code, int) else INTERNAL_ERROR,
        data=fields.get("data"),
        status=status,
    )


def abandoned_response(method: str) -> dict[str, Any]:
    """Return the error response to a request whose cause was abandoned, or that took too long."""
    if method == "elicitation/create":
        return {"result": {"action": "cancel"}}
    return {"error": {"code": INTERNAL_ERROR, "message": "it was not answered in time"}}


def as_error(error: Exception) -> dict[str, Any]:
    """Return the error response to a request of the server that failed."""
    code = getattr(error, "code", INTERNAL_ERROR)
    # Only a `WireError` shows its text: other exceptions may contain data that the server must not see.
    text = str(error) if hasattr(error, "code") else "the client failed to answer"
    return {"code": code if isinstance(code, int) else INTERNAL_ERROR, "message": text}
