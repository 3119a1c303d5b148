"""A lock that was checked, as it is quickest to read again: pins as rows, and the words of its tools.

Bytes for a cache, which nobody reads nor reviews: reading the text of a lock and indexing its tools
takes three times as long.
"""

from __future__ import annotations

import json
from types import MappingProxyType

from mooring.core import pinrows
from mooring.core.documents import RULES, TOOL, tool_texts, weigh
from mooring.core.inverted import Inverted
from mooring.core.pin import Lock

__all__ = ["read", "write"]

_FORMAT = [1, pinrows.FORMAT, RULES]


def write(lock: Lock) -> bytes:
    """Return the bytes that stand for a lock, with its words.

    Raises:
        ValueError: it is nested too deep.
    """
    words = Inverted(weigh(TOOL, tool_texts(tool)) for tool in lock.tools)
    pins = [pinrows.rows_of(pin) for pin in lock.servers.values()]
    try:
        return json.dumps((_FORMAT, pins, words.rows()), default=dict, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None


def read(raw: bytes) -> Lock:
    """Return the lock that was written.

    Raises:
        ValueError, TypeError: nothing that this mooring wrote.
    """
    try:
        form, rows, words = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if form != _FORMAT:
        raise ValueError("another form")
    pins = map(pinrows.pin_of, rows)
    return Lock(
        servers=MappingProxyType({pin.server: pin for pin in pins}),
        words=Inverted.from_rows(words),
    )
