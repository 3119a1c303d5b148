"""Clients of the gateway: identity, capabilities, sessions, and messages queued for them."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ReferenceType

import anyio

from mooring.auth.subject import Subject
from mooring.core.types import EMPTY, Era
from mooring.gateway.profiles import Profile, ProfileCatalog
from mooring.gateway.protocol import INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, fields, notice_body
from mooring.servers.active import LEVELS
from mooring.session import Session
from mooring.transport.message import RequestId, encode

if TYPE_CHECKING:
    from mooring.gateway.access import RequestRecord

MAX_QUEUED = 1024
"""Messages queued for a slow reader; one more, and its stream is dropped."""


class Outbox:
    """Message queue of one stream. `put` never waits; `write_all` writes until the outbox is closed."""

    __slots__ = ("_closed", "_data", "_wake", "lost", "on_lost")

    def __init__(self, on_lost: Callable[[], None] | None = None) -> None:
        self._data = deque[bytes]()
        self._wake = asyncio.Event()
        self._closed = False
        self.lost = False
        """Whether the reader was too slow or disconnected."""
        self.on_lost = on_lost

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, data: bytes) -> None:
        if self._closed:
            return
        if len(self._data) >= MAX_QUEUED:
            self.lose()
            return
        self._data.append(data)
        self._wake.set()

    def close(self) -> None:
        """Accept no more messages; queued ones are still written."""
        self._closed = True
        self._wake.set()

    def lose(self) -> None:
        """Discard the queue: the reader is gone."""
        if not self.lost:
            self.lost = True
            self._data.clear()
            self.close()
            if self.on_lost is not None:
                self.on_lost()

    async def write_all(
        self,
        write: Callable[[bytes], Awaitable[None]],
        *,
        frame: Callable[[bytes], bytes],
        heartbeat: float | None = None,
        heartbeat_data: bytes = b"",
    ) -> None:
        """Write all messages in order until closed; write `heartbeat_data` after `heartbeat` idle seconds."""
        while True:
            while self._data:
                await write(frame(self._data.popleft()))
            if self._closed:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(heartbeat):
                    await self._wake.wait()
            except TimeoutError:
                await write(heartbeat_data)


REPLAY_LIMIT = 16
"""Notifications that a session keeps for a client whose stream broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The identity of a client, taken from its token or certificate only, never from another header or the
    body."""

    name: str
    scopes: frozenset[str] = frozenset()
    profiles: frozenset[str] | None = None
    """Profiles that its token is limited to; None: every one, and the default."""
    subject: Subject | None = field(default=None, compare=False, repr=False)
    """The signed token of the request, for servers with `auth: {exchange: …}` or `{idp: …}`."""


ANONYMOUS = Principal(name="anonymous")


class ClientExchange(Protocol):
    """The channel for messages that are sent before the response to one request."""

    headers: Mapping[str, str]
    """HTTP headers of the request; empty for other transports."""
    record: RequestRecord | None
    """What is known about the request; set when the gateway answers it."""

    def send(self, body: bytes) -> None:
        """Queue a message that belongs to this request. Never waits."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the client can read messages before the response."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A client. In the handshake era it lives as long as its session; in the 2026 era, for one request."""

    id: str
    principal: Principal
    profile: Profile
    session: Session
    era: Era
    protocol: str
    capabilities: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    account: str = ""
    """The key under which its session counts towards `client_sessions`."""
    has_session: bool = True
    """Whether it has a session that later requests can use."""
    event_stream: Outbox | None = None
    """The stream for messages that belong to no request."""
    notified: int = 0
    """Number of notifications so far that belong to no request."""
    log_level: str | None = None
    subscribed: dict[str, str] = field(default_factory=dict[str, str])
    """Subscribed resource URIs, each with its server."""
    listed: dict[str, ReferenceType[ProfileCatalog]] = field(
        default_factory=dict[str, "ReferenceType[ProfileCatalog]"]
    )
    """The contents of the profile in the last response to each list method."""
    silenced: int = 0
    """Above 0 while changes of lists are not announced, because the client is about to list or a response
    contains the change."""
    used: float = 0.0
    """Time of the last request, on the monotonic clock."""
    ended: bool = False
    """Whether the gateway has ended its session."""
    under_way: dict[RequestId, anyio.CancelScope] = field(default_factory=dict[RequestId, anyio.CancelScope])
    _recent: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=REPLAY_LIMIT))
    _asked: dict[RequestId, asyncio.Future[dict[str, Any]]] = field(
        default_factory=dict[RequestId, "asyncio.Future[dict[str, Any]]"]
    )
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def idle(self) -> bool:
        """Whether it has no running request and no open stream."""
        return not self.under_way and (self.event_stream is None or self.event_stream.closed)

    def wants_log(self, level: object, asked: object = None) -> bool:
        """Whether to send a log message of `level` to this client; `asked` is the level of its request."""
        if self.era == "legacy" and self.log_level is None:
            return level != "debug"  # another client may have asked for it
        least = asked if self.era == "modern" else self.log_level
        return level in LEVELS and least in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(str(least))

    def can(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client declared the capability for this request."""
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
        """Send a notification that belongs to no request, and keep it for a client that reconnects."""
        self.notify_raw(notice_body(method, params))

    def notify_raw(self, body: bytes) -> None:
        """Send an encoded notification; see `notify`."""
        self.notified += 1
        self._recent.append(body)
        if self.event_stream is not None:
            self.event_stream.put(body)

    def missed(self, last: int) -> list[bytes]:
        """Return the notifications after number `last` that are still kept."""
        since = max(self.notified - last, 0)
        return list(self._recent)[-since:] if since else []

    async def ask(self, method: str, params: Mapping[str, Any], exchange: ClientExchange) -> dict[str, Any]:
        """Send a request to the client and return its result (handshake era only).

        Raises:
            Refusal: The client does not support the request, or returned an error.
        """
        if self.era != "legacy" or not exchange.streams or not self.can(method, params):
            raise Refusal(METHOD_NOT_FOUND, f"the client of the gateway does not support {method!r}")
        key = f"mooring-{next(self._numbers)}"
        answer = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            request = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
            exchange.send(encode(request))
            return await answer
        finally:
            del self._asked[key]

    def answered(self, message: Mapping[str, Any]) -> None:
        """Handle a response of the client. Responses to unknown requests are ignored."""
        waiter = self._asked.get(message.get("id") or "")
        if waiter is None or waiter.done():
            return
        if error := fields(message.get("error")):
            code, text = error.get("code"), error.get("message")
            waiter.set_exception(
                Refusal(
                    code if isinstance(code, int) else INVALID_REQUEST,
                    text if isinstance(text, str) else "the client returned an error",
                    error.get("data"),
                )
            )
        else:
            waiter.set_result(fields(message.get("result")))

    def cancelled(self, request_id: object) -> None:
        """Cancel one of the client's requests."""
        if isinstance(request_id, int | str) and (scope := self.under_way.get(request_id)) is not None:
            scope.cancel()

    async def close(self) -> None:
        """Cancel running requests and close the connections that only this session uses."""
        self.ended = True
        for scope in list(self.under_way.values()):
            scope.cancel()
        for waiter in self._asked.values():
            if not waiter.done():
                waiter.set_exception(Refusal(INVALID_REQUEST, "the client disconnected"))
        if self.event_stream is not None:
            self.event_stream.close()
        await self.session.__aexit__(None, None, None)


