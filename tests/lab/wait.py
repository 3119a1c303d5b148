"""Wait for a condition, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio


async def until(wanted: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return when `wanted` is true; fail when that takes longer than `seconds`."""
    with anyio.fail_after(seconds):
        while not wanted():
            await anyio.sleep(0.01)


def until_true(wanted: Callable[[], bool], seconds: float = 20.0) -> None:
    """The same without an event loop."""
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
