"""Log lines that clients ask for, asked of the servers: the loudest wish decides, and each client is told no
more than it wished for (see `Client.wants_log`)."""

from __future__ import annotations

import asyncio
from typing import Any

from mooring.gateway.clients import Client, SessionRegistry
from mooring.gateway.profiles import Profile
from mooring.servers.active import LEVELS, USUAL, louder, set_level

__all__ = ["LogLevels"]


class LogLevels:
    """Passes levels on to servers of the handshake era."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._ever = False
        """Whether anybody has asked for a level yet; until then nothing is looked at."""

    async def changed(self, client: Client) -> None:
        """A session asked for another level: tell the servers that are connected, side by side. Those that
        sessions have for themselves are told with their next call."""
        self._ever = True
        wishes: dict[Profile, str] = {client.view: client.log_level or USUAL}
        for one in self._registry:
            wish = one.log_level or USUAL
            wishes[one.view] = louder(wish, wishes.get(one.view, wish))

        async def tell(server: str) -> None:
            level = min((wish for view, wish in wishes.items() if view.admits(server)), key=LEVELS.index)
            if (owner := self._owner(client, server)) is not None:
                await _tell(owner, level)

        connected = [status.name for status in client.view.host.status() if status.state == "connected"]
        await asyncio.gather(*(tell(name) for name in connected if client.view.shares(name)))

    async def heed(self, client: Client, server: str, asked: object) -> None:
        """Have a server log as loud as this client wishes for the request that it is about to get.

        Args:
            client: Whose request it is.
            server: Where it goes.
            asked: What the request itself says, in the 2026 era.
        """
        modern = client.era == "modern"
        wish = asked if modern else client.log_level
        self._ever = self._ever or wish in LEVELS
        if not self._ever or (modern and wish not in LEVELS):
            return
        owner = self._owner(client, server)
        if owner is None or (wish is None and owner.log_level is None):
            return
        level = USUAL if wish is None else str(wish)
        if owner.session is None and owner.log_level is not None:
            level = louder(level, owner.log_level)  # others share it
        await _tell(owner, level)

    def _owner(self, client: Client, server: str) -> Any:
        if not client.view.admits(server):
            return None
        provider: Any = client.view.provider(server, client.session)
        return getattr(getattr(provider, "connection", provider), "owner", None)


async def _tell(owner: Any, level: str) -> None:
    owner.log_level = level  # the next connection is told when it is made
    if owner.live is not None:
        await set_level(owner.live, level)
