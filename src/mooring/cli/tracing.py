"""What passes between mooring and the servers, written to a file for a person to read: `doctor --trace`."""

from __future__ import annotations

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Self

from mooring.cli.options import UsageError
from mooring.core.text import clean, clean_line
from mooring.net import trace

__all__ = ["Trace"]

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
        trace.taps.append(self._take)
        try:
            yield
        finally:
            trace.taps.remove(self._take)

    def _take(self, seen: trace.Passing) -> None:
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

    def _told(self, seen: trace.Passing) -> list[str]:
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
