"""Progress on standard error: servers that connect, and calls under way."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from mooring.cli.output import GAP, Output, Style, crop, table
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

_PATIENCE = 0.2
"""Seconds before the first line: what is quicker than that needs no progress."""
_TICK = 0.1


async def show_progress(host: Host, out: Output, names: Collection[str] | None = None) -> None:
    """Draw the states of these servers (or all) until cancelled, then leave the terminal as it was."""
    start = anyio.current_time()
    settled: dict[str, float] = {}
    drawn = 0
    await anyio.sleep(_PATIENCE)
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
    """One line on how a server is doing: what it offers, or why it is not there."""
    if status.state == "connected":
        return plural(status.tools, "tool")
    if status.state == "pending" and not status.error:
        return "starting"
    return one_line(status.error or status.state)


def one_line(reason: str) -> str:
    """A reason of several lines as one."""
    return clean_line("; ".join(reason.splitlines()).replace(":; ", ": "))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


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
        lines = [*lines[: room - 1], crop(f"… {len(active)} servers, {waiting} still starting", columns - 1)]
    return lines


def _up(lines: int) -> str:
    return f"\r\x1b[{lines}A" if lines else ""


_WIDTH = 20
_LINE_TICK = 0.05
"""Seconds between two drawings: a server may report as often as it likes."""


class ProgressLine:
    """Takes the reports of a call; draws where somebody watches."""

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
        """Leave the line as it was."""
        if self._drawn >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def progress_bar(out: Output) -> Generator[ProgressLine]:
    """A bar for the time of one call."""
    bar = ProgressLine(out)
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
