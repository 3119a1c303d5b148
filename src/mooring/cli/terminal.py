"""Keys typed at a terminal, one at a time and without echo."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

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
