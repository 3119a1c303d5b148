"""Server-sent events, byte by byte: linear in what arrives, bounded in what is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_DIGITS = 9
"""Of a `retry`, in milliseconds: beyond them it is no advice."""
MANY_LINES, PIECE = 256, 4096
"""A chunk with more lines than that is handled in pieces of so many bytes."""


_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Bytes that an id cannot have, because it is sent back in the header `Last-Event-ID`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    data: bytes
    event: str = "message"
    id: str | None = None
    retry: float | None = None
    """Seconds to wait before coming back, when the server says so."""


class TooLarge(Exception):
    """One event holds more than it may."""


def pieces(chunk: bytes) -> Iterator[bytes]:
    """The chunk, in parts that take little time each, however short its lines are."""
    if len(chunk) <= PIECE or chunk.count(b"\n") + chunk.count(b"\r") <= MANY_LINES:
        yield chunk
        return
    for start in range(0, len(chunk), PIECE):
        yield chunk[start : start + PIECE]


class SseParser:
    """Feed it what arrived; it yields the events that are complete.

    Every byte counts toward `max_event` until an empty line ends the event, whatever it stands for.
    """

    def __init__(self, max_event: int, *, unasked: bool = False) -> None:
        self.lines = 0
        """Lines so far that carry no data (comments, empty lines, other fields); all lines where nothing was
        asked for."""
        self.chatter = 0
        """Bytes in them."""
        self._max = max_event
        self._unasked = unasked
        self._parts: list[bytes] = []
        self._held = 0
        self._after_cr = False
        self._reset()

    def _reset(self) -> None:
        self._data: bytes | bytearray | None = None
        self._event = "message"
        self._id: str | None = None
        self._retry: float | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Raises `TooLarge` when an event grows beyond the cap."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if self._parts:
                self._parts.append(line)
                line = b"".join(self._parts)
                self._parts, self._held = [], 0
            start = end + 1
            if line:
                self._take(line)
            else:
                self.lines += 1
                self.chatter += 1
                if (event := self._finish()) is not None:
                    yield event
        rest = chunk[start:]
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            if self._held + self._size > self._max:
                raise TooLarge

    def _take(self, line: bytes) -> None:
        self._size += len(line) + 1
        if self._size > self._max:
            raise TooLarge
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.lines += self._unasked
            if self._data is None:
                self._data = value
            else:
                if isinstance(self._data, bytes):
                    self._data = bytearray(self._data)  # one buffer, however many lines follow
                self._data += b"\n"
                self._data += value
            return
        self.lines += 1
        self.chatter += len(line)
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and not _UNSENDABLE.search(value):
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_DIGITS:
            self._retry = int(value) / 1000

    def _finish(self) -> SseEvent | None:
        event = None
        if self._data is not None or self._id is not None or self._retry is not None:
            event = SseEvent(data=bytes(self._data or b""), event=self._event, id=self._id, retry=self._retry)
        self._reset()
        return event
