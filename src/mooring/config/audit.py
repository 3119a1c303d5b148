"""Settings and lines of the audit log: who called what and how it ended, without results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from hmac import digest as hmac_digest
from typing import Any, Literal, cast

from mooring.config.secret_scan import without_credentials
from mooring.config.validate import Settings, one_of, section, setting, size, some_text, whole, within
from mooring.core.redact import MASK, is_secret_name
from mooring.core.text import clean_line
from mooring.errors import CallError, MooringError, NotTrusted, PolicyDenied

__all__ = [
    "LONGEST_LINE",
    "AuditOutcome",
    "AuditSettings",
    "Fields",
    "ShownArguments",
    "digest",
    "fingerprint",
    "line",
    "members",
    "outcome_of",
    "read_audit",
    "sketch",
    "stamp",
]

ShownArguments = Literal["hash", "redact", "none"]
AuditOutcome = Literal["ok", "error", "refused", "withheld", "not sent", "failed", "unknown", "cancelled"]
"""`error`: the tool returned an error. `refused`: denied by the policy, a person, the lock or a missing
approval. `withheld`: the call was made, and a guard withheld its result. `not sent`, `failed`, `unknown`:
as in `CallError.outcome`."""

Fields = tuple[tuple[str, Any], ...]
"""Names and values of a line: those that repeat from line to line."""

LONGEST_LINE = 8_192
_LONGEST_TEXT = 200
_LONGEST_NAME = 80
_MOST_ITEMS = 32
_DEEPEST = 6
_DEEPEST_HASHED = 64
_LARGEST_NUMBER = 2**1024
_OURS = frozenset(("time", "verb", "outcome", "error", "approval", "arguments"))
"""Fields with mooring's own text."""
_WINDOW = 65_536
"""Characters of a text that are searched for secrets."""
# Made once: `json.dumps` with options makes an encoder for each text.
_hashed_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_line_json = json.JSONEncoder(allow_nan=False).encode


class AuditSettings(Settings):
    """Settings of the audit log."""

    path: str = setting(some_text)
    """The file. It is created with access for its owner only."""
    arguments: ShownArguments = setting(one_of("hash", "redact", "none"), default="hash")
    """How arguments are logged: a keyed hash, redacted and cut values, or nothing."""
    max_bytes: int = setting(within(size, least=65_536), default=16 * 2**20)
    """Size in bytes at which the file is rotated."""
    keep: int = setting(within(whole, least=1, most=1_000), default=8)
    """Number of rotated files; `path.1` is the newest."""


def read_audit(value: object) -> AuditSettings:
    """Return the settings; a text is the path."""
    return AuditSettings(path=value) if isinstance(value, str) else section(AuditSettings)(value)


def stamp(at: float) -> str:
    """Return a time as text, in UTC with milliseconds."""
    return f"{_second(int(at))}.{int(at * 1000) % 1000:03}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def outcome_of(error: BaseException | None, *, failed: bool = False) -> AuditOutcome:
    """Return the outcome of a call with this error or None; `failed`: the tool returned an error."""
    if error is None:
        return "error" if failed else "ok"
    if isinstance(error, CallError):
        return error.outcome
    if isinstance(error, PolicyDenied) and error.called:
        return "withheld"
    if isinstance(error, PolicyDenied | NotTrusted):
        return "refused"
    if isinstance(error.__cause__, CallError):  # such as an unknown resource
        return error.__cause__.outcome
    return "not sent" if isinstance(error, MooringError) else "unknown"


def fingerprint(arguments: object) -> bytes:
    """Return a hash of the arguments. Not safe to log: see `digest`."""
    plain = arguments if _is_plain(arguments) else _plain(arguments, _DEEPEST_HASHED)
    return sha256(_hashed_json(plain).encode()).digest()


def digest(key: bytes, found: bytes) -> str:
    """Return the fingerprint keyed with the key of the log, so that short arguments cannot be guessed without
    the key."""
    return hmac_digest(key, found, "sha256").hex()


def _is_plain(value: object) -> bool:
    """Whether a value is a flat object of texts, small integers, booleans and nulls: the usual case, which
    `_plain` would only copy."""
    if value.__class__ is not dict:
        return False
    for name, item in cast("dict[object, object]", value).items():
        kind = item.__class__
        if name.__class__ is not str or not (
            kind is str
            or kind is bool
            or item is None
            or (kind is int and -_LARGEST_NUMBER < cast("int", item) < _LARGEST_NUMBER)
        ):
            return False
    return True


def _plain(value: object, depth: int) -> object:
    """Return the value as JSON-serialisable data."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < _LARGEST_NUMBER else "<int>"
    if depth and isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(name): _plain(item, depth - 1) for name, item in items}
    if depth and isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in cast("list[object]", value)]
    return f"<{type(value).__name__}>"


def sketch(value: object, redact: Callable[[str], str], depth: int = _DEEPEST) -> object:
    """Return the value without secrets and texts that look like credentials, with long texts cut and large or
    deep values counted."""
    if isinstance(value, str):
        return _cut(value, lambda text: without_credentials(redact(text)), _LONGEST_TEXT)
    if isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        if not depth:
            return f"<{len(given)} items>"
        shown: dict[str, object] = {}
        for name, item in list(given.items())[:_MOST_ITEMS]:
            secret = is_secret_name(str(name)[:_WINDOW]) and item is not None
            shown[_cut(str(name), redact, _LONGEST_NAME)] = (
                MASK if secret else sketch(item, redact, depth - 1)
            )
        return shown | ({"…": f"<{len(given)} items>"} if len(given) > _MOST_ITEMS else {})
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        if not depth:
            return f"<{len(items)} items>"
        most = [sketch(item, redact, depth - 1) for item in items[:_MOST_ITEMS]]
        return [*most, f"<{len(items)} items>"] if len(items) > _MOST_ITEMS else most
    return _plain(value, 0)


def _cut(text: str, redact: Callable[[str], str], most: int) -> str:
    seen = redact(text[:_WINDOW])  # before cutting: half a secret would not be found
    if len(text) > _WINDOW and len(seen) < _WINDOW // 2:
        return MASK  # so many secrets that the end of the window could contain half of one
    shown = seen[: 4 * most]
    if not (shown.isascii() and shown.isprintable()):
        shown = clean_line(shown)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def members(fields: Fields, redact: Callable[[str], str]) -> str:
    """Return fields as members of a JSON object, without its braces. Texts are redacted and escaped."""
    return _line_json(_shown(fields, redact))[1:-1]


def _shown(fields: Iterable[tuple[str, Any]], redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        name: _cut(value, redact, _LONGEST_TEXT) if isinstance(value, str) and name not in _OURS else value
        for name, value in fields
        if value is not None
    }


def line(said: Mapping[str, Any], redact: Callable[[str], str]) -> bytes:
    """Return one line of JSON of at most `LONGEST_LINE` bytes. Texts are redacted and escaped for terminals;
    `arguments` are left out if they are too long."""
    plain = _shown(said.items(), redact)
    try:
        encoded = _line_json(plain).encode()
    except ValueError:  # NaN or infinity
        encoded = b""
    if not encoded or len(encoded) >= LONGEST_LINE:
        encoded = json.dumps({**plain, "arguments": "<too long to show>"}).encode()
    return encoded + b"\n"
