"""Questions to the application: answered with yes or no, in time, or with no."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio import to_thread

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
            if inspect.iscoroutinefunction(ask):
                return await ask(question) is True
            answer = await to_thread.run_sync(ask, question, abandon_on_cancel=True)
            return (await answer if inspect.isawaitable(answer) else answer) is True
        except Exception:
            log.exception("a callback that was asked for a yes failed, which counts as a no")
    return False
