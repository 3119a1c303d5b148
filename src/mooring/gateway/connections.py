"""The connections of the HTTP server: how many there may be, and which one must go for another."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

__all__ = ["Connection", "Crowd", "Listener", "room"]

FIRST_WORD = 15.0
"""Seconds within which a new connection must have sent a request's headers."""
SPARED = 256
"""File descriptors that are left for servers, files and whatever else the process opens."""


def room(wanted: int) -> int:
    """How many connections there may be, so that the process never runs out of file descriptors.

    What the system lets us have is asked for first.
    """
    try:
        import resource
    except ImportError:  # Windows counts otherwise
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return wanted
    return max(min(wanted, hard - SPARED), 1)


class Crowd:
    """All open connections. When there are too many, one goes that nobody would miss: the oldest of those
    that never said anything, or else the one that has been at rest for longest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._silent: dict[Connection, None] = {}
        self._resting: dict[Connection, None] = {}

    def came(self, connection: Connection) -> bool:
        """Count one in; False when there is no room, since everybody else is being served."""
        self.count += 1
        self._silent[connection] = None
        if self.count <= self.most:
            return True
        self._silent.pop(connection)
        for group in (self._silent, self._resting):
            if group:
                oldest = next(iter(group))
                del group[oldest]
                oldest.abort()
                self._silent[connection] = None
                return True
        return False

    def busy(self, connection: Connection) -> None:
        """It has sent a request."""
        self._silent.pop(connection, None)
        self._resting.pop(connection, None)

    def rests(self, connection: Connection) -> None:
        """Its request was answered."""
        self._resting[connection] = None

    def went(self, connection: Connection) -> None:
        self.count -= 1
        self.busy(connection)


class Connection(RequestHandler):
    """A connection that is closed when it says nothing."""

    __slots__ = ("_crowd", "_first")

    def __init__(self, crowd: Crowd, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._crowd = crowd
        self._first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._crowd.came(self):
            self._first = asyncio.get_running_loop().call_later(FIRST_WORD, self.force_close)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.went(self)
        self._heard()
        super().connection_lost(exc)

    def begin(self) -> None:
        """A request has come."""
        self._heard()
        self._crowd.busy(self)

    def end(self) -> None:
        """It was answered; the next one may come."""
        if self.transport is not None:
            self._crowd.rests(self)

    def abort(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()

    def _heard(self) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first = None


class Listener(web.Server):
    """Makes the connections."""

    crowd: Crowd

    def __call__(self) -> RequestHandler:
        return Connection(self.crowd, self, loop=self._loop, **self._kwargs)
