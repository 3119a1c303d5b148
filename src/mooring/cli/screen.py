"""The whole terminal for a while: drawn over in place, keys read one by one, left as it was found."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from mooring.cli.board import Line
from mooring.cli.output import Output

__all__ = ["Screen", "is_terminal", "screen"]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # another screen, no cursor, no wrapping
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "k": "up", "j": "down"}


def is_terminal() -> bool:
    """Whether there is a screen to draw on and a keyboard to read."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Screen:
    """Draws frames; only what differs from the last one is sent."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._shown: list[str] = []
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, now."""
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
    """A screen of our own; `on_key` hears every key until the end."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()
    sys.stdout.write(_ENTER)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C stays Ctrl-C
        loop.add_reader(descriptor, lambda: _read(descriptor, on_key))
        yield Screen(out)
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _read(descriptor: int, on_key: Callable[[str], None]) -> None:
    typed = os.read(descriptor, 1024).decode("utf-8", "replace")
    if typed in _ARROWS:
        on_key(_ARROWS[typed])
        return
    for key in typed:
        on_key(_ARROWS.get(key, key))
