"""Who called what, when, and how it ended: one line of JSON each. Arguments and results never stand there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import IO, Any

from mooring.config.logs import logger
from mooring.core.text import clean_line

__all__ = ["Audit"]

log = logger("mooring.gateway")

_LONGEST = 200


class Audit:
    """Appends to a file. One that cannot be written is told once and costs no call."""

    def __init__(self, path: str | None) -> None:
        self._file: IO[bytes] | None = None
        if path is not None:
            place = Path(path).expanduser()
            descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "ab", buffering=0)

    def __bool__(self) -> bool:
        return self._file is not None

    def note(self, **said: Any) -> None:
        """Write one line; texts are cut and cleaned of what a terminal would act on."""
        if self._file is None:
            return
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} | {
            key: clean_line(value)[:_LONGEST] if isinstance(value, str) else value
            for key, value in said.items()
            if value is not None
        }
        try:
            # One write: lines of several workers do not mix.
            self._file.write(json.dumps(line).encode() + b"\n")
        except OSError as problem:
            log.error("the audit log cannot be written: %s", problem)
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
