"""Questions to the application: answered with yes or no, in time, or with no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from mooring.callbacks import call_back
from mooring.config.logs import logger

__all__ = ["said_yes"]

log = logger("mooring.asking")

Q = TypeVar("Q")


async def said_yes(ask: Callable[[Q], bool | Awaitable[bool]], question: Q, limit: float | None) -> bool:
    """Whether the callback says yes within `limit` seconds. What it raises counts as a no.

    A plain function is called in a thread, since it may wait for a person.
    """
    with anyio.move_on_after(limit):
        try:
            return await call_back(ask, question) is True
        except Exception:
            log.exception("a callback that was asked for a yes failed, which counts as a no")
    return False
