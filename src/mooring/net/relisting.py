"""The listings of one connection after the first: asked for by callers, or due because of a notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from mooring.errors import MooringError
from mooring.net.freshness import DEBOUNCE, Freshness
from mooring.net.live import Live

__all__ = ["Relisting"]

List = Callable[[Live, Freshness], Awaitable[MooringError | None]]
"""Lists once and publishes; returns why that failed."""


class Relisting:
    """However many callers ask and notices come, one listing at a time serves all of them."""

    def __init__(self, server: str, take: List) -> None:
        self._server, self._take = server, take
        self._dirty = False
        self._freshness: Freshness | None = None
        self._under_way: asyncio.Future[None] | None = None
        """Done when the listing that is under way has ended."""
        self._callers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()

    def begin(self, freshness: Freshness) -> None:
        """The first listing of a new connection begins."""
        self._dirty, self._freshness = False, freshness

    def mark_dirty(self) -> None:
        """The lists are out of date: list after the debounce."""
        self._dirty = True
        self._wake.set()

    def wake(self) -> None:
        """Let `run` look whether the connection is still up."""
        self._wake.set()

    @property
    def outdated(self) -> bool:
        """Whether the lists may have changed since they were last listed."""
        unsure = self._freshness is not None and self._freshness.unsure
        return self._dirty or unsure or self._under_way is not None

    async def settle(self) -> None:
        """Wait for a listing because the lists are `outdated`. Raises as `ask`."""
        if self._under_way is not None and not self._dirty:
            await asyncio.wait([self._under_way])
            if not self._dirty:
                return
        await self.ask()

    async def ask(self) -> None:
        """Wait for a listing that begins now, without the debounce.

        Raises:
            MooringError: it failed; what was known before stays.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers.append(done)
        self._wake.set()
        await done

    def fail(self, problem: MooringError) -> None:
        """Tell the callers that no listing will come of this connection."""
        callers, self._callers = self._callers, []
        for caller in callers:
            if not caller.done():
                caller.set_exception(problem)

    async def run(self, live: Live, freshness: Freshness) -> None:
        """List whenever that is due, until the connection is gone."""
        while live.channel.death is None:
            await self._wake.wait()
            self._wake.clear()
            if live.channel.death is None and (self._dirty or self._callers):
                await self._list(live, freshness)

    async def _list(self, live: Live, freshness: Freshness) -> None:
        with live.channel.lifetime(), anyio.move_on_after(DEBOUNCE):
            while not self._callers:  # a caller that waits ends the debounce
                await self._wake.wait()
                self._wake.clear()
        asked, self._callers = self._callers, []
        self._dirty, self._under_way = False, asyncio.get_running_loop().create_future()
        try:
            problem = await self._take(live, freshness)
        finally:
            self._under_way.set_result(None)
            self._under_way = None
        if live.channel.death is not None:
            self._callers += asked  # they are told why the connection is gone
            return
        if problem is not None:
            self._dirty = True  # what was announced is still not known
            freshness.failed()
        for caller in asked:
            if not caller.done():
                caller.set_exception(problem) if problem else caller.set_result(None)
