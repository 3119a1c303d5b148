"""The conversations of a host: which are alive, and the connections that are theirs alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol

from mooring import concurrency
from mooring.concurrency import shielded
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.plan import plan
from mooring.core.discovery import Mode
from mooring.core.events import SessionEnded
from mooring.core.text import nearest
from mooring.core.types import EMPTY, CachedSnapshot, ServerStatus, Snapshot
from mooring.errors import ConfigError, UnknownServer
from mooring.local import Provider
from mooring.servers.launcher import OwnHeaders, checked, identity_of
from mooring.servers.manager import ServerManager
from mooring.session import SHARED, Runtime, Session

if TYPE_CHECKING:
    from mooring.servers.active import Guard
    from mooring.servers.connection import Connection

log = logger("mooring.session")


class SessionHost(Runtime, Protocol):
    """What sessions need of their host."""

    @property
    def config(self) -> HostConfig: ...

    def publish(self, snapshot: Snapshot) -> Guard | None: ...


class PrivateConnections:
    """A connection that one conversation has for itself: a provider as any other.

    There is one catalog for all: what a fresh connection lists is the server's word, unless it was said
    to one identity alone; what changes later is this conversation's affair. Where the server's pins say
    `block`, its guard refuses a tool that is defined here otherwise than in the catalog, which the
    model has read.
    """

    def __init__(self, connection: Connection, config: ServerConfig) -> None:
        self.connection = connection
        self.config = config
        self.name = config.name
        self.start, self.refresh, self.stop = connection.start, connection.refresh, connection.stop
        self.call = connection.call
        self.live = connection.supervisor.live
        """The wire on which it was last listed."""

    @property
    def snapshot(self) -> Snapshot:
        return self.connection.snapshot

    def fits(self, config: ServerConfig) -> bool:
        """Whether it can serve under this configuration, which is taken over if so. A refused login is
        tried again with what the credentials are now."""
        if config is not self.config:
            if not plan(HostConfig(servers=(self.config,)), HostConfig(servers=(config,))).keep:
                return False
            self.config = self.connection.supervisor.config = config
        return self.connection.state != "needs-auth"


class SessionManager:
    """Registry and reaper: one session for one id, and nothing of it left when it is over."""

    def __init__(
        self,
        host: SessionHost,
        fleet: ServerManager,
        offered: Callable[[str], Snapshot | None],
        guard_for: Callable[[Snapshot | None, Snapshot], Guard | None],
    ) -> None:
        self._host = host
        self._fleet = fleet
        fleet.guard_with(self.guard)
        self._offered = offered
        self._guard_for = guard_for
        self._alive: dict[str, Session] = {}
        self._private: dict[str, dict[tuple[str, Hashable], PrivateConnections]] = {}
        """By session; then by server and identity."""
        self._in_common: set[str] = set()
        """Isolated servers whose own connection the shared session has used: it is not given away."""
        self._ending: set[asyncio.Task[None]] = set()

    # --- life -----------------------------------------------------------------------------------

    def open(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
        discovery: Mode | None = None,
    ) -> Session:
        """The session of this id; see `Host.session`."""
        own = self._checked(headers or {})
        if session_id == SHARED:
            if own or principal is not None:
                raise ConfigError(
                    "the session that everybody shares cannot have headers or a principal of its own; "
                    "give it an id"
                )
            return Session(self._host, agent_id=agent_id, discovery=discovery)
        session = self._alive.get(session_id)
        if session is None:
            session = self._alive[session_id] = Session(
                self._host,
                session_id,
                agent_id=agent_id,
                headers=own or EMPTY,
                principal=principal,
                discovery=discovery,
            )
        elif principal != session.principal:
            raise ConfigError(f"session {session_id!r} is somebody else's; use another id")
        elif agent_id not in (None, session.agent_id):
            raise ConfigError(
                f"session {session_id!r} belongs to agent {session.agent_id!r}, not to {agent_id!r}; "
                "leave out `agent_id`, or give that agent a session of its own"
            )
        elif discovery not in (None, session.discovery):
            raise ConfigError(
                f"session {session_id!r} is alive with discovery={session.discovery!r}, not {discovery!r}; "
                "leave it first, or use another id"
            )
        elif headers is not None and own != session.headers:
            raise ConfigError(
                f"session {session_id!r} is alive with other headers; leave it first, or use another id"
            )
        session.used = concurrency.monotonic()
        return session

    async def end(self, session: Session, reason: Literal["left", "idle"]) -> None:
        """Forget a session and end its own connections, gracefully and side by side."""
        if self._alive.get(session.id) is not session:
            return
        del self._alive[session.id]
        own = self._private.pop(session.id, {})
        self._host.emit(SessionEnded(session=session.id, reason=reason))
        with shielded():
            await self._end(own.values())

    async def reap(self) -> None:
        """End, from time to time, the sessions that nobody has used for long. Never returns."""
        while True:
            await asyncio.sleep(self._host.config.idle_reap_interval)
            since = concurrency.monotonic() - self._host.config.session_ttl
            idle = [one for one in self._alive.values() if not one.busy and one.used < since]
            await asyncio.gather(*(self.end(session, "idle") for session in idle))

    async def settle(self) -> None:
        """End the connections to servers that are no longer configured. Those to servers that are
        configured otherwise are replaced when their session next wants them."""
        wanted = self._fleet.configs
        gone = [(own, key) for own in self._private.values() for key in own if key[0] not in wanted]
        await self._end([own.pop(key) for own, key in gone])

    # --- connections ----------------------------------------------------------------------------

    def provider(self, server: str, session: Session) -> Provider:
        """Whoever runs the tools of `server` for this session. Nothing here waits: however many ask at
        once, one connection is made."""
        session.used = concurrency.monotonic()
        config = self._fleet.configs.get(server)
        if config is None:
            return self._fleet.provider(server)
        headers = session.headers.get(server)
        if headers is None and config.isolation == "shared":
            return self._fleet.provider(server)
        if session.id == SHARED:
            self._in_common.add(server)
            return self._fleet.provider(server)
        shared = self._fleet.connections.get(server)
        if shared is not None and shared.state == "disabled":
            return shared
        return self._own(session, config, headers)

    def connection(self, server: str, principal: str | None) -> Connection:
        """The connection on which somebody logs in to a server: everybody's, or this principal's own.

        Raises:
            UnknownServer: it is not there.
            ConfigError: nobody has a login of their own there.
        """
        config = self._fleet.configs.get(server)
        if principal is None or config is None or config.url is None:
            return self._fleet.connection(server)
        if config.isolation == "shared":
            raise ConfigError(
                f"{server!r} is shared, and so is its login; give it `isolation: session` for logins of "
                "each principal",
                file=config.file,
            )
        return self._own(self.open(f"login:{principal}", principal=principal), config, None).connection

    def status(self) -> tuple[ServerStatus, ...]:
        """Every configured server. One that sleeps while conversations have it for themselves is shown as
        one of them sees it."""
        shown = {status.name: status for status in self._fleet.status()}
        for own in self._private.values():
            for (server, _), private in own.items():
                if server in shown and server not in self._fleet.connections:
                    shown[server] = private.connection.status()
        return tuple(shown.values())

    def _own(self, session: Session, config: ServerConfig, headers: OwnHeaders | None) -> PrivateConnections:
        self._alive.setdefault(session.id, session)  # one that was left, or reaped, is alive again
        own = self._private.setdefault(session.id, {})
        key = (config.name, identity_of(headers))
        private = own.get(key)
        if private is not None and private.fits(config):
            return private
        if private is not None:
            self._end_soon(private)
        own[key] = fresh = self._made(session, config, headers)
        return fresh

    def _made(self, session: Session, config: ServerConfig, headers: OwnHeaders | None) -> PrivateConnections:
        offered = self._offered(config.name)
        # What is said to one identity alone is no word for everybody; a program has no logins.
        principal = session.principal if config.url is not None else None
        everybodys = headers is None and principal is None
        connection = None
        if everybodys and config.name not in self._in_common:
            connection = self._fleet.hand_over(config.name)
        if connection is None:
            connection = self._fleet.private(config, CachedSnapshot.of(offered) if offered else None, headers)
        private = PrivateConnections(connection, config)
        connection.supervisor.principal = principal
        connection.supervisor.privately(
            session.id, lambda snapshot: self._listed(private, snapshot, everybodys=everybodys)
        )
        return private

    def _listed(self, private: PrivateConnections, snapshot: Snapshot, *, everybodys: bool) -> Guard | None:
        fresh, private.live = (
            private.connection.supervisor.live is not private.live,
            private.connection.supervisor.live,
        )
        shown = self._offered(private.name)
        if everybodys and (shown is None or (fresh and snapshot.tools != shown.tools)):
            self._host.publish(snapshot)
            shown = self._offered(private.name)
        return self._guard_for(shown, snapshot)

    def guard(self, snapshot: Snapshot) -> Guard | None:
        """The guard of a connection that is not the catalog's, for what it lists."""
        return self._guard_for(self._offered(snapshot.server), snapshot)

    def _checked(self, headers: Mapping[str, OwnHeaders]) -> dict[str, OwnHeaders]:
        own: dict[str, OwnHeaders] = {}
        for server, given in headers.items():
            config = self._fleet.configs.get(server)
            if config is None:
                raise UnknownServer(server, nearest(server, self._fleet.configs))
            if config.url is None:
                raise ConfigError(f"server {server!r} is a program and takes no headers")
            own[server] = given if callable(given) else dict(checked(given))
        return own

    async def _end(self, privates: Iterable[PrivateConnections]) -> None:
        await asyncio.gather(*(self._fleet.end(private.connection) for private in privates))

    def _end_soon(self, private: PrivateConnections) -> None:
        task = asyncio.get_running_loop().create_task(self._fleet.end(private.connection))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
