"""The state of one server: which changes are allowed, and how they are reported."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mooring.config.logs import logger
from mooring.core import events
from mooring.core.config import ServerConfig
from mooring.core.events import Event, StateChanged
from mooring.core.types import ServerStatus, State
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.net.access import Access

log = logger("mooring.connection")

_ALLOWED: Mapping[State, tuple[State, ...]] = {
    "disabled": (),
    "pending": ("connected", "failed", "needs-auth", "pending"),
    "connected": ("pending", "failed"),
    "failed": ("pending", "failed"),
    "needs-auth": ("pending",),
}


class States:
    """The base of a connection's owner: its state, with events and log lines for each change."""

    def __init__(self, config: ServerConfig, *, enabled: bool, emit: Callable[[Event], None]) -> None:
        self.config = config
        self.state: State = "pending" if enabled else "disabled"
        self.problem: MooringError | None = None
        self.access: Access | None = None
        """Credentials for an HTTP server; None for stdio servers and servers with their own Authorization."""
        self.session: str | None = None
        """The session that this connection belongs to; None for the shared one."""
        self.settled = asyncio.Event()
        """Set once the first attempt to connect has ended, well or not."""
        self._emit = emit
        self._warned: set[str] = set()
        """Causes that were logged as warnings since the server last worked."""

    def _to(self, state: State, problem: MooringError | None) -> None:
        """Change the state: the only place where that happens."""
        old = self.state
        if state not in _ALLOWED[old]:
            raise AssertionError(f"{self.config.name}: {old} -> {state}")
        self.state, self.problem = state, problem
        if state != "pending":
            self.settled.set()
        if state != old:
            reason = str(problem) if problem else None
            log.info("%s: %s -> %s%s", self.config.name, old, state, f" ({reason})" if reason else "")
            self._emit(StateChanged(server=self.config.name, old=old, new=state, reason=reason))
            if state == "needs-auth":
                self._tell_auth(reason or "")

    def _tell_auth(self, reason: str) -> None:
        login = self.access is not None and self.access.wanted is not None
        self._emit(events.AuthNeeded(server=self.config.name, reason=reason, login=login))

    def _warn_unavailable(self, state: State, problem: MooringError) -> None:
        """Log why the server cannot be used and what to do about it."""
        name, reason = self.config.name, str(problem)
        known = ServerStatus(name=name, state=state, transport=self.config.transport, error=reason)
        self._warn_once(f"server {name!r} is not available: {reason}", _advice(self.config, known))

    def _warn_once(self, text: str, advice: str | None = None) -> None:
        """Log a warning once per cause; retries that fail in the same way are for the debug log."""
        cause = re.sub(r"\d+", "", text.split("\n", 1)[0])
        first = cause not in self._warned and self.session is None
        self._warned.add(cause)
        (log.warning if first else log.debug)("%s%s", text, f"\nWhat to do: {advice}" if advice else "")


def _advice(config: ServerConfig, status: ServerStatus) -> str | None:
    try:
        from mooring.core.diagnosis import diagnose  # few servers fail
    except OSError:  # no file descriptor is free, which may be why the server failed
        return None
    found = diagnose(config, status)
    return None if found is None else found.next