_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of IPv4-mapped IPv6 addresses."""


class TooManySessions(Exception):
    """No further session can be opened. `account` is whose limit it is if several nodes count together."""

    def __init__(self, message: str, account: str | None = None) -> None:
        super().__init__(message)
        self.account = account


class SessionCounts(ABC):
    """Numbers of sessions that several nodes count together."""

    @abstractmethod
    def enter(self, account: str, per_account: int, limit: int) -> str | None:
        """Count a session. Return None; or, if it was not counted, the account whose limit is reached."""

    @abstractmethod
    def leave(self, account: str) -> None: ...


def account(principal: Principal, address: str | None) -> str:
    """Return the key for per-client limits: the principal, or the address if no token is required.

    IPv6 addresses are grouped by their /64 network, which one machine may use in full.
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


def random_id() -> str:
    """Return the id of a new session of a gateway without other nodes."""
    return secrets.token_hex(16)


class SessionRegistry:
    """The sessions of all clients, limited in total and per account."""

    def __init__(
        self,
        *,
        limit: int,
        per_account: int,
        ttl: float,
        on_close: Callable[[Client], Awaitable[None]],
        new_id: Callable[[], str],
        counts: SessionCounts | None = None,
    ) -> None:
        """With `counts`, the limits hold for all nodes together, and no session is ended for another one."""
        self._on_close, self._new_id, self._counts = on_close, new_id, counts
        self._clients: dict[str, Client] = {}
        self._accounts: dict[str, dict[str, Client]] = {}
        """The same clients by account."""
        self._ending: set[asyncio.Task[None]] = set()
        self.limit, self.per_account, self.ttl = limit, per_account, ttl

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def transient(
        self, profile: Profile, principal: Principal, era: Era, protocol: str, capabilities: dict[str, Any]
    ) -> Client:
        """Return a client for one request. The tools it selects are kept per principal."""
        key = f"gateway:{profile.name}:{principal.name}"
        session = profile.sessions.get(key)
        if session is None:
            if len(profile.sessions) >= self.limit:
                profile.sessions.pop(next(iter(profile.sessions)))
            session = profile.sessions[key] = _session(profile, key, principal)
        return Client(
            id=key,
            principal=principal,
            profile=profile,
            session=session,
            era=era,
            protocol=protocol,
            capabilities=capabilities,
            has_session=False,
        )

    def open(
        self,
        profile: Profile,
        principal: Principal,
        protocol: str,
        capabilities: dict[str, Any],
        address: str | None = None,
    ) -> Client:
        """Return a client with a new session. At the limit of its account, the account's longest idle session
        is ended. When `max_sessions` are open, that of another account which has more than half of them, or
        else of its own.

        Raises:
            TooManySessions: There is no idle session to end.
        """
        owner_account = account(principal, address)
        self._admit(owner_account)
        key = self._new_id()
        client = Client(
            id=key,
            principal=principal,
            profile=profile,
            session=_session(profile, key, principal),
            era="legacy",
            protocol=protocol,
            capabilities=capabilities,
            used=time.monotonic(),
            account=owner_account,
        )
        self._clients[key] = self._accounts.setdefault(owner_account, {})[key] = client
        return client

    def _admit(self, owner_account: str) -> None:
        """Raise `TooManySessions` unless the account may have another session."""
        if self._counts is not None:
            full = self._counts.enter(owner_account, self.per_account, self.limit)
            if full == owner_account:
                raise TooManySessions(f"too many sessions (client_sessions={self.per_account})", full)
            if full is not None:
                raise TooManySessions(f"{self.limit} sessions are open (max_sessions); try again later", full)
            return
        if (count := len(self._accounts.get(owner_account, ()))) >= self.per_account:
            if not self._ended_one(owner_account):
                raise TooManySessions(
                    f"{count} sessions of this client are in use (client_sessions={self.per_account})"
                )
        elif len(self._clients) >= self.limit:
            # One client must not lock out the others, nor itself.
            large = [name for name, own in self._accounts.items() if 2 * len(own) > self.limit]
            if not any(self._ended_one(name) for name in (*large, owner_account)):
                raise TooManySessions(f"{self.limit} sessions are open (max_sessions); try again later")

    def _ended_one(self, owner_account: str) -> bool:
        """End the longest idle session of an account. Return False if all are in use."""
        if (idle := self.longest_idle(owner_account)) is not None:
            self._end_soon(idle)
        return idle is not None

    def longest_idle(self, owner_account: str) -> Client | None:
        """Return the session of an account that was idle for longest; None if all are in use."""
        idle = [client for client in self._accounts.get(owner_account, {}).values() if client.idle]
        return min(idle, key=lambda client: client.used) if idle else None

    def majority(self) -> str | None:
        """Return the account that has more than half of the sessions here, if one has."""
        accounts = self._accounts.items()
        return next((name for name, own in accounts if 2 * len(own) > len(self._clients)), None)

    def find(self, key: str, profile: Profile, principal: Principal) -> Client | None:
        """Return the session of this id if it belongs to this principal and profile."""
        client = self._clients.get(key)
        if client is None or client.principal != principal or client.profile is not profile:
            return None
        client.used = time.monotonic()
        client.principal = principal  # the same, with the token of this request
        return client

    async def end(self, client: Client) -> None:
        if self._forget(client):
            await self._close(client)

    def _forget(self, client: Client) -> bool:
        """Remove a session from the registry; False if it was removed before."""
        if self._clients.pop(client.id, None) is None:
            return False
        if self._counts is not None:
            self._counts.leave(client.account)
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
        await self._on_close(client)
        await client.close()

    async def end_unless(self, stays: Callable[[Client], bool]) -> None:
        """End the sessions for which `stays` returns False, concurrently."""
        await asyncio.gather(*(self.end(client) for client in self if not stays(client)))

    async def reap(self) -> int:
        """End sessions idle for longer than the TTL; return their number."""
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


def _session(profile: Profile, key: str, principal: Principal) -> Session:
    # Without tokens all clients act for the user who runs the gateway.
    owner_account = None if principal == ANONYMOUS else principal.name
    return Session(profile, key, agent_id=principal.name, principal=owner_account)
