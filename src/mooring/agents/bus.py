"""Events by name, for runtimes that have a bus of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mooring.config.logs import logger

log = logger("mooring.agents")

Listener = Callable[[str, Mapping[str, Any]], None]


class EventBus:
    """Passes events on to whoever subscribed, in the thread that emits them. A failing listener is logged
    and harms nobody."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    def subscribe(self, name: str, listener: Listener) -> Callable[[], None]:
        """Have `listener(name, payload)` called for events of this name, or for all with `*`; returns what
        ends that."""
        entry = (name, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def emit(self, name: str, **payload: Any) -> None:
        for wanted, listener in list(self._listeners):
            if wanted in (name, "*"):
                try:
                    listener(name, payload)
                except Exception:
                    log.exception("a listener for %r failed", name)
