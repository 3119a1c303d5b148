"""For `mooring doctor`: a trace file of all messages, and processes that earlier runs left behind."""

from __future__ import annotations

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from mooring.cli.options import UsageError
from mooring.core.text import clean, clean_line
from mooring.transport import base
from mooring.transport.process_tree import MARKER

MAX_LENGTH = 4_096
"""Longest message, in characters; the rest is cut."""
MAX_MESSAGES = 2_000
"""Messages per server, so that a flood does not fill the disk."""
_LABEL = 200
_LINE = 100
"""Messages up to this length are written on one line."""
_MARKS = {"sent": "→", "received": "←", "stdout": "stdout", "stderr": "stderr", "fault": "!"}


class Trace:
    """A file with every message in order of time, without secrets and control characters."""

    def __init__(self, path: str) -> None:
        """Create the file, readable only by its owner.

        Raises:
            UsageError: it cannot be written.
        """
        self.path = path
        self.problem: str | None = None
        """Why the file is incomplete; None if it is complete."""
        try:
            self._file = _private(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"Cannot write the trace to {path!r}: {reason}.") from None
        self._redact: Callable[[str], str] = str
        self._start = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._asked: dict[tuple[str, bool, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    @contextmanager
    def of(self, redact: Callable[[str], str]) -> Generator[None]:
        """Write all messages during the block, redacted with `redact`."""
        self._redact = redact
        base.taps.append(self._take)
        try:
            yield
        finally:
            base.taps.remove(self._take)

    def _take(self, seen: base.Passing) -> None:
        self._counts[seen.server] += 1
        if self.problem is not None or self._counts[seen.server] > MAX_MESSAGES:
            return
        try:
            label, *body = self._lines(seen)
        except (RecursionError, ValueError):  # nested too deeply, or a number with thousands of digits
            label, *body = ["(message cannot be shown)"]
        # Only the first line starts in the first column, so that a message cannot imitate a second one.
        prefix = f"{time.monotonic() - self._start:.3f} s  {clean_line(seen.server)}"
        lines = [f"{prefix}  {_MARKS[seen.way]}  {label}", *(f"    {line}" for line in body)]
        if self._counts[seen.server] == MAX_MESSAGES:
            lines.append(f"{prefix}  …  further messages of this server are left out")
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()  # complete even if the command is interrupted
        except OSError as error:
            self._fail(error)

    def _lines(self, seen: base.Passing) -> list[str]:
        """A message as lines; the first is a label."""
        if isinstance(seen.said, str):
            return self._bounded(seen.said).split("\n")
        label = self._safe(self._label(seen.server, seen.way, seen.said))
        return [clean_line(label)[:_LABEL], *self._bounded(_pretty(seen.said)).split("\n")]

    def _label(self, server: str, way: str, message: Mapping[str, Any]) -> str:
        method, number = message.get("method"), message.get("id")
        if number is None:
            return str(method)
        ours = (way == "sent") == (method is not None)  # a response travels against its request
        key = (server, ours, str(number))
        if method is not None:
            self._asked[key] = str(method)
            return f"{method} (id {number})"
        kind = "error" if "error" in message else "result"
        return f"{kind} of {self._asked.pop(key, 'unknown request')} (id {number})"

    def _bounded(self, text: str) -> str:
        text = self._safe(text)  # redact before cutting: half a secret would not be recognised
        return (
            text
            if len(text) <= MAX_LENGTH
            else f"{text[:MAX_LENGTH]}\n… {len(text) - MAX_LENGTH} more characters"
        )

    def _safe(self, text: str) -> str:
        return clean(self._redact(text))

    def _fail(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)


def _private(path: str) -> IO[str]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.chmod(path, 0o600)  # an existing file may have other permissions
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace")


def _pretty(message: Mapping[str, Any]) -> str:
    line = json.dumps(message, ensure_ascii=False)
    return line if len(line) <= _LINE else json.dumps(message, ensure_ascii=False, indent=2)


_STARTED = 19
"""Index of the start time in /proc/PID/stat, counted after the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    pid: int
    command: str


def orphans(proc: Path = Path("/proc")) -> Iterator[Orphan]:
    """Processes whose host has ended, sorted by process id."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        with suppress(OSError, ValueError, IndexError):  # ended meanwhile, or owned by another user
            if (host := _host_of(folder)) is not None and not _is_running(proc / str(host), folder):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                # Arguments may contain secrets: show only the program and its first argument.
                command = b" ".join(words[:2]).decode("utf-8", "replace")
                yield Orphan(pid=int(folder.name), command=command)


def _host_of(folder: Path) -> int | None:
    """Process id of the host that started this process; None if no host did."""
    mark = f"{MARKER}=".encode()
    for variable in (folder / "environ").read_bytes().split(b"\0"):
        if variable.startswith(mark) and int(folder.name) != os.getpid():
            return int(variable.removeprefix(mark).split(b"-")[0])
    return None


def _is_running(host: Path, child: Path) -> bool:
    """Whether the host still runs. Process ids are reused: a younger process is not the host."""
    try:
        return _started(host) <= _started(child)
    except OSError:
        return False


def _started(folder: Path) -> int:
    return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[_STARTED])
