"""What an HTTP answer that is no answer means, in words and with its status kept."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from mooring.core.oauth import read_challenge
from mooring.core.redact import Redactor
from mooring.errors import Outcome
from mooring.net.message import INTERNAL_ERROR, Kind, WireError, decode
from mooring.net.pool import TooLargeBody, whole_body

if TYPE_CHECKING:
    import aiohttp

READ = 64 * 1024
SHOWN = 200


async def refusal(response: aiohttp.ClientResponse, *, session: bool, redact: Redactor) -> WireError:
    """The fault that a status of 300 and more means; `session`: one was named in the request."""
    status = response.status
    text = redact(await _text(response))  # before it is cut: half a secret would not be known as one
    error = _rpc_error(text)
    message = _words(status, text)
    kind: Kind = "status"
    outcome: Outcome = "unknown" if status in (502, 504) else "failed"
    if status == 401:
        kind, outcome = "auth", "not sent"
        message = "it wants a login (HTTP 401)"
    elif status == 403 and (asked := read_challenge(challenge_in(response))) is not None:
        if asked.wants_more:
            kind, outcome = "auth", "not sent"
            message = f"it wants more rights: {' '.join(asked.scopes) or 'it does not say which'} (HTTP 403)"
    elif session and (status == 404 or (status == 400 and "session" in text.lower())):
        kind, outcome = "session", "not sent"
        message = f"it has forgotten the session (HTTP {status})"
    elif error is not None:
        kind = "answer"
        message = error[1]
    return WireError(
        message,
        kind=kind,
        outcome=outcome,
        code=error[0] if error else INTERNAL_ERROR,
        data=error[2] if error else None,
        status=status,
        retry_after=_seconds(response.headers.get("Retry-After")),
        challenge=challenge_in(response),
    )


def challenge_in(response: aiohttp.ClientResponse) -> str | None:
    """What the response says of the ways to get in; several headers count as one."""
    return ", ".join(response.headers.getall("WWW-Authenticate", [])) or None


async def content_fault(response: aiohttp.ClientResponse, kind: str) -> WireError:
    """The fault that an answer of the wrong type means."""
    if response.status == 202:
        problem = "it took the request but gave no answer (HTTP 202)"
    else:
        text = await _text(response)
        page = "; that looks like a web page, perhaps a login" if "<html" in text.lower() else ""
        problem = f"the answer is of type {kind or 'unknown'!r}, not JSON{page}"
    return WireError(problem, kind="invalid", outcome="unknown", status=response.status)


async def _text(response: aiohttp.ClientResponse) -> str:
    try:
        return (await whole_body(response, READ)).decode("utf-8", "replace")
    except (TooLargeBody, ValueError):
        return ""


def _words(status: int, text: str) -> str:
    shown = " ".join(text.split())[:SHOWN]
    plain = f": {shown}" if shown and "<" not in shown[:1] else ""
    return f"HTTP {status}{plain}"


def _rpc_error(text: str) -> tuple[int, str, Any] | None:
    try:
        message = decode(text.encode())
    except ValueError:
        return None
    error = cast("dict[str, Any]", message).get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict):
        return None
    fields = cast("dict[str, Any]", error)
    code, words = fields.get("code"), fields.get("message")
    if not isinstance(code, int) or not isinstance(words, str):
        return None
    return code, words, fields.get("data")


def _seconds(value: str | None) -> float | None:
    """How long to wait by a `Retry-After`: a number of seconds, or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        then = parsedate_to_datetime(value)
        return max((then - datetime.now(then.tzinfo)).total_seconds(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return None
