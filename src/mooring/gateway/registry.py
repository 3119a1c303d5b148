"""The sessions of handshake clients: each has a random id, and belongs to one principal."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from mooring.gateway.client import ANONYMOUS, Client, Principal
from mooring.gateway.views import View
from mooring.net.negotiate import Era
from mooring.session import Session

__all__ = ["Full", "Registry", "account"]

_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv4 address begins that is written as an IPv6 address."""


class Full(Exception):
    """No further session can be opened."""


def account(principal: Principal, address: str | None) -> str:
    """What a client's use is counted under: its principal, or its address where no token is asked for.

    An IPv6 address counts with its network of 64 bits, all of which one machine may use.
    """
    if principal != ANONYMOUS:
        return f"principal {principal.name}"
    if address and ":" in address:
        with suppress(ValueError):
            packed = ipaddress.IPv6Address(address.partition("%")[0]).packed
            return (
                f"address {packed[:8].hex()}" if not packed.startswith(_MAPPED) else f"address {packed.hex()}"
            )
    return f"address {address}"


class Registry:
    """All sessions."""

    def __init__(
        self, *, limit: int, each: int, ttl: float, leave: Callable[[Client], Awaitable[None]]
    ) -> None:
        self._leave = leave
        self._clients: dict[str, Client] = {}
        self._accounts: dict[str, dict[str, Client]] = {}
        """The same clients, by what they are counted under."""
        self._ending: set[asyncio.Task[None]] = set()
        self.limit, self.each, self.ttl = limit, each, ttl

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
            lasts=False,
        )

    def open(
        self,
        view: View,
        principal: Principal,
        protocol: str,
        capabilities: dict[str, Any],
        address: str | None = None,
    ) -> Client:
        """A client with a session of its own. At the limit of its account, the account's own session that has
        been idle for longest ends for it; never one of another account.

        Raises:
            Full: there is no room for one.
        """
        whose = account(principal, address)
        own = self._accounts.get(whose, {})
        if len(own) >= self.each:
            idle = [client for client in own.values() if client.idle]
            if not idle:
                raise Full(f"{len(own)} sessions of this client are in use (client_sessions={self.each})")
            self._end_soon(min(idle, key=lambda client: client.used))
        if len(self._clients) >= self.limit:
            raise Full(f"{self.limit} sessions are open (max_sessions); try again later")
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
            account=whose,
        )
        self._clients[key] = self._accounts.setdefault(whose, {})[key] = client
        return client

    def find(self, key: str, view: View, principal: Principal) -> Client | None:
        """The session of this id, if it is this principal's and of this profile."""
        client = self._clients.get(key)
        if client is None or client.principal != principal or client.view is not view:
            return None
        client.used = time.monotonic()
        return client

    async def end(self, client: Client) -> None:
        if self._forget(client):
            await self._close(client)

    def _forget(self, client: Client) -> bool:
        """Take a session out; False when it was ended before."""
        if self._clients.pop(client.id, None) is None:
            return False
        own = self._accounts[client.account]
        del own[client.id]
        if not own:
            del self._accounts[client.account]
        return True

    def _end_soon(self, client: Client) -> None:
        self._forget(client)
        task = asyncio.get_running_loop().create_task(self._close(client))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _close(self, client: Client) -> None:
        await self._leave(client)
        await client.close()

    async def keep(self, stays: Callable[[Client], bool]) -> None:
        """End the sessions of those who do not stay, side by side."""
        await asyncio.gather(*(self.end(client) for client in self if not stays(client)))

    async def reap(self) -> int:
        """End those that were not heard of for long; how many."""
        oldest = time.monotonic() - self.ttl
        idle = [client for client in self._clients.values() if client.used < oldest and client.idle]
        for client in idle:
            await self.end(client)
        return len(idle)

    async def close(self) -> None:
        for client in list(self._clients.values()):
            await self.end(client)
        if self._ending:
            await asyncio.wait(self._ending)


def _session(view: View, key: str, principal: Principal) -> Session:
    # Where nobody is asked who they are, everybody is whoever runs the gateway.
    whose = None if principal == ANONYMOUS else principal.name
    return Session(view, key, agent_id=principal.name, principal=whose)
