"""The sessions of a host, and the connections that belong to one session each."""

# The registry keeps the usage of sessions up to date.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from mooring import concurrency
from mooring.auth.subject import SUBJECT
from mooring.concurrency import EventHub, shielded
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.plan import plan
from mooring.core.events import SessionEnded
from mooring.core.text import nearest
from mooring.core.types import EMPTY, CachedSnapshot, ServerStatus, Snapshot
from mooring.errors import ConfigError, UnknownServer
from mooring.local import Provider
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.launcher import OwnHeaders, checked, identity_of
from mooring.servers.manager import ServerManager
from mooring.servers.state import CurrentConfig, ServerLease

if TYPE_CHECKING:
    from mooring.servers.active import Guard
    from mooring.servers.connection import Connection

SHARED = "00000000-0000-0000-0000-000000000000"
"""Id of the shared session, which is used when no id is given."""


class SessionIdentity:
    """Identity and last use of a session."""

    __slots__ = ("_agent_id", "_calls", "_headers", "_id", "_principal", "_used")

    def __init__(
        self,
        session_id: str,
        *,
        agent_id: str | None,
        headers: Mapping[str, OwnHeaders],
        principal: str | None,
    ) -> None:
        self._id, self._agent_id, self._headers, self._principal = session_id, agent_id, headers, principal
        self._used = concurrency.monotonic()
        """When the session was last used, on the clock of `mooring.concurrency`."""
        self._calls = 0
        """Calls that are running."""

    @property
    def id(self) -> str:
        """The id of the session; unique within a host."""
        return self._id

    @property
    def agent_id(self) -> str | None:
        """The agent that the session belongs to, if one was named."""
        return self._agent_id

    @property
    def principal(self) -> str | None:
        """The principal whose logins the session uses on its own connections; None: those of the host."""
        return self._principal

    @property
    def headers(self) -> Mapping[str, OwnHeaders]:
        """By server: HTTP headers that this session sends in addition to, or instead of, the configured
        ones."""
        return self._headers


S = TypeVar("S", bound=SessionIdentity)


class PrivateConnection:
    """The connection of one session to one server: a provider.

    The catalog is shared by all sessions. The first listing of a private connection is published to it,
    unless the connection uses an identity of its own; later changes are not. Where the pins of the server
    are set to `block`, the guard refuses tools whose definition differs from the one in the catalog.
    """

    def __init__(self, connection: Connection, config: ServerConfig) -> None:
        self.connection = connection
        self.config = config
        self.name = config.name
        self.start, self.refresh, self.stop = connection.start, connection.refresh, connection.stop
        self.call = connection.call
        self.listed_on = connection.supervisor.live
        """The active connection of the last listing."""

    @property
    def snapshot(self) -> Snapshot:
        return self.connection.snapshot

    def accepts(self, config: ServerConfig) -> bool:
        """Take over another configuration if that needs no new connection; return whether it can be used.

        A connection whose login was refused is not used again: the credentials may have changed.
        """
        if config is not self.config:
            if not plan(HostConfig(servers=(self.config,)), HostConfig(servers=(config,))).keep:
                return False
            self.config = self.connection.supervisor.config = config
        return self.connection.state != "needs-auth"


def _used_by_caller(private: PrivateConnection, session: SessionIdentity) -> PrivateConnection:
    """Use the identity of the current request's gateway client for the connection, if it is the session's."""
    caller = SUBJECT.get()
    if caller is not None and caller.principal == session.principal:
        private.connection.supervisor.act_for(caller)
    return private


