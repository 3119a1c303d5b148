"""Server-sent events, byte by byte: linear in what arrives, bounded in what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_DIGITS = 9
"""Of a `retry`, in milliseconds: beyond them it is no advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    data: bytes
    event: str = "message"
    id: str | None = None
    retry: float | None = None
    """Seconds to wait before coming back, when the server says so."""


class TooLarge(Exception):
    """One event holds more than it may."""


class SseParser:
    """Feed it what arrived; it yields the events that are complete."""

    def __init__(self, max_event: int) -> None:
        self._max = max_event
        self._parts: list[bytes] = []
        self._held = 0
        self._after_cr = False
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._event = "message"
        self._id: str | None = None
        self._retry: float | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Raises `TooLarge` when an event grows beyond the cap."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._parts.append(chunk[start:end])
            line = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts, self._held = [], 0
            start = end + 1
            if line:
                self._take(line)
            elif (event := self._finish()) is not None:
                yield event
        rest = chunk[start:]
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            if self._held + self._size > self._max:
                raise TooLarge

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > self._max:
                raise TooLarge
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_DIGITS:
            self._retry = int(value) / 1000

    def _finish(self) -> SseEvent | None:
        event = None
        if self._data or self._id is not None or self._retry is not None:
            event = SseEvent(data=b"\n".join(self._data), event=self._event, id=self._id, retry=self._retry)
        self._reset()
        return event
