"""Clients of the gateway: identity, capabilities, sessions, and what is being sent to them."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from mooring.core.types import EMPTY, Era
from mooring.gateway.profiles import Profile
from mooring.gateway.protocol import INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, fields, notice_body
from mooring.servers.active import LEVELS
from mooring.session import Session
from mooring.transport.message import RequestId, encode

KEPT = 1024
"""Messages that a slow reader may be behind; then it is dropped, and the others never wait for it."""


class Outbox:
    """Messages for one stream. `put` never waits; `pour` writes until the box is closed."""

    __slots__ = ("_closed", "_data", "_wake", "lost", "on_lost")

    def __init__(self, on_lost: Callable[[], None] | None = None) -> None:
        self._data = deque[bytes]()
        self._wake = asyncio.Event()
        self._closed = False
        self.lost = False
        """Whether the reader was too slow, or went away."""
        self.on_lost = on_lost

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, data: bytes) -> None:
        if self._closed:
            return
        if len(self._data) >= KEPT:
            self.lose()
            return
        self._data.append(data)
        self._wake.set()

    def close(self) -> None:
        """Nothing more comes; what is there is still written."""
        self._closed = True
        self._wake.set()

    def lose(self) -> None:
        """The reader is gone."""
        if not self.lost:
            self.lost = True
            self._data.clear()
            self.close()
            if self.on_lost is not None:
                self.on_lost()

    async def pour(
        self,
        write: Callable[[bytes], Awaitable[None]],
        *,
        frame: Callable[[bytes], bytes],
        pulse: float | None = None,
        beat: bytes = b"",
    ) -> None:
        """Write everything in order until closed; after `pulse` seconds of silence, write `beat`."""
        while True:
            while self._data:
                await write(frame(self._data.popleft()))
            if self._closed:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(pulse):
                    await self._wake.wait()
            except TimeoutError:
                await write(beat)


RECENT = 16
"""Notices that a session keeps for a client whose stream broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request is from, as its token says: never what a header or a body claims."""

    name: str
    scopes: frozenset[str] = frozenset()


ANONYMOUS = Principal(name="anonymous")


class ClientExchange(Protocol):
    """One request under way: where to say something before its answer."""

    headers: Mapping[str, str]
    """Of the HTTP request; empty elsewhere."""

    def send(self, body: bytes) -> None:
        """Send a message that belongs to this request. Never waits."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the client can read anything before the answer."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A conversation. In the handshake era it lasts; in the 2026 era each request makes its own."""

    id: str
    principal: Principal
    view: Profile
    session: Session
    era: Era
    protocol: str
    capabilities: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    account: str = ""
    """What its session is counted under."""
    lasts: bool = True
    """Whether it has a session, which is there for the next request."""
    standing: Outbox | None = None
    """The stream that is there between requests."""
    told: int = 0
    """How many notices of no request there were so far."""
    log_level: str | None = None
    subscribed: dict[str, str] = field(default_factory=dict[str, str])
    """Resources whose changes it is told, each with its server."""
    used: float = 0.0
    """When it was last heard of, on the monotonic clock."""
    busy: int = 0
    under_way: dict[RequestId, anyio.CancelScope] = field(default_factory=dict[RequestId, anyio.CancelScope])
    _recent: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=RECENT))
    _asked: dict[RequestId, asyncio.Future[dict[str, Any]]] = field(
        default_factory=dict[RequestId, "asyncio.Future[dict[str, Any]]"]
    )
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def idle(self) -> bool:
        """Whether it has no request under way and holds no stream."""
        return not self.under_way and (self.standing is None or self.standing.closed)

    def wants_log(self, level: object, asked: object = None) -> bool:
        """Whether a log line of this level is for this client; `asked` is what its request says of it."""
        if self.era == "legacy" and self.log_level is None:
            return level != "debug"  # that may be there only because somebody else asked for it
        least = asked if self.era == "modern" else self.log_level
        return level in LEVELS and least in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(str(least))

    def can(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client said that it answers such a request."""
        match method:
            case "elicitation/create":
                offered = self.capabilities.get("elicitation")
                modes = fields(offered)
                # Before modes had names, an empty object meant forms.
                return isinstance(offered, dict) and (
                    params.get("mode", "form") in modes
                    or (not modes and params.get("mode", "form") == "form")
                )
            case "sampling/createMessage":
                return "sampling" in self.capabilities
            case "roots/list":
                return "roots" in self.capabilities
            case _:
                return False

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the client something that belongs to no request. Where it holds no stream it is kept for a
        while, in case that it comes back for it."""
        body = notice_body(method, params)
        self.told += 1
        self._recent.append(body)
        if self.standing is not None:
            self.standing.put(body)

    def missed(self, last: int) -> list[bytes]:
        """What was told after notice number `last`, as far as it is still there."""
        since = max(self.told - last, 0)
        return list(self._recent)[-since:] if since else []

    async def ask(self, method: str, params: Mapping[str, Any], exchange: ClientExchange) -> dict[str, Any]:
        """The client's answer to a request of ours (handshake era only).

        Raises:
            Refusal: it cannot be asked, or it refused.
        """
        if self.era != "legacy" or not exchange.streams or not self.can(method, params):
            raise Refusal(METHOD_NOT_FOUND, f"the client behind the gateway does not do {method!r}")
        key = f"mooring-{next(self._numbers)}"
        answer = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            request = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
            exchange.send(encode(request))
            return await answer
        finally:
            del self._asked[key]

    def answered(self, message: Mapping[str, Any]) -> None:
        """Take the client's answer to one of our requests; others are ignored."""
        waiter = self._asked.get(message.get("id") or "")
        if waiter is None or waiter.done():
            return
        if said := fields(message.get("error")):
            code, text = said.get("code"), said.get("message")
            waiter.set_exception(
                Refusal(
                    code if isinstance(code, int) else INVALID_REQUEST,
                    text if isinstance(text, str) else "the client refused",
                    said.get("data"),
                )
            )
        else:
            waiter.set_result(fields(message.get("result")))

    def cancelled(self, request_id: object) -> None:
        """The client no longer waits for one of its requests."""
        if isinstance(request_id, int | str) and (scope := self.under_way.get(request_id)) is not None:
            scope.cancel()

    async def close(self) -> None:
        """End what is under way and let the session's own servers go."""
        for scope in list(self.under_way.values()):
            scope.cancel()
        for waiter in self._asked.values():
            if not waiter.done():
                waiter.set_exception(Refusal(INVALID_REQUEST, "the client has gone"))
        if self.standing is not None:
            self.standing.close()
        await self.session.__aexit__(None, None, None)


_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv4 address begins that is written as an IPv6 address."""


class TooManySessions(Exception):
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


class SessionRegistry:
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
        self, view: Profile, principal: Principal, era: Era, protocol: str, capabilities: dict[str, Any]
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
        view: Profile,
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
                raise TooManySessions(
                    f"{len(own)} sessions of this client are in use (client_sessions={self.each})"
                )
            self._end_soon(min(idle, key=lambda client: client.used))
        if len(self._clients) >= self.limit:
            raise TooManySessions(f"{self.limit} sessions are open (max_sessions); try again later")
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

    def find(self, key: str, view: Profile, principal: Principal) -> Client | None:
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


def _session(view: Profile, key: str, principal: Principal) -> Session:
    # Where nobody is asked who they are, everybody is whoever runs the gateway.
    whose = None if principal == ANONYMOUS else principal.name
    return Session(view, key, agent_id=principal.name, principal=whose)
