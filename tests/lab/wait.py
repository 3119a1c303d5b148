"""Wait for a condition, with a time limit."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import anyio


async def until(wanted: Callable[[], Any], seconds: float = 20.0) -> None:
    """Return when `wanted`, a function or a coroutine function, returns a true value; fail when that takes
    longer than `seconds`."""
    with anyio.fail_after(seconds):
        while not (await found if inspect.isawaitable(found := wanted()) else found):
            await anyio.sleep(0.01)


def until_true(wanted: Callable[[], bool], seconds: float = 20.0) -> None:
    """The same without an event loop."""
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
