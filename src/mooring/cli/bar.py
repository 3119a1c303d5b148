"""What a call reports of itself, as one line on standard error that is gone when the call is."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from mooring.cli.layout import crop
from mooring.cli.output import Output
from mooring.core.text import clean_line

__all__ = ["Bar", "progress_bar"]

_WIDTH = 20
_TICK = 0.05
"""Seconds between two drawings: a server may report as often as it likes."""


class Bar:
    """Takes the reports of a call; draws where somebody watches."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._drawn = -_TICK

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if not self._out.interactive or (self._drawn >= 0 and now - self._drawn < _TICK):
            return
        self._drawn = now
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{crop(_line(done, total, message), columns - 1)}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Leave the line as it was."""
        if self._drawn >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def progress_bar(out: Output) -> Generator[Bar]:
    """A bar for the time of one call."""
    bar = Bar(out)
    try:
        yield bar
    finally:
        bar.clear()


def _line(done: float, total: float | None, message: str | None) -> str:
    said = clean_line((message or "")[:400])
    if not total or total < 0:
        return f"{done:g} {said}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    filled = round(share * _WIDTH)
    return f"{'█' * filled}{'░' * (_WIDTH - filled)} {share:4.0%} {said}".rstrip()
