"""The audit log: what may be set, and what one line of it says. Who called what and how it ended, never
what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Literal, cast

from mooring.config.units import size
from mooring.config.validate import Settings, one_of, section, setting, some_text, whole, within
from mooring.core.redact import MASK, is_secret_name
from mooring.core.text import clean_line
from mooring.errors import CallError, MooringError, NotTrusted, PolicyDenied

__all__ = [
    "LONGEST_LINE",
    "AuditOutcome",
    "AuditSettings",
    "ShownArguments",
    "digest",
    "fingerprint",
    "line",
    "outcome_of",
    "read_audit",
    "sketch",
]

ShownArguments = Literal["hash", "redact", "none"]
AuditOutcome = Literal["ok", "error", "refused", "not sent", "failed", "unknown", "cancelled"]
"""`error`: the tool answered that it failed. `refused`: the policy, a person, the lock or a missing approval
was against it. `not sent`, `failed`, `unknown`: as in `CallError.outcome`."""

LONGEST_LINE = 8_192
_LONGEST_TEXT = 200
_LONGEST_NAME = 80
_MOST_ITEMS = 32
_DEEPEST = 6
_DEEPEST_HASHED = 64
_LARGEST_NUMBER = 2**1024
_OURS = frozenset(("time", "verb", "outcome", "error", "approval", "arguments"))
"""Fields whose words are our own."""
_WINDOW = 65_536
"""Characters of a text that are searched for secrets, of which the first few are shown."""


class AuditSettings(Settings):
    """Where every call is noted, and how much of it."""

    path: str = setting(some_text)
    arguments: ShownArguments = setting(one_of("hash", "redact", "none"), default="hash")
    """What a line tells of the arguments: a keyed hash, the values without secrets and cut, or nothing."""
    max_bytes: int = setting(within(size, least=65_536), default=16 * 2**20)
    """Size at which a file is put aside and a new one begun."""
    keep: int = setting(within(whole, least=1, most=1_000), default=8)
    """How many files that were put aside stay: `path.1` is the newest."""


def read_audit(value: object) -> AuditSettings:
    """The settings; a mere text is the path."""
    return AuditSettings(path=value) if isinstance(value, str) else section(AuditSettings)(value)


def outcome_of(error: BaseException | None, *, failed: bool = False) -> AuditOutcome:
    """How a call ended that brought this error, or none; `failed`: the tool answered that it did."""
    if error is None:
        return "error" if failed else "ok"
    if isinstance(error, CallError):
        return error.outcome
    if isinstance(error, PolicyDenied | NotTrusted):
        return "refused"
    if isinstance(error.__cause__, CallError):  # such as a resource that its server does not know
        return error.__cause__.outcome
    return "not sent" if isinstance(error, MooringError) else "unknown"


def fingerprint(arguments: object) -> bytes:
    """A hash of the arguments, the same for equal ones; guesses can be tried on it: see `digest`."""
    text = json.dumps(_plain(arguments, _DEEPEST_HASHED), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).digest()


def digest(key: bytes, found: bytes) -> str:
    """What a line shows of a fingerprint: with the key of the log in it, so that nobody without the key finds
    a short argument again by hashing guesses."""
    import hmac  # not needed before there is a log

    return hmac.new(key, found, sha256).hexdigest()


def _plain(value: object, depth: int) -> object:
    """The value as JSON can hold it, whatever it is."""
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
    """The value without secrets and within bounds: long texts cut, much and deep things counted."""
    if isinstance(value, str):
        return _cut(value, redact, _LONGEST_TEXT)
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
    seen = redact(text[:_WINDOW])  # before it is cut: half a secret would not be known as one
    if len(text) > _WINDOW and len(seen) < _WINDOW // 2:
        return MASK  # so many secrets that the end of the window could be shown, with half of one in it
    shown = seen[: 4 * most]
    if not (shown.isascii() and shown.isprintable()):
        shown = clean_line(shown)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def line(said: Mapping[str, Any], redact: Callable[[str], str]) -> bytes:
    """One line of JSON, at most `LONGEST_LINE` bytes: others' words without secrets, and without what a
    terminal would act on; `arguments` as they are, or left out if they are too long."""
    plain = {
        name: _cut(value, redact, _LONGEST_TEXT) if isinstance(value, str) and name not in _OURS else value
        for name, value in said.items()
        if value is not None
    }
    try:
        encoded = json.dumps(plain, allow_nan=False).encode()
    except ValueError:  # a number that JSON has no word for
        encoded = b""
    if not encoded or len(encoded) >= LONGEST_LINE:
        encoded = json.dumps({**plain, "arguments": "<too long to show>"}).encode()
    return encoded + b"\n"
