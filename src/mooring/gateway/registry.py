"""The sessions of handshake clients: each has an id that nobody can guess, and belongs to one principal."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from mooring.gateway.client import ANONYMOUS, Client, Principal
from mooring.gateway.views import View
from mooring.net.negotiate import Era
from mooring.session import Session

__all__ = ["Full", "Registry"]


class Full(Exception):
    """As many sessions are open as may be."""


class Registry:
    """All conversations that last."""

    def __init__(self, *, limit: int, ttl: float, leave: Callable[[Client], Awaitable[None]]) -> None:
        self._leave = leave
        self._clients: dict[str, Client] = {}
        self.limit, self.ttl = limit, ttl

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def passing(
        self, view: View, principal: Principal, era: Era, protocol: str, capabilities: dict[str, Any]
    ) -> Client:
        """A client that lasts for one request. What it selects is kept with its principal."""
        key = f"gateway:{view.name}:{principal.name}"
        session = view.sessions.get(key)
        if session is None:
            if len(view.sessions) >= self.limit:
                view.sessions.pop(next(iter(view.sessions)))
            session = view.sessions[key] = _session(view, key, principal)
        return Client(
            id=key,
            principal=principal,
            view=view,
            session=session,
            era=era,
            protocol=protocol,
            capabilities=capabilities,
        )

    def open(self, view: View, principal: Principal, protocol: str, capabilities: dict[str, Any]) -> Client:
        """A client with a session of its own.

        Raises:
            Full: there is no room for one.
        """
        if len(self._clients) >= self.limit:
            raise Full(f"{self.limit} sessions are open; try again later")
        key = secrets.token_hex(16)
        client = Client(
            id=key,
            principal=principal,
            view=view,
            session=_session(view, key, principal),
            era="legacy",
            protocol=protocol,
            capabilities=capabilities,
            used=time.monotonic(),
        )
        self._clients[key] = client
        return client

    def find(self, key: str, view: View, principal: Principal) -> Client | None:
        """The session of this id, if it is this principal's and of this profile."""
        client = self._clients.get(key)
        if client is None or client.principal != principal or client.view is not view:
            return None
        client.used = time.monotonic()
        return client

    async def end(self, client: Client) -> None:
        if self._clients.pop(client.id, None) is not None:
            await self._leave(client)
            await client.close()

    async def keep(self, stays: Callable[[Client], bool]) -> None:
        """End the sessions of those who do not stay, side by side."""
        await asyncio.gather(*(self.end(client) for client in self if not stays(client)))

    async def reap(self) -> int:
        """End those that were not heard of for long; how many."""
        oldest = time.monotonic() - self.ttl
        idle = [
            client
            for client in self._clients.values()
            if client.used < oldest
            and not client.under_way
            and (client.standing is None or client.standing.closed)
        ]
        for client in idle:
            await self.end(client)
        return len(idle)

    async def close(self) -> None:
        for client in list(self._clients.values()):
            await self.end(client)


def _session(view: View, key: str, principal: Principal) -> Session:
    # Where nobody is asked who they are, everybody is whoever runs the gateway.
    whose = None if principal == ANONYMOUS else principal.name
    return Session(view, key, agent_id=principal.name, principal=whose)
