"""Files of results: embedded files and large outputs, in private directories with size and age limits."""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, cast

from mooring.core.redact import MASK, Redactor, is_secret_name
from mooring.core.render import MEDIA, inlined, label, text_block
from mooring.core.types import Block

GRACE = 3600.0
"""Seconds for which a new file is not deleted: another process may still use it."""
_RESCAN = 60.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class PrivateDirectory:
    """A directory of write-once files. Expired files are deleted; above the size limit, the oldest ones.

    Safe for several threads and processes.
    """

    def __init__(self, path: Path, *, names: str, size: int, age: float, private: bool = True) -> None:
        self.path = path
        self._names = re.compile(names)
        """Names of the files that may be deleted."""
        self._size, self._age, self._private = size, age, private
        self._lock = Lock()
        self._used = 0
        self._scanned: float | None = None

    def write(self, name: str, chunks: Iterable[bytes]) -> Path:
        """Write a file completely or not at all.

        Raises:
            FileExistsError: The name is taken.
            OSError: The file cannot be written.
        """
        self._prepare()
        path = self.path / name
        descriptor = os.open(path, _FLAGS, 0o600)
        written = 0
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for chunk in chunks:
                    written += len(chunk)
                    if self._used + written > self._size:
                        raise OSError(
                            errno.ENOSPC, f"the directory has reached its limit of {self._size >> 20} MiB"
                        )
                    stream.write(chunk)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        with self._lock:
            self._used += written
        return path

    def remove(self, path: Path) -> None:
        """Delete a file of this directory if it exists."""
        with suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            with self._lock:
                self._used -= size

    def tidy(self) -> None:
        """Delete expired files, and the oldest ones above the size limit."""
        now = time.time()
        files = self._files()
        used = sum(size for _, size, _ in files)
        for changed, size, path in sorted(files):
            age = now - changed
            if age > self._age or (used > 0.9 * self._size and age > GRACE):
                with suppress(OSError):
                    os.unlink(path)
                    used -= size
        with self._lock:
            self._used, self._scanned = used, time.monotonic()

    def _prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._private:
            found = self.path.lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise OSError(errno.ENOTDIR, "it is not a directory")
            if found.st_mode & 0o077:
                self.path.chmod(0o700)
        if self._scanned is None or time.monotonic() - self._scanned > _RESCAN:
            self.tidy()

    def _files(self) -> list[tuple[float, int, str]]:
        found: list[tuple[float, int, str]] = []
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if self._names.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(OSError):  # deleted by another process
                        known = entry.stat(follow_symlinks=False)
                        found.append((known.st_mtime, known.st_size, entry.path))
        return found


_DAY = 86_400.0
_STEP = 2**20
_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/bmp": ".bmp",
    "image/tiff": ".tiff",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}


def decoded(data: str) -> bytes | None:
    """Decode strict base64 with optional whitespace; None if it is invalid."""
    for text in (data, "".join(data.split())):
        if len(text) % 4 == 0:  # `strict_mode` does not always check this
            with suppress(ValueError):
                return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    return None


class Blobs:
    """The files in `mcp-blobs`."""

    def __init__(self, home: Path) -> None:
        self.folder = PrivateDirectory(
            home / "mcp-blobs", names=r"[0-9a-f]{32}\.[a-z0-9]{2,5}", size=2**30, age=7 * _DAY
        )

    def save(self, data: bytes, mime_type: str | None) -> Path:
        """Write the data under a random name.

        Raises:
            OSError: The file cannot be written.
        """
        kind = (mime_type or "").partition(";")[0].strip().lower()
        return self.folder.write(f"{token_hex(16)}{_SUFFIXES.get(kind, '.bin')}", _chunks(data))


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _STEP):
        yield data[start : start + _STEP]


LARGEST_MEDIUM = 5 * 2**20
"""Largest image or audio block in bytes that model providers accept."""
ALL_MEDIA, MOST_MEDIA = 20 * 2**20, 20
MOST_FILES = 256
"""Files saved for one result."""


class Converter:
    """Converts blocks; data that models cannot read is saved as files if there is a directory."""

    def __init__(self, home: Path | None) -> None:
        self._blobs = None if home is None else Blobs(home)

    @property
    def folder(self) -> PrivateDirectory | None:
        return None if self._blobs is None else self._blobs.folder

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """Convert to text, image, audio, link and unknown blocks."""
        made: list[Block] = []
        media, room, files = MOST_MEDIA, ALL_MEDIA, MOST_FILES
        for block in blocks:
            if block.type == "resource" and block.text is not None:
                made.append(inlined(block))
            elif block.data is None:
                made.append(block)
            elif block.type in MEDIA and media > 0 and _bytes(block) <= min(room, LARGEST_MEDIUM):
                media, room = media - 1, room - _bytes(block)
                made.append(_valid_block(block))
            else:
                files -= 1
                made.append(text_block(self.saved(block) if files >= 0 else _unsaved(block, _TOO_MANY)))
        return made

    def saved(self, block: Block) -> str:
        """Write the data of a block to a file; return a line with its path, or why it was not saved."""
        if self._blobs is None:
            return _unsaved(block, "no directory is configured to save it in")
        data = decoded(block.data or "")
        if data is None:
            return _unsaved(block, _NOT_BASE64)
        try:
            path = self._blobs.save(data, block.mime_type)
        except OSError as problem:
            return _unsaved(block, f"it could not be saved: {problem.strerror or problem}")
        return f"[{label(block)}, {len(data):,} bytes, saved as {path}]"


_NOT_BASE64 = "its data is not valid base64"
_TOO_MANY = f"more than {MOST_FILES} files in one result"


def _unsaved(block: Block, why: str) -> str:
    return f"[{label(block)}, about {_bytes(block):,} bytes, is left out: {why}]"


