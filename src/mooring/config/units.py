"""Durations and sizes as people write them: `30s`, `1h30m`, `16MiB`; a bare number is seconds or bytes."""

from __future__ import annotations

import re

__all__ = ["kind", "number", "seconds", "size"]

_UNITS = {
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_LARGEST = 10**15
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_STEP = rf"({_NUMBER})\s*([a-z]+)\s*"
_SIZE = rf"({_NUMBER})\s*([a-z]*)"

_DURATION_HELP = "write a number of seconds, or a text such as '500ms', '30s', '5m', '1h30m'"
_SIZE_HELP = "write a number of bytes, or a text such as '512KiB' or '16MiB'"


def kind(value: object) -> str:
    """Return the type of a value in words, for messages without the value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def number(value: object) -> float | None:
    """Return the number in `value`, a number or its text; None if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A bound that also keeps out infinity, NaN, and integers too large for a float.
        return float(value) if abs(value) < _LARGEST else None
    if isinstance(value, str):
        text = value.strip()
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
        return sign * float(digits) if re.fullmatch(_NUMBER, digits) else None
    return None


def seconds(value: object) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: it is not a duration, or negative.
    """
    plain = number(value)
    if plain is not None:
        if plain < 0:
            raise ValueError(f"must not be negative; {_DURATION_HELP}")
        return plain
    if not isinstance(value, str):
        raise ValueError(f"must be a duration, not {kind(value)}; {_DURATION_HELP}")
    text, total, at = value.strip().lower(), 0.0, 0
    while step := re.compile(_STEP).match(text, at):
        if step[2] not in _UNITS:
            break
        total += float(step[1]) * _UNITS[step[2]]
        at = step.end()
    if not text or at < len(text):
        raise ValueError(f"is not a duration; {_DURATION_HELP}")
    return total


def size(value: object) -> int:
    """Return the bytes of a size.

    Raises:
        ValueError: it is not a size, or negative.
    """
    plain = number(value)
    if plain is not None and plain >= 0 and plain.is_integer():
        return int(plain)
    found = re.fullmatch(_SIZE, value.strip().lower()) if isinstance(value, str) else None
    if found is None or not found[2] or found[2] not in _SIZES:
        raise ValueError(f"is not a size; {_SIZE_HELP}")
    return int(float(found[1]) * _SIZES[found[2]])
