"""State that a client carries for us: sealed, bound to whom it was given, and not good for ever.

Pure: the caller brings the clock.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

__all__ = ["Seal"]

LIFE = 3600.0
"""Seconds that somebody may take to answer a question."""
LONGEST = 1_000_000


class Seal:
    """Seals with one key; whoever has the key can open."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, said: Mapping[str, Any], bound: Mapping[str, str], now: float) -> str:
        """`said` as one opaque text, good for an hour and only together with `bound`."""
        data = json.dumps([dict(said), round(now + LIFE)], separators=(",", ":")).encode()
        return f"{_text(data)}.{_text(self._mark(data, bound))}"

    def open(self, sealed: object, bound: Mapping[str, str], now: float) -> dict[str, Any] | None:
        """What was sealed; None when it is not ours, was bound to something else, or is too old."""
        if not isinstance(sealed, str) or len(sealed) > LONGEST:
            return None
        data, _, mark = sealed.partition(".")
        try:
            raw, given = _bytes(data), _bytes(mark)
        except ValueError:
            return None
        if not hmac.compare_digest(self._mark(raw, bound), given):
            return None
        said, end = json.loads(raw)
        return cast("dict[str, Any]", said) if now <= end else None

    def _mark(self, data: bytes, bound: Mapping[str, str]) -> bytes:
        context = json.dumps(sorted(bound.items())).encode()
        return hmac.new(self._key, len(context).to_bytes(8, "big") + context + data, sha256).digest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    if not text.isascii():
        raise ValueError("not ours")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
