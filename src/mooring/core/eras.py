"""The two protocol eras, and the negotiation between them as a table. Pure.

`servers/negotiate.py` sends the requests, classifies each reply with the functions below, and does what
`TABLE` says. docs/architecture/eras.md shows the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from mooring.core.types import PROTOCOLS, Era

MODERN_VERSIONS = ("2026-07-28",)
HANDSHAKE_VERSIONS = tuple(version for version in PROTOCOLS if version not in MODERN_VERSIONS)
UNSUPPORTED_VERSION = -32022
MODERN_CODES = (-32020, -32021, UNSUPPORTED_VERSION)
"""Error codes that only servers of the modern era send."""
_UNREACHABLE = ("closed", "refused", "auth", "timeout", "too-large")
_REJECTED = (400, 404, 405, 406, 415)


def era_of(protocol: str | None) -> Era | None:
    """Return the era of a protocol version."""
    if protocol is None:
        return None
    return "modern" if protocol in MODERN_VERSIONS else "legacy"


Request = Literal["discover", "initialize"]
"""`server/discover` of the modern era, `initialize` of the handshake era."""
Outcome = Literal[
    "agreed",
    "other version",
    "common version",
    "unknown versions",
    "wrong version",
    "modern error",
    "refused",
    "rejected",
    "unclear",
    "failed",
]
"""`agreed`: a result with the version of the request. `other version`: a result without it.

