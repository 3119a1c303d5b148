"""Log levels of servers: the most verbose level that any client asks for. Each client gets the messages of
its own level only (see `Client.wants_log`)."""

from __future__ import annotations

import asyncio
from typing import Any

from mooring.gateway.clients import Client, SessionRegistry
from mooring.gateway.profiles import Profile
from mooring.servers.active import LEVELS, USUAL, louder, set_level

__all__ = ["LogLevels"]


class LogLevels:
    """Sets the log level of handshake servers."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._active = False
        """Whether a client has asked for a level yet."""

    async def changed(self, client: Client) -> None:
        """Apply the level of a session to the connected shared servers, concurrently. Servers with
        `isolation: session` get it with their next call."""
        self._active = True
        levels: dict[Profile, str] = {client.profile: client.log_level or USUAL}
        for other in self._registry:
            wanted = other.log_level or USUAL
            levels[other.profile] = louder(wanted, levels.get(other.profile, wanted))

        async def apply_level(server: str) -> None:
            level = min(
                (wanted for profile, wanted in levels.items() if profile.admits(server)), key=LEVELS.index
            )
            if (supervisor := self._supervisor(client, server)) is not None:
                await _set_level(supervisor, level)

        connected = [status.name for status in client.profile.host.status() if status.state == "connected"]
        await asyncio.gather(*(apply_level(name) for name in connected if client.profile.shares(name)))

    async def apply(self, client: Client, server: str, asked: object) -> None:
        """Set the level of a server before it gets a request of this client; `asked` is the level in the
        request (2026 era)."""
        modern = client.era == "modern"
        wanted = asked if modern else client.log_level
        self._active = self._active or wanted in LEVELS
        if not self._active or (modern and wanted not in LEVELS):
            return
        supervisor = self._supervisor(client, server)
        if supervisor is None or (wanted is None and supervisor.log_level is None):
            return
        level = USUAL if wanted is None else str(wanted)
        if supervisor.session is None and supervisor.log_level is not None:
            level = louder(level, supervisor.log_level)  # shared with other clients
        await _set_level(supervisor, level)

    def _supervisor(self, client: Client, server: str) -> Any:
        if not client.profile.admits(server):
            return None
        provider: Any = client.profile.provider(server, client.session)
        return getattr(getattr(provider, "connection", provider), "supervisor", None)


async def _set_level(supervisor: Any, level: str) -> None:
    supervisor.log_level = level  # also applies to the next connection
    if supervisor.live is not None:
        await set_level(supervisor.live, level)
