"""Outputs that were too large to show: kept whole for their session, read by character.

On disk under the home; where there is none, or it takes nothing, a few of them in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock

from mooring.store.folder import Folder

__all__ = ["Output", "Outputs"]

_DAY = 86_400.0
_STRIDE = 65_536
"""Characters between two marks: so many are decoded at most before those that are wanted."""
_MOST = 1_000
_IN_MEMORY = 64 * 2**20
_CODEC = "utf-8", "surrogatepass"  # what came in comes out, whatever it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One text that is kept."""

    session: str
    server: str
    tool: str
    length: int
    """Characters."""
    marks: tuple[int, ...]
    """Where each stride begins, in bytes."""
    place: Path | bytes

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return len(self.place) if isinstance(self.place, bytes) else 0

    def read(self, offset: int = 0, count: int | None = None) -> str:
        """The characters from `offset` on, `count` at most.

        Raises:
            OSError: it is gone.
        """
        end = self.length if count is None else min(offset + count, self.length)
        if offset >= end:
            return ""
        first, last = offset // _STRIDE, -(-end // _STRIDE)
        start, stop = self.marks[first], self.marks[last]
        if isinstance(self.place, bytes):
            raw = self.place[start:stop]
        else:
            with self.place.open("rb") as stream:
                stream.seek(start)
                raw = stream.read(stop - start)
            with suppress(OSError):
                os.utime(self.place)  # what is read is not old
        if len(raw) != stop - start:
            raise OSError("the file is not what was written")
        skip = offset - first * _STRIDE
        return raw.decode(*_CODEC)[skip : skip + end - offset]


class Outputs:
    """The outputs of one host. Each belongs to a session, and only that session finds it."""

    def __init__(self, home: Path | None) -> None:
        self.folder = (
            None
            if home is None
            else Folder(home / "mcp-outputs", names=r"[0-9a-f]{32}\.txt", size=2**29, age=_DAY)
        )
        self._kept: dict[str, Output] = {}
        self._lock = Lock()

    def keep(self, text: str, *, session: str, server: str, tool: str) -> str:
        """Store a text and return its handle: 128 random bits.

        Raises:
            OSError: there is no place for it.
        """
        marks = [0]
        place = self._placed(text, marks)
        output = Output(
            session=session, server=server, tool=tool, length=len(text), marks=tuple(marks), place=place
        )
        handle = f"r_{token_hex(16)}"
        with self._lock:
            self._kept[handle] = output
            surplus = list(self._kept)[: max(len(self._kept) - _MOST, 0)]
            dropped = [self._kept.pop(name) for name in surplus]
        for old in dropped:
            self._drop(old)
        return handle

    def find(self, session: str, handle: str) -> Output | None:
        """The output of this handle, if it is this session's."""
        output = self._kept.get(handle)
        return output if output is not None and output.session == session else None

    def any_of(self, session: str) -> bool:
        """Whether the session has something to read."""
        # Of a copy: another thread may add one meanwhile.
        return bool(self._kept) and any(output.session == session for output in list(self._kept.values()))

    def close(self) -> None:
        """Delete everything: the handles end with the host."""
        with self._lock:
            gone, self._kept = list(self._kept.values()), {}
        for output in gone:
            self._drop(output)

    def _placed(self, text: str, marks: list[int]) -> Path | bytes:
        refused: OSError | None = None
        if self.folder is not None:
            try:
                return self.folder.write(f"{token_hex(16)}.txt", _encoded(text, marks))
            except OSError as problem:
                refused = problem
        if len(text) > _IN_MEMORY:
            raise refused or OSError("no home is configured, and it is too large for memory")
        marks[1:] = []
        data = b"".join(_encoded(text, marks))
        with self._lock:
            held = {handle: output.held for handle, output in self._kept.items() if output.held}
            while held and sum(held.values()) + len(data) > _IN_MEMORY:
                oldest = next(iter(held))
                del held[oldest], self._kept[oldest]
        return data

    def _drop(self, output: Output) -> None:
        if self.folder is not None and isinstance(output.place, Path):
            self.folder.remove(output.place)


def _encoded(text: str, marks: list[int]) -> Iterator[bytes]:
    for start in range(0, len(text), _STRIDE):
        chunk = text[start : start + _STRIDE].encode(*_CODEC)
        marks.append(marks[-1] + len(chunk))
        yield chunk
