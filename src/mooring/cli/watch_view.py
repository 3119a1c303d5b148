"""The display of `mooring watch`: its state, its lines, and the terminal."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from mooring.cli.output import GAP, Output, Style, crop, plural, table, wrap
from mooring.cli.progress import SYMBOLS, summary
from mooring.console.journal import Journal
from mooring.console.state import LIMITS, ConsoleState, Level, event_text
from mooring.core.events import Event
from mooring.core.names import OWNER
from mooring.core.text import clean_line
from mooring.core.types import ServerStatus

SPARKS = "▁▂▃▄▅▆▇█"
KEYS = "↑↓ select   r reconnect   d disable   t tools   l log   q quit"

Pane = Literal["log", "tools"]
Line = tuple[str, Style]


@dataclass(slots=True)
class WatchBoard:
    """The state that the console has too, and the selection of the user."""

    selected: int = 0
    pane: Pane = "log"
    notice: str = ""
    """Message about the last key."""
    state: ConsoleState = field(
        default_factory=lambda: ConsoleState(Journal("watch", LIMITS), log_calls=True)
    )

    @property
    def log(self) -> list[Line]:
        """The lines of the log."""
        return [
            (f"{_clock(row['time'])}  {row['text']}", _style(row["level"], row["source"]))
            for row in self.state.journal.rows("log")
        ]


def event_line(event: Event) -> Line | None:
    """An event as one line; None for events that are not shown."""
    said = event_text(event)
    return None if said is None else (said[0], _style(said[1], "host"))


def _style(level: Level, source: str) -> Style:
    styles: dict[Level, Style] = {"error": "red", "good": "green", "warning": "yellow"}
    return styles.get(level, "plain") if source == "host" else "dim"


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def frame(
    board: WatchBoard,
    servers: Sequence[ServerStatus],
    tools: Mapping[str, Sequence[str]],
    *,
    width: int,
    height: int,
    now: float,
) -> list[Line]:
    """The whole screen, at most `height` lines of at most `width` columns each.

    `now`: seconds since the epoch.
    """
    board.state.set_servers(servers, {}, now)
    board.selected = max(0, min(board.selected, len(servers) - 1))
    # As on the page of the console: servers that are turned off and tools of mooring itself do not count.
    active = [status for status in servers if status.state != "disabled"]
    up = sum(status.state == "connected" for status in active)
    count = sum(len(names) for server, names in tools.items() if server != OWNER)
    head = f"mooring  {up} of {plural(len(active), 'server')} connected, {plural(count, 'tool')}"
    room = max(height - 4, 2)
    listed = max(min(len(servers), room - min(8, room // 2)), 1)
    rows = _servers(board, servers, width, now)
    first = max(0, min(board.selected - listed // 2, len(rows) - listed))
    below = _below(board, servers, tools, width, room - listed)
    rule: Line = ("─" * width, "dim")
    foot: Line = (board.notice or KEYS, "yellow" if board.notice else "dim")
    lines = [Line((head, "bold")), *rows[first : first + listed], rule, *below]
    lines += [Line(("", "plain"))] * (height - 1 - len(lines))
    return [(crop(text, width), style) for text, style in [*lines[: height - 1], foot]]


def spark(trips: Sequence[float | None]) -> str:
    """The last round trips as a row of bars; × for no response."""
    measured = [trip for trip in trips if trip is not None]
    most = max(measured, default=0.0) or 1.0
    top = len(SPARKS) - 1
    return "".join("×" if trip is None else SPARKS[min(int(trip / most * top), top)] for trip in trips)


def _servers(board: WatchBoard, servers: Sequence[ServerStatus], width: int, now: float) -> list[Line]:
    rows = [_row(board, status, now) for status in servers]
    for row in rows:  # a long reason must not push out other columns
        row[-1] = crop(row[-1], max(width - 64, 12))
    lines: list[Line] = []
    cells = table(rows, width=width - 4, spare=(4, 3, 2), right=(2, 3))
    for number, (status, row) in enumerate(zip(servers, cells, strict=True)):
        symbol, style = SYMBOLS[status.state]
        mark = ">" if number == board.selected else " "
        lines.append((f"{mark} {symbol} {GAP.join(row)}", "bold" if number == board.selected else style))
    return lines or [("no servers are configured: see `mooring add --help`", "dim")]


def _row(board: WatchBoard, status: ServerStatus, now: float) -> list[str]:
    row = board.state.journal.row("servers", status.name)
    assert row is not None
    trips: list[float | None] = row["trips"]
    last = trips[-1] if trips else None
    retry = "" if row["retry_at"] is None else f", retry in {max(row['retry_at'] - now, 0):.0f} s"
    return [
        clean_line(status.name),
        row["label"] + retry,
        "" if last is None else f"{last:.1f} ms",
        f"{row['rate']:.1f}/s" if row["rate"] else "",
        spark(trips),
        summary(status),
    ]


def _below(
    board: WatchBoard,
    servers: Sequence[ServerStatus],
    tools: Mapping[str, Sequence[str]],
    width: int,
    room: int,
) -> list[Line]:
    if room <= 0:
        return []
    if not servers:
        return board.log[-room:]
    status = servers[board.selected]
    reason = status.error or ("" if board.pane == "log" else "it has no tools")
    lines = wrap(clean_line(f"{status.name}: {reason}"), width)[: max(room // 2, 1)] if reason else []
    why: list[Line] = [(line, "red" if status.error else "dim") for line in lines]
    if board.pane == "log":
        return [*why, *board.log[len(why) - room :]] if room > len(why) else why
    names = tools.get(status.name, ())
    if not names:
        return why
    shown: list[Line] = [(clean_line(name), "plain") for name in names[:room]]
    if len(names) > room:
        more = clean_line(f"… and {len(names) - room + 1} more: mooring tools --server {status.name}")
        shown[-1] = (more, "dim")
    return shown


_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, no wrapping
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ARROWS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "k": "up",
    "j": "down",
    "\xe0H": "up",
    "\xe0P": "down",  # on Windows
}


def is_terminal() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Screen:
    """Draws frames; sends only the lines that changed."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._shown: list[str] = []
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Current columns and lines."""
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[Line]) -> None:
        if self.size != self._size:
            self._size, self._shown = self.size, []
            sys.stdout.write("\x1b[2J")
        fresh = [self._out.paint(text, style) for text, style in lines]
        for number, line in enumerate(fresh):
            if number >= len(self._shown) or self._shown[number] != line:
                sys.stdout.write(f"\x1b[{number + 1};1H{line}\x1b[K")
        self._shown = fresh
        sys.stdout.flush()


@contextmanager
def screen(out: Output, on_key: Callable[[str], None]) -> Generator[Screen]:
    """Switch to the alternate screen; call `on_key` for every key until the end of the block."""
    try:
        with keys(lambda typed: _typed(typed, on_key)):
            sys.stdout.write(_ENTER)
            yield Screen(out)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _typed(typed: str, on_key: Callable[[str], None]) -> None:
    if typed in _ARROWS:
        on_key(_ARROWS[typed])
        return
    for key in typed:
        on_key(_ARROWS.get(key, key))


KEY_WAIT = 0.05
"""Seconds between two looks for a key on Windows, where a console cannot be waited for."""


@contextmanager
def keys(on_typed: Callable[[str], None]) -> Generator[None]:
    """Call `on_typed` in the event loop with what is typed, until the context ends. Ctrl-C stays Ctrl-C."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        import msvcrt

        ended = threading.Event()

        def read() -> None:
            while not ended.wait(KEY_WAIT):
                typed = ""
                while msvcrt.kbhit():
                    typed += msvcrt.getwch()
                if typed:
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(on_typed, typed)

        threading.Thread(target=read, name="mooring-keys", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, lambda: on_typed(os.read(descriptor, 1024).decode("utf-8", "replace")))
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
