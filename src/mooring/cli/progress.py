"""Progress on standard error: of servers that connect, and of a call."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from mooring.cli.output import GAP, Output, Style, crop, plural, table
from mooring.core.text import clean_line
from mooring.core.types import ServerStatus, State

if TYPE_CHECKING:
    from mooring.host import Host


SYMBOLS: dict[State, tuple[str, Style]] = {
    "connected": ("✓", "green"),
    "pending": ("◌", "cyan"),
    "failed": ("✗", "red"),
    "needs-auth": ("!", "yellow"),
    "disabled": ("-", "dim"),
}

_DELAY = 0.2
"""Seconds before progress is shown."""
_TICK = 0.1


async def show_progress(host: Host, out: Output, names: Collection[str] | None = None) -> None:
    """Draw the states of these servers (or all) until cancelled, then clear them."""
    start = anyio.current_time()
    settled: dict[str, float] = {}
    drawn = 0
    await anyio.sleep(_DELAY)
    sys.stderr.write("\x1b[?25l")
    try:
        while True:
            elapsed = anyio.current_time() - start
            active = [
                s for s in host.status() if s.state != "disabled" and (names is None or s.name in names)
            ]
            lines = _lines(active, settled, elapsed, out)
            sys.stderr.write(_up(drawn) + "".join(f"{line}\x1b[K\n" for line in lines))
            sys.stderr.flush()
            drawn = len(lines)
            await anyio.sleep(_TICK)
    finally:
        sys.stderr.write(_up(drawn) + "\x1b[J\x1b[?25h")
        sys.stderr.flush()


def summary(status: ServerStatus) -> str:
    """The state of a server in one line: its tools, or why it is not connected."""
    if status.state == "connected":
        return plural(status.tools, "tool")
    if status.state == "pending" and not status.error:
        return "starting"
    return one_line(status.error or status.state)


def one_line(reason: str) -> str:
    """Join the lines of an error."""
    return clean_line("; ".join(reason.splitlines()).replace(":; ", ": "))


def _lines(active: list[ServerStatus], settled: dict[str, float], elapsed: float, out: Output) -> list[str]:
    columns, height = shutil.get_terminal_size()
    for status in active:
        if status.state != "pending":
            settled.setdefault(status.name, elapsed)
    rows = [
        [clean_line(status.name), f"{settled.get(status.name, elapsed):.1f} s", summary(status)]
        for status in active
    ]
    lines: list[str] = []
    for status, cells in zip(active, table(rows, width=columns - 3, right=[1]), strict=True):
        symbol, style = SYMBOLS[status.state]
        lines.append(f"{out.paint(symbol, style, sys.stderr)} {GAP.join(cells)}")
    room = max(height - 2, 1)
    if len(lines) > room:
        waiting = sum(status.state == "pending" for status in active)
        lines = [*lines[: room - 1], crop(f"… {len(active)} servers, {waiting} starting", columns - 1)]
    return lines


def _up(lines: int) -> str:
    return f"\r\x1b[{lines}A" if lines else ""


_WIDTH = 20
_LINE_TICK = 0.05
"""Shortest time between two redraws, in seconds."""


class ProgressLine:
    """Shows the progress reports of a call on an interactive terminal."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._drawn = -_LINE_TICK

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if not self._out.interactive or (self._drawn >= 0 and now - self._drawn < _LINE_TICK):
            return
        self._drawn = now
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{crop(_line(done, total, message), columns - 1)}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line."""
        if self._drawn >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def progress_bar(out: Output) -> Generator[ProgressLine]:
    """A progress bar during one call."""
    bar = ProgressLine(out)
    try:
        yield bar
    finally:
        bar.clear()


def _line(done: float, total: float | None, message: str | None) -> str:
    text = clean_line((message or "")[:400])
    if not total or total < 0:
        return f"{done:g} {text}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    filled = round(share * _WIDTH)
    return f"{'█' * filled}{'░' * (_WIDTH - filled)} {share:4.0%} {text}".rstrip()
