"""The application log of a gateway process: text or JSON on standard error, with levels that change while it
runs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from typing import Any

from mooring.config.logs import logger, redacted
from mooring.config.operation import LOG_LEVELS, LogSettings
from mooring.core.text import clean
from mooring.errors import MooringError

__all__ = ["ApplicationLog"]

MAX_MESSAGE = 8_000
KEPT = 500
"""Lines that are kept in memory for the admin API."""


class _Formatter(logging.Formatter):
    """Redacts and cleans every line, also those of other libraries."""

    def entry(self, record: logging.LogRecord) -> dict[str, Any]:
        now = record.created
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z"
        entry = {
            "time": stamp,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(redacted(record.getMessage()))[:MAX_MESSAGE],
        }
        if record.exc_info or record.exc_text:
            trace = record.exc_text or self.formatException(record.exc_info)  # pyright: ignore[reportArgumentType]
            entry["exception"] = clean(redacted(trace))[:MAX_MESSAGE]
        return entry


class _Text(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = self.entry(record)
        trace = f"\n{entry['exception']}" if "exception" in entry else ""
        return f"{entry['time']} {entry['level']:7} {entry['logger']}: {entry['message']}{trace}"


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.entry(record))


class _Memory(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._formatter = _Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self._formatter.entry(record))


class ApplicationLog:
    """The log of this process. `use` applies settings, `close` restores how logging was before."""

    def __init__(self) -> None:
        self._root = logger("mooring")
        self._before = self._root.level
        self._stream: logging.Handler | None = None
        self._memory = _Memory()
        self._root.addHandler(self._memory)
        self._set: set[str] = set()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The last lines, oldest first."""
        return list(self._memory.lines)

    def use(self, settings: LogSettings | None) -> None:
        """Apply settings; None: only levels that were set before, and no output of its own."""
        if self._stream is not None:
            self._root.removeHandler(self._stream)
            self._stream = None
        for name in self._set:
            logger(name).setLevel(logging.NOTSET)
        self._set.clear()
        if settings is None:
            verbose = logging.getLogger().isEnabledFor(logging.DEBUG)  # with `--verbose`
            self._root.setLevel(logging.NOTSET if verbose else logging.INFO)
            return
        self._root.setLevel(settings.level.upper())
        self._stream = logging.StreamHandler(sys.stderr)
        self._stream.setFormatter(_Json() if settings.format == "json" else _Text())
        self._root.addHandler(self._stream)
        for name, level in settings.levels:
            self.set_level(name, level)

    def set_level(self, name: str, level: str) -> None:
        """Set the level of one logger of mooring until other settings are applied.

        Raises:
            MooringError: There is no such level, or the logger belongs to another library.
        """
        if level not in LOG_LEVELS:
            raise MooringError(f"{level[:40]!r} is not a level; use {', '.join(LOG_LEVELS)}")
        if name != "mooring" and not name.startswith("mooring."):
            raise MooringError(
                f"{name[:80]!r} is not a logger of mooring; use 'mooring' or 'mooring.gateway'"
            )
        logger(name).setLevel(level.upper())
        if name != "mooring":
            self._set.add(name)

    def close(self) -> None:
        self.use(None)
        self._root.removeHandler(self._memory)
        self._root.setLevel(self._before)