def _bytes(block: Block) -> int:
    return len(block.data or "") * 3 // 4


def _valid_block(block: Block) -> Block:
    """Return the block, or text if its data is invalid: providers reject the whole conversation for it."""
    data = block.data or ""
    if decoded(data) is None:
        return text_block(_unsaved(block, _NOT_BASE64))
    joined = "".join(data.split())
    return block if joined == data else Block({**block.raw, "data": joined})


_STRIDE = 65_536
"""Characters between two marks, the positions at which decoding can start."""
_MOST = 1_000
_IN_MEMORY = 64 * 2**20
_CODEC = "utf-8", "surrogatepass"  # keeps lone surrogates


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutput:
    """One stored text."""

    session: str
    server: str
    tool: str
    length: int
    """Length in characters."""
    marks: tuple[int, ...]
    """Byte offset of each stride."""
    place: Path | bytes

    @property
    def held(self) -> int:
        """Bytes held in memory."""
        return len(self.place) if isinstance(self.place, bytes) else 0

    def read(self, offset: int = 0, count: int | None = None) -> str:
        """Return at most `count` characters from `offset` on.

        Raises:
            OSError: The file no longer exists.
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
                os.utime(self.place)  # postpones its expiry
        if len(raw) != stop - start:
            raise OSError("the file was changed")
        skip = offset - first * _STRIDE
        return raw.decode(*_CODEC)[skip : skip + end - offset]


class OutputStore:
    """The outputs of one host. Each can be read by its session only."""

    def __init__(self, home: Path | None) -> None:
        self.folder = (
            None
            if home is None
            else PrivateDirectory(home / "mcp-outputs", names=r"[0-9a-f]{32}\.txt", size=2**29, age=_DAY)
        )
        self._kept: dict[str, StoredOutput] = {}
        self._lock = Lock()

    def keep(self, text: str, *, session: str, server: str, tool: str) -> str:
        """Store a text and return its handle: 128 random bits.

        Raises:
            OSError: It cannot be stored.
        """
        marks = [0]
        place = self._placed(text, marks)
        output = StoredOutput(
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

    def find(self, session: str, handle: str) -> StoredOutput | None:
        """Return the output of this handle if it belongs to this session."""
        output = self._kept.get(handle)
        return output if output is not None and output.session == session else None

    def any_of(self, session: str) -> bool:
        """Whether the session has stored outputs."""
        # A copy: another thread may add outputs.
        return bool(self._kept) and any(output.session == session for output in list(self._kept.values()))

    def close(self) -> None:
        """Delete all outputs."""
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
            raise refused or OSError("no directory is configured, and it is too large for memory")
        marks[1:] = []
        data = b"".join(_encoded(text, marks))
        with self._lock:
            held = {handle: output.held for handle, output in self._kept.items() if output.held}
            while held and sum(held.values()) + len(data) > _IN_MEMORY:
                oldest = next(iter(held))
                del held[oldest], self._kept[oldest]
        return data

    def _drop(self, output: StoredOutput) -> None:
        if self.folder is not None and isinstance(output.place, Path):
            self.folder.remove(output.place)


def _encoded(text: str, marks: list[int]) -> Iterator[bytes]:
    for start in range(0, len(text), _STRIDE):
        chunk = text[start : start + _STRIDE].encode(*_CODEC)
        marks.append(marks[-1] + len(chunk))
        yield chunk


_LONGEST_NAME = 65_536
_NAME = re.compile(r"call-(\d{6,})\.json")


class Artifacts:
    """The directory of a run. Records of earlier runs are deleted after 30 days."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self.folder = PrivateDirectory(path, names=_NAME.pattern, size=2**31, age=30 * _DAY, private=False)
        self._redact = redact
        self._next: int | None = None

    def write(self, record: Mapping[str, Any]) -> Path:
        """Write one record.

        Raises:
            OSError: The file cannot be written.
        """
        data = self._document(record)
        if self._next is None:
            self._next = self._next_number()
        while True:
            number, self._next = self._next, self._next + 1
            try:
                return self.folder.write(f"call-{number:06}.json", [data])
            except FileExistsError:
                continue  # another process uses the same directory

    def _next_number(self) -> int:
        names = [path.name for path in self.folder.path.glob("call-*.json")]
        return max((int(known[1]) for name in names if (known := _NAME.fullmatch(name))), default=0) + 1

    def _document(self, record: Mapping[str, Any]) -> bytes:
        try:
            named: set[str] = set()
            given = {"arguments": _masked(record["arguments"], named)} if "arguments" in record else {}
            repeated = Redactor(named)
            plain = _redacted({**record, **given}, lambda text: repeated(self._redact(text)))
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2, default=str)
        except (ValueError, RecursionError) as problem:
            basics = {name: record.get(name) for name in ("started_at", "server", "tool", "duration_ms")}
            text = json.dumps(basics | {"problem": f"not JSON-serialisable: {type(problem).__name__}"})
        return text.encode("utf-8", "replace")


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {redact(str(name)): _redacted(item, redact) for name, item in items}
    if isinstance(value, list | tuple):
        return [_redacted(item, redact) for item in cast("list[Any]", value)]
    return value


def _masked(value: Any, found: set[str]) -> Any:
    """Replace values under names such as `password` at any depth. The values are added to `found`, because
    tools repeat their arguments in results."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        masked: dict[Any, Any] = {}
        for name, item in items:
            if item is not None and is_secret_name(str(name)[:_LONGEST_NAME]):
                found.update(_texts(item))
                masked[name] = MASK
            else:
                masked[name] = _masked(item, found)
        return masked
    if isinstance(value, list | tuple):
        return [_masked(item, found) for item in cast("list[Any]", value)]
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[Any, Any]", value).values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from _texts(item)