Errors -32022: `common version`, it names a modern version that mooring speaks; `unknown versions`, it names
only versions that mooring does not speak; `wrong version`, all others. `modern error`: another code of the
modern era. `refused`: any other JSON-RPC error. `rejected`: an invalid result, or HTTP status 400, 404, 405,
406 or 415. `unclear`: another HTTP status. `failed`: no connection, no authorization, HTTP status 403, 429 or
500 and above."""
Reply = tuple[Request, Outcome] | Literal["silence"]
"""A reply to one of the requests, or no reply within `probe_timeout`."""
State = Literal[
    "discover",
    "discover, known",
    "discover, last",
    "discover, exact",
    "initialize",
    "initialize, first",
    "initialize, exact",
    "both, discover first",
    "both, initialize first",
    "initialize left, discover first",
    "initialize left, initialize first",
    "modern",
    "legacy",
    "error",
]
"""The requests without a reply, and how the negotiation began. `known`: the server spoke the modern era
before. `last`: nothing else is tried. `exact`: `protocol` is set. `left`: the other request failed."""
Action = Literal["send discover", "send initialize", "wait", "use"]
Failure = Literal["raise", "raise discover", "incompatible"]
"""`use`: the reply decides. `raise`: its error is raised; `raise discover`: that of `server/discover`."""
Row = tuple[State, Request, tuple[Outcome, ...], Action | Failure, State]

_VERSIONS: tuple[Outcome, ...] = ("common version", "unknown versions", "wrong version")
_ANSWERS: tuple[Outcome, ...] = (*_VERSIONS, "modern error", "refused")
_BEFORE: tuple[Outcome, ...] = ("modern error", "refused", "rejected", "unclear", "failed")
ERRORS: tuple[Outcome, ...] = (*_ANSWERS, "rejected", "unclear", "failed")
_NO_ANSWERS: tuple[Outcome, ...] = ("rejected", "unclear", "failed")
_NOT_THIS: tuple[Outcome, ...] = ("other version", *_ANSWERS, "rejected")

ROWS: tuple[Row, ...] = (
    ("discover", "discover", ("agreed",), "use", "modern"),
    ("discover", "discover", ("common version",), "send discover", "discover, last"),
    ("discover", "discover", ("unknown versions",), "incompatible", "error"),
    ("discover", "discover", ("modern error", "failed"), "raise", "error"),
    (
        "discover",
        "discover",
        ("other version", "wrong version", "refused", "rejected", "unclear"),
        "send initialize",
        "initialize",
    ),
    ("discover, last", "discover", ("agreed",), "use", "modern"),
    ("discover, last", "discover", ("other version",), "send initialize", "initialize"),
    ("discover, last", "discover", ERRORS, "raise", "error"),
    ("discover, exact", "discover", ("agreed",), "use", "modern"),
    ("discover, exact", "discover", _NOT_THIS, "incompatible", "error"),
    ("discover, exact", "discover", ("unclear", "failed"), "raise", "error"),
    ("initialize", "initialize", ("agreed",), "use", "legacy"),
    ("initialize", "initialize", ("other version",), "incompatible", "error"),
    ("initialize", "initialize", ERRORS, "raise", "error"),
    ("initialize, exact", "initialize", ("agreed",), "use", "legacy"),
    ("initialize, exact", "initialize", _NOT_THIS, "incompatible", "error"),
    ("initialize, exact", "initialize", ("unclear", "failed"), "raise", "error"),
    ("initialize, first", "initialize", ("agreed",), "use", "legacy"),
    ("initialize, first", "initialize", ("other version",), "incompatible", "error"),
    ("initialize, first", "initialize", _ANSWERS, "send discover", "discover, last"),
    ("initialize, first", "initialize", _NO_ANSWERS, "raise", "error"),
    ("both, discover first", "discover", ("agreed",), "use", "modern"),
    ("both, discover first", "discover", ("other version",), "wait", "initialize"),
    ("both, discover first", "discover", ERRORS, "wait", "initialize left, discover first"),
    ("both, discover first", "initialize", ("agreed",), "use", "legacy"),
    ("both, discover first", "initialize", ("other version",), "incompatible", "error"),
    ("both, discover first", "initialize", _VERSIONS, "wait", "discover, last"),
    ("both, discover first", "initialize", _BEFORE, "raise", "error"),
    ("both, initialize first", "discover", ("agreed",), "use", "modern"),
    ("both, initialize first", "discover", ("other version",), "wait", "initialize"),
    ("both, initialize first", "discover", ERRORS, "wait", "initialize left, initialize first"),
    ("both, initialize first", "initialize", ("agreed",), "use", "legacy"),
    ("both, initialize first", "initialize", ("other version",), "incompatible", "error"),
    ("both, initialize first", "initialize", _ANSWERS, "wait", "discover, last"),
    ("both, initialize first", "initialize", _NO_ANSWERS, "raise", "error"),
    ("initialize left, discover first", "initialize", ("agreed",), "use", "legacy"),
    ("initialize left, discover first", "initialize", ("other version",), "incompatible", "error"),
    ("initialize left, discover first", "initialize", _VERSIONS, "raise discover", "error"),
    ("initialize left, discover first", "initialize", _BEFORE, "raise", "error"),
    ("initialize left, initialize first", "initialize", ("agreed",), "use", "legacy"),
    ("initialize left, initialize first", "initialize", ("other version",), "incompatible", "error"),
    ("initialize left, initialize first", "initialize", _ANSWERS, "raise discover", "error"),
    ("initialize left, initialize first", "initialize", _NO_ANSWERS, "raise", "error"),
)
_SILENCE: Mapping[tuple[State, Reply], tuple[Action | Failure, State]] = {
    ("discover", "silence"): ("send initialize", "both, discover first"),
    ("initialize, first", "silence"): ("send discover", "both, initialize first"),
}


def _table(rows: Iterable[Row]) -> dict[tuple[State, Reply], tuple[Action | Failure, State]]:
    table = dict(_SILENCE)
    for state, request, outcomes, action, after in rows:
        for outcome in outcomes:
            table[state, (request, outcome)] = (action, after)
            if state == "discover":  # the same without a limit for silence
                table["discover, known", (request, outcome)] = (action, after)
    return table


TABLE = _table(ROWS)
"""What to do in a state when a reply arrives, and the next state. In other states silence is ignored."""


def start(protocol: str, spoken: Era | None, preferred: Era) -> tuple[Request, State]:
    """Return the first request, and the state after it.

    Args:
        protocol: The `protocol` of the configuration: `auto`, or a version.
        spoken: The era that the server spoke before, if known.
        preferred: The era to try first when it is not known.
    """
    if protocol != "auto":
        exact = era_of(protocol) == "modern"
        return ("discover", "discover, exact") if exact else ("initialize", "initialize, exact")
    if spoken == "legacy":
        return "initialize", "initialize"
    if spoken is None and preferred == "legacy":
        return "initialize", "initialize, first"
    return "discover", "discover, known" if spoken == "modern" else "discover"


def discover_outcome(result: Mapping[str, Any], version: str) -> Outcome:
    """Return the outcome of a `server/discover` that was sent with `version`."""
    return "agreed" if version in texts(result.get("supportedVersions")) else "other version"


def initialize_outcome(result: Mapping[str, Any], newest: str) -> Outcome:
    """Return the outcome of an `initialize` with `newest`; the server may choose an older version."""
    version = result.get("protocolVersion")
    return "agreed" if version in HANDSHAKE_VERSIONS and version <= newest else "other version"


def failure_outcome(kind: str, status: int | None, code: int, data: object) -> Outcome:
    """Return the outcome of a request that failed.

    Args:
        kind: Where it failed, as in `WireError.kind`.
        status: The HTTP status, if there was one.
        code: The code of the JSON-RPC error.
        data: The data of the JSON-RPC error.
    """
    if kind in _UNREACHABLE or (kind == "status" and (status in (403, 429) or (status or 0) >= 500)):
        return "failed"
    if code == UNSUPPORTED_VERSION:
        theirs = supported(data)
        if any(version in theirs for version in MODERN_VERSIONS):
            return "common version"
        known = not theirs or any(version in HANDSHAKE_VERSIONS for version in theirs)
        return "wrong version" if known else "unknown versions"
    if code in MODERN_CODES:
        return "modern error"
    if kind == "answer":
        return "refused"
    return "rejected" if kind == "invalid" or status in _REJECTED else "unclear"


def supported(data: object) -> list[str]:
    """Return the versions that the data of an error -32022 names."""
    return texts(cast("dict[str, Any]", data).get("supported")) if isinstance(data, dict) else []


def texts(value: object) -> list[str]:
    """Return the strings in a JSON array; an empty list for any other value."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
