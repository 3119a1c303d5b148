"""The calls in a model's reply, made side by side and answered in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from mooring.adapters._bridge import Bridge
from mooring.core.types import Result

SIDE_BY_SIDE = 16
"""Calls of one reply that a source for threads makes at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that the model asks for."""

    id: str | None
    """Gemini gives its calls none."""
    name: str
    arguments: Any


Answer = dict[str, Any]
Render = Callable[[Call, Result], Answer]


def member(thing: Any, name: str) -> Any:
    """A member of an SDK's object, or of the same as a dict; None when it has none."""
    return cast("Any", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def answers(
    bridge: Bridge, calls: Sequence[Call], render: Render
) -> list[Answer] | Coroutine[Any, Any, list[Answer]]:
    """One answer per call: at once for a source for threads, to be awaited for others."""
    return _made(bridge, calls, render) if bridge.blocking else _awaited(bridge, calls, render)


async def _awaited(bridge: Bridge, calls: Sequence[Call], render: Render) -> list[Answer]:
    results = await asyncio.gather(*(bridge.call(call.name, call.arguments) for call in calls))
    return [render(call, result) for call, result in zip(calls, results, strict=True)]


def _made(bridge: Bridge, calls: Sequence[Call], render: Render) -> list[Answer]:
    if not calls:
        return []

    def make(call: Call) -> Result:
        return bridge.call_now(call.name, call.arguments)

    with ThreadPoolExecutor(min(len(calls), SIDE_BY_SIDE), "mooring-calls") as pool:
        results = pool.map(make, calls)
        return [render(call, result) for call, result in zip(calls, results, strict=True)]