class HostSessions(Generic[S]):
    """The open sessions of a host by id, with their private connections. Idle sessions are ended."""

    def __init__(
        self, manager: ServerManager, catalog: CatalogBuilder, current: CurrentConfig, events: EventHub
    ) -> None:
        self._manager, self._catalog, self._current, self._events = manager, catalog, current, events
        self._open: dict[str, S] = {}
        self._private: dict[str, dict[tuple[str, Hashable], PrivateConnection]] = {}
        """By session; then by server and identity."""
        self._used_in_common: set[str] = set()
        """Isolated servers whose shared connection the shared session has used: no session takes it over."""
        self._closing: set[asyncio.Task[None]] = set()
        self.lease_of: Callable[[str, str], ServerLease | None] = lambda session, server: None
        """Returns the lease that a session needs for its connection to a server; set by a cluster."""
        self.ended: Callable[[str], Awaitable[None]] | None = None
        """Called after the connections of a session were closed; set by a cluster."""

    # --- sessions -------------------------------------------------------------------------------

    def open(
        self,
        make: Callable[..., S],
        session_id: str,
        *,
        agent_id: str | None,
        headers: Mapping[str, OwnHeaders] | None,
        principal: str | None,
    ) -> S:
        """Return the session of this id, made by `make` if there is none; see `Host.session`."""
        own = self._checked(headers or {})
        if session_id == SHARED:
            if own or principal is not None:
                raise ConfigError(
                    "the shared session cannot have its own headers or principal; give the session an id"
                )
            return make(agent_id=agent_id)
        session = self._open.get(session_id)
        if session is None:
            session = self._open[session_id] = make(
                session_id, agent_id=agent_id, headers=own or EMPTY, principal=principal
            )
        elif principal != session.principal:
            raise ConfigError(f"session {session_id!r} belongs to another principal; use another id")
        elif agent_id not in (None, session.agent_id):
            raise ConfigError(
                f"session {session_id!r} belongs to agent {session.agent_id!r}, not to {agent_id!r}; "
                "leave out `agent_id`, or give that agent a session of its own"
            )
        elif headers is not None and own != session.headers:
            raise ConfigError(
                f"session {session_id!r} is open with other headers; leave it first, or use another id"
            )
        session._used = concurrency.monotonic()
        return session

    async def end(self, session: SessionIdentity, reason: Literal["left", "idle"]) -> None:
        """Remove a session and close its private connections."""
        if self._open.get(session.id) is not session:
            return
        del self._open[session.id]
        own = self._private.pop(session.id, {})
        self._events.emit(SessionEnded(session=session.id, reason=reason))
        with shielded():
            await self._close(own.values())
            if self.ended is not None:
                await self.ended(session.id)

    def is_busy(self, session: S) -> bool:
        """Return whether a call of the session is running, here or for a client of a gateway, whose session
        of the same id shares the private connections."""
        private = self._private.get(session.id, {}).values()
        return session._calls > 0 or any(one.connection.load().running for one in private)

    def find(self, session_id: str) -> S | None:
        """Return an open session."""
        return self._open.get(session_id)

    async def end_idle(self) -> None:
        """End sessions that have not been used for `session_ttl` seconds, periodically. Never returns."""
        while True:
            await asyncio.sleep(self._current.config.idle_reap_interval)
            now, ttl = concurrency.monotonic(), self._current.config.session_ttl
            for session in filter(self.is_busy, self._open.values()):
                session._used = now
            idle = [session for session in self._open.values() if session._used < now - ttl]
            await asyncio.gather(*(self.end(session, "idle") for session in idle))

    async def close_removed(self) -> None:
        """Close private connections to servers that are no longer configured.

        Those to servers with another configuration are replaced on their next use.
        """
        wanted = self._manager.configs
        gone = [(own, key) for own in self._private.values() for key in own if key[0] not in wanted]
        await self._close([own.pop(key) for own, key in gone])

    # --- connections ----------------------------------------------------------------------------

    def provider(self, server: str, session: S) -> Provider:
        """Return the provider that runs the tools of `server` for this session, without waiting for it."""
        session._used = concurrency.monotonic()
        config = self._manager.configs.get(server)
        if config is None:
            return self._manager.provider(server)
        headers = session.headers.get(server)
        if headers is None and config.isolation == "shared":
            return self._manager.provider(server)
        if session.id == SHARED:
            self._used_in_common.add(server)
            return self._manager.provider(server)
        shared = self._manager.connections.get(server)
        if shared is not None and shared.state == "disabled":
            return shared
        return self._connection(session, config, headers)

    def login_connection(
        self, server: str, principal: str | None, open_session: Callable[[str], S]
    ) -> Connection:
        """Return the connection for a login: the shared one, or that of a session of the principal.

        Raises:
            UnknownServer: There is no such server.
            ConfigError: The server is shared, so that a principal has no login of its own.
        """
        config = self._manager.configs.get(server)
        if principal is None or config is None or config.url is None:
            return self._manager.connection(server)
        if config.isolation == "shared":
            raise ConfigError(
                f"{server!r} is shared, and so is its login; give it `isolation: session` for logins of "
                "each principal",
                file=config.file,
            )
        return self._connection(open_session(f"login:{principal}"), config, None).connection

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of every configured server, sorted by name.

        A server that has only private connections is shown with the state of one of them.
        """
        shown = {status.name: status for status in self._manager.status()}
        for own in self._private.values():
            for (server, _), private in own.items():
                if server in shown and server not in self._manager.connections:
                    shown[server] = private.connection.status()
        return tuple(shown.values())

    def _connection(self, session: S, config: ServerConfig, headers: OwnHeaders | None) -> PrivateConnection:
        self._open.setdefault(session.id, session)  # using a session that has ended opens it again
        own = self._private.setdefault(session.id, {})
        key = (config.name, identity_of(headers))
        private = own.get(key)
        if private is not None and private.accepts(config):
            return _used_by_caller(private, session)
        if private is not None:
            task = asyncio.get_running_loop().create_task(self._manager.end(private.connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        own[key] = new = self._connect(session, config, headers)
        return _used_by_caller(new, session)

    def _connect(self, session: S, config: ServerConfig, headers: OwnHeaders | None) -> PrivateConnection:
        listed = self._catalog.snapshot(config.name)
        # A listing for one identity is not published. Child processes have no logins.
        principal = session.principal if config.url is not None else None
        public = headers is None and principal is None
        connection, lease = None, self.lease_of(session.id, config.name)
        if public and lease is None and config.name not in self._used_in_common:
            connection = self._manager.hand_over(config.name)
        if connection is None:
            cached = CachedSnapshot.of(listed) if listed else None
            connection = self._manager.private(config, cached, headers)
        private = PrivateConnection(connection, config)
        connection.supervisor.principal, connection.supervisor.lease = principal, lease
        connection.supervisor.privately(session.id, partial(self._listed, private, public))
        return private

    def _listed(self, private: PrivateConnection, public: bool, snapshot: Snapshot) -> Guard | None:
        """Publish the first listing of a connection; return the guard for its requests."""
        active = private.connection.supervisor.live
        first, private.listed_on = active is not private.listed_on, active
        shown = self._catalog.snapshot(private.name)
        if public and (shown is None or (first and snapshot.tools != shown.tools)):
            self._catalog.publish(snapshot)
        return self._catalog.guard(snapshot)

    def _checked(self, headers: Mapping[str, OwnHeaders]) -> dict[str, OwnHeaders]:
        own: dict[str, OwnHeaders] = {}
        for server, values in headers.items():
            config = self._manager.configs.get(server)
            if config is None:
                raise UnknownServer(server, nearest(server, self._manager.configs))
            if config.url is None:
                raise ConfigError(f"server {server!r} is a program and takes no headers")
            own[server] = values if callable(values) else dict(checked(values))
        return own

    async def _close(self, connections: Iterable[PrivateConnection]) -> None:
        await asyncio.gather(*(self._manager.end(private.connection) for private in connections))
