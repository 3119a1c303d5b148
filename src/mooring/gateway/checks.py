"""What a request's headers must and must not say. Pure: every function takes values and raises `Denied`
or `Refusal`."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from mooring.gateway.protocol import HEADER_MISMATCH, VERSION, Refusal, fields

__all__ = ["Denied", "check_agreement", "check_host", "check_origin", "check_single", "is_loopback"]

NAMED: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_SINGLE = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"content-type", b"content-length", b"last-event-id"),
        *(b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id"),
    )
)
_ENCODED = re.compile(r"=\?base64\?([A-Za-z0-9+/]*={0,2})\?=")
_LOCAL = ("localhost",)


class Denied(Exception):
    """A request that is answered with an HTTP status and nothing of the protocol."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address or name surely means this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in _LOCAL


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def check_host(header: str | None, *, local: bool, allowed: Sequence[str]) -> None:
    """Refuse a request that was sent to a name which somebody else may let point to us.

    An address in `Host` cannot be rebound, so where we listen to others it is taken; where we listen on
    loopback, only loopback is.
    """
    host = _host_of(header)
    if host is None:
        raise Denied(403, "the Host header is missing or malformed")
    if is_loopback(host) or host in allowed or (not local and _is_address(host)):
        return
    raise Denied(403, "this Host is not served here; name it in `gateway.allowed_hosts`")


def check_origin(origin: str | None, *, local: bool, allowed: Sequence[str]) -> None:
    """Refuse what a foreign web page makes a browser send."""
    if origin is None or origin in allowed:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if not (local and host and is_loopback(host)):
        raise Denied(403, "requests from this Origin are not taken; name it in `gateway.allowed_origins`")


@lru_cache(maxsize=1024)
def _host_of(header: str | None) -> str | None:
    if not header or any(letter in header for letter in "/@?#\\ "):
        return None
    try:
        parts = urlsplit(f"//{header}")
        return parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        return None


def check_single(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a header that stands twice: two programs on the way could each believe another one."""
    seen: set[bytes] = set()
    for name, _ in raw_headers:
        lower = name.lower()
        if lower in seen and (lower in _SINGLE or lower.startswith(b"mcp-")):
            raise Denied(400, f"the header {lower.decode('latin-1')[:60]!r} stands twice")
        seen.add(lower)


def check_agreement(headers: Mapping[str, str], message: Mapping[str, Any]) -> None:
    """Refuse a modern request whose headers say something else than its body.

    Raises:
        Refusal: they differ, or a header is missing.
    """
    method, params = message.get("method"), fields(message.get("params"))
    version = fields(params.get("_meta")).get(VERSION)
    if version is not None:
        _must_say(headers, "MCP-Protocol-Version", version)
    _must_say(headers, "Mcp-Method", method)
    named = NAMED.get(str(method))
    if named is not None and isinstance(params.get(named), str):
        _must_say(headers, "Mcp-Name", params[named], encoded=True)


def check_parameters(headers: Mapping[str, str], wanted: Mapping[tuple[str, ...], str], given: Any) -> None:
    """Refuse a call whose `Mcp-Param-…` headers say something else than its arguments.

    Args:
        headers: Of the request.
        wanted: For each argument that the tool wants in a header, its path and the header's name.
        given: The arguments.

    Raises:
        Refusal: one differs, is missing, or cannot be read.
    """
    for path, name in wanted.items():
        value: Any = given
        for key in path:
            value = fields(value).get(key)
        header = f"Mcp-Param-{name}"
        if value is None:
            if header in headers:
                raise _mismatch(header, "stands there, and the body has no such argument")
        else:
            _must_say(headers, header, _as_text(value), encoded=True)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _must_say(headers: Mapping[str, str], name: str, expected: object, *, encoded: bool = False) -> None:
    said = headers.get(name)
    if said is None:
        raise _mismatch(name, "is missing")
    value: str | None = said.strip(" \t")
    if encoded:
        value = _decoded(value or "")
    if value is None or value != expected:
        raise _mismatch(name, "says something else than the body")


def _decoded(value: str) -> str | None:
    """The text of a header's value; None when it cannot be read."""
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) > len("=?base64?=")):
        # Text without both marks is literal. Bytes beyond ASCII must come encoded: their charset is unknown.
        return value if value.isascii() and value.isprintable() else None
    found = _ENCODED.fullmatch(value)
    try:
        return b64decode(found[1], validate=True).decode() if found else None
    except ValueError:
        return None


def _mismatch(name: str, problem: str) -> Refusal:
    return Refusal(HEADER_MISMATCH, f"the header {name} {problem}")
