"""For `mooring doctor`: messages between mooring and the servers written to a file, and orphaned servers."""

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

MOST = 4_096
"""Characters of one message that are shown."""
MOST_MESSAGES = 2_000
"""Of one server: a storm of notices must not fill the disk."""
_LABEL = 200
_LINE = 100
"""A message that fits is written in one line."""
_MARKS = {"sent": "→", "received": "←", "stdout": "stdout", "stderr": "stderr", "fault": "!"}


class Trace:
    """A file with every message, in order of time, without secrets and control characters."""

    def __init__(self, path: str) -> None:
        """Begin the file, for its owner's eyes alone.

        Raises:
            UsageError: it cannot be written.
        """
        self.path = path
        self.problem: str | None = None
        """Why the file is not whole, if it is not."""
        try:
            self._file = _private(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"The trace cannot be written to {path!r}: {reason}.") from None
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
        """Write down what passes meanwhile, without what `redact` takes out."""
        self._redact = redact
        base.taps.append(self._take)
        try:
            yield
        finally:
            base.taps.remove(self._take)

    def _take(self, seen: base.Passing) -> None:
        self._counts[seen.server] += 1
        if self.problem is not None or self._counts[seen.server] > MOST_MESSAGES:
            return
        try:
            label, *body = self._told(seen)
        except (RecursionError, ValueError):  # nested beyond reason, or a number of thousands of digits
            label, *body = ["a message that cannot be shown"]
        # Only the first line begins in the first column, so that no message can pass itself off as two.
        whose = f"{time.monotonic() - self._start:.3f} s  {clean_line(seen.server)}"
        lines = [f"{whose}  {_MARKS[seen.way]}  {label}", *(f"    {line}" for line in body)]
        if self._counts[seen.server] == MOST_MESSAGES:
            lines.append(f"{whose}  …  what follows of this server is left out")
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()  # whoever interrupts a server that hangs finds all of it
        except OSError as error:
            self._fail(error)

    def _told(self, seen: base.Passing) -> list[str]:
        """A message as lines; the first says what it is in a few words."""
        if isinstance(seen.said, str):
            return self._bounded(seen.said).split("\n")
        label = self._safe(self._label(seen.server, seen.way, seen.said))
        return [clean_line(label)[:_LABEL], *self._bounded(_pretty(seen.said)).split("\n")]

    def _label(self, server: str, way: str, message: Mapping[str, Any]) -> str:
        method, number = message.get("method"), message.get("id")
        if number is None:
            return str(method)
        ours = (way == "sent") == (method is not None)  # an answer goes the other way than its request
        key = (server, ours, str(number))
        if method is not None:
            self._asked[key] = str(method)
            return f"{method} (id {number})"
        kind = "error" if "error" in message else "result"
        return f"{kind} of {self._asked.pop(key, 'no request')} (id {number})"

    def _bounded(self, text: str) -> str:
        text = self._safe(text)  # before it is cut: half a secret would not be known as one
        return text if len(text) <= MOST else f"{text[:MOST]}\n… {len(text) - MOST} more characters"

    def _safe(self, text: str) -> str:
        return clean(self._redact(text))

    def _fail(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)


def _private(path: str) -> IO[str]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.chmod(path, 0o600)  # the file may be an old one that others could read
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace")


def _pretty(message: Mapping[str, Any]) -> str:
    line = json.dumps(message, ensure_ascii=False)
    return line if len(line) <= _LINE else json.dumps(message, ensure_ascii=False, indent=2)


_STARTED = 19
"""Place of the start time among the fields of /proc/PID/stat that follow the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    pid: int
    command: str


def strays(proc: Path = Path("/proc")) -> Iterator[Orphan]:
    """Processes that a host started and that outlived it, in order of process id."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        with suppress(OSError, ValueError, IndexError):  # gone meanwhile, or somebody else's
            if (host := _host_of(folder)) is not None and not _is_there(proc / str(host), folder):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                # Arguments may hold secrets: the program and what it runs is enough to know it by.
                command = b" ".join(words[:2]).decode("utf-8", "replace")
                yield Orphan(pid=int(folder.name), command=command)


def _host_of(folder: Path) -> int | None:
    """The process that started this one, if that was a host."""
    mark = f"{MARKER}=".encode()
    for variable in (folder / "environ").read_bytes().split(b"\0"):
        if variable.startswith(mark) and int(folder.name) != os.getpid():
            return int(variable.removeprefix(mark).split(b"-")[0])
    return None


def _is_there(host: Path, child: Path) -> bool:
    """Whether the host still runs. Process ids are used again: a younger process is another one."""
    try:
        return _started(host) <= _started(child)
    except OSError:
        return False


def _started(folder: Path) -> int:
    return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[_STARTED])
