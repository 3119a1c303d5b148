"""Servers coming up, seen live: one line each on standard error, gone when they have settled."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

import anyio

from mooring.cli.layout import GAP, crop, table
from mooring.cli.output import Output, Style
from mooring.core.text import clean_line
from mooring.core.types import ServerStatus, State

if TYPE_CHECKING:
    from mooring.host import Host

__all__ = ["SYMBOLS", "one_line", "plural", "show_progress", "summary"]

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
