"""The host: many servers, one catalog, one way to call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mooring import muster
from mooring.approval import Approver
from mooring.auditing import Auditing
from mooring.builtin import Builtin
from mooring.config import GetSecret, found_files, load
from mooring.config.logs import logger
from mooring.core.catalog import Catalog, Diff
from mooring.core.config import HostConfig, ServerConfig, Style
from mooring.core.events import AuthNeeded, CallStarted, CatalogChanged, ConfigApplied, Event
from mooring.core.hidden import Hidden
from mooring.core.plan import Plan
from mooring.core.rules import RuleBook, Rules
from mooring.core.search import Hit, Index, Ranker
from mooring.core.types import Result, ServerStatus, Tool
from mooring.core.values import replace
from mooring.errors import NotTrusted
from mooring.fleet import Fleet
from mooring.follow import follow
from mooring.identity import OwnHeaders
from mooring.keeper import Keeper, directory, home_at
from mooring.launching import Launcher
from mooring.local import LocalTools, Progress, Provider
from mooring.muster import RefreshReport
from mooring.offer import Offer
from mooring.pins import memory_of
from mooring.prompting import Prompts
from mooring.pulse import feel
from mooring.resources import Resources
from mooring.session import SHARED, Session
from mooring.sessions import Sessions
from mooring.stream import EventStream
from mooring.tasks import Tasks, shielded, within
from mooring.telemetry import SessionClock
from mooring.trust import Ask, Trust

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.net.login import Login, OnAuth
    from mooring.net.passage import Relay
    from mooring.net.questions import OnElicit

__all__ = ["Host", "RefreshReport"]

log = logger("mooring.host")


class Host:
    """Owns the connections, the catalog and the events. Use it as `async with Host(...) as host`.

    Entering returns at once: servers connect in the background, each within its own deadline (those
    with `start: eager` are awaited). A call waits for the one server it needs; `ready()` waits for all.
    """

    def __init__(
        self,
        servers: HostConfig | Iterable[ServerConfig] = (),
        *,
        style: Style | None = None,
        local: LocalTools | Iterable[Callable[..., Any]] = (),
        providers: Iterable[Provider] = (),
        get_secret: GetSecret | None = None,
        on_tools_changed: Callable[[], None] | None = None,
        on_auth: OnAuth | None = None,
        on_elicit: OnElicit | None = None,
        relay: Relay | None = None,
        ranker: Ranker | None = None,
        lock: str | os.PathLike[str] | bool = True,
        home: str | os.PathLike[str] | bool | None = True,
        artifacts: str | os.PathLike[str] | None = None,
        trust: bool | Ask | None = None,
        on_approval: Approver | None = None,
        max_starting: int | None = None,
    ) -> None:
        _check_servers(servers)
        self.relay = relay  # whom servers speak to while they work for somebody else
        self.ranker = ranker
        """A second opinion for the search, such as one by meaning; fused with that of the words."""
        self.config = servers if isinstance(servers, HostConfig) else HostConfig(servers=tuple(servers))
        self._style: Style | None = style
        self._local = local if isinstance(local, LocalTools) else LocalTools(*local)
        self._lock = lock

        launcher = Launcher(
            get_secret=get_secret,
            publish=lambda snapshot: self._offer.publish(snapshot),
            emit=self.emit,
            stale=self._forget,
            on_auth=on_auth,
            on_elicit=on_elicit,
            relay=relay,
            max_starting=max_starting,
        )
        self.redact = launcher.redact
        """Takes every secret that this host has used out of a text."""
        self._fleet = Fleet(
            [self._local, *providers],
            launcher=launcher,
            trust=Trust(trust),
            known=lambda server: self._offer.known(server),
            publish=lambda snapshot: self._offer.publish(snapshot),
            withdraw=lambda name: self._offer.withdraw(name),
            emit=self.emit,
            stale=self._forget,
        )
        self._auditing = Auditing(self.config.audit, self.redact)
        self.note_in = self._auditing.note_in
        self._resources = Resources(
            self._fleet, lambda: self.catalog, lambda: self.config, lambda: self.audit
        )
        self._prompts = Prompts(self._fleet, lambda: self.catalog, lambda: self.audit)
        builtin = Builtin(self._resources)
        self._fleet.join(builtin)
        self.resources, self.read = self._resources.list, self._resources.read
        self.subscribe, self.unsubscribe = self._resources.subscribe, self._resources.unsubscribe
        self.check_resource = self._resources.check
        self.prompts, self.prompt = self._prompts.list, self._prompts.get
        self.complete = self._prompts.complete
        self.keeper = Keeper(
            home=partial(home_at, home),
            artifacts=lambda: directory(artifacts or self.config.artifacts),
            redact=self.redact,
        )
        self._rules = RuleBook()
        self._on_tools_changed = on_tools_changed
        self._offer: Offer = Offer(
            self._fleet,
            builtin,
            local=self._local.name,
            memory=memory_of(lock, (), None),
            declared="+all" if relay is not None else "+elicitation" if on_elicit is not None else "",
            style=lambda: self.style,
            config=lambda: self.config,
            ask=on_approval,
            emit=self.emit,
            awaited=lambda: bool(self._streams) or self._on_tools_changed is not None,
            announce=self._announce,
        )
        self._shelf = self._offer.shelf
        self.allows, self.permit = self._offer.gatekeeper.allows, self._offer.gatekeeper.permit
        self.publish, self.withheld = self._offer.publish, self._offer.withheld
        self.exposure, self.arrival = self._offer.exposure, self._offer.arrival
        self.absence = self._offer.absence
        self._streams: set[EventStream] = set()
        self._tasks: Tasks | None = None
        self._closed = False
        self._sessions = Sessions(
            self, self._fleet, self._shelf.offered, lambda one, two: self._offer.pins.guard_for(one, two)
        )
        self._shared = Session(self)
        self._clock = SessionClock()
        self._files: Sequence[Path] = ()
        self.vet: Callable[[HostConfig], Callable[[], Awaitable[None]]] | None = None
        """Refuses another configuration by a ConfigError, or returns what is awaited when it is in force."""
        self._reload: Callable[[], HostConfig] | None = None

    @classmethod
    def from_config(
        cls, *paths: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None, **options: Any
    ) -> Self:
        """A host for the servers in `paths`, or in the files of the project and the user.

        Raises:
            ConfigError: a file cannot be read. One bad entry is only a warning in `config.warnings`.
        """
        files = [Path(path) for path in paths] or None
        here = Path(cwd) if cwd is not None else None
        host = cls(load(files, cwd=here), **options)
        found = found_files(files, cwd=here)
        host._files = [file.path for file in found]
        host._offer.remember(memory_of(host._lock, found, here or Path.cwd()))
        host._reload = partial(load, files, cwd=here, strict=True)
        return host

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._closed:
            raise RuntimeError("a Host is used once; make another one")
        for warning in self.config.warnings:
            log.warning("%s", warning)
        self._tasks = Tasks()
        try:
            self._tasks.start_soon(feel, self.emit)
            self._tasks.start_soon(self._sessions.reap)
            if self.config.watch.enabled and self._reload is not None:
                self._tasks.start_soon(self._follow, self._reload)
            self._tasks.start_soon(self.keeper.tidy)
            self._tasks.start_soon(self._auditing.check)
            await self._fleet.start(self.config, self._tasks)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        with shielded():
            try:
                await self.close()
            finally:
                await self._tasks.end()

    async def close(self) -> None:
        """End every server and everything they started. Idempotent; never raises for a server."""
        self._closed = True
        await self._fleet.stop()
        self._offer.pins.close()
        await self.keeper.close()
        await self._auditing.close()
        for stream in list(self._streams):
            stream.end()

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until every server has connected or failed to; return whether the host is of use.

        False when `timeout` seconds passed before, or when none of the servers waited for is connected
        (`status()` has the reasons). Lazy and disabled servers are not waited for: True where there are no
        others.
        """
        with within(timeout) as scope:
            await muster.settled(self._fleet)
        return not scope.cancelled_caught and muster.usable(self._fleet)

    # --- what is there --------------------------------------------------------------------------

    @property
    def style(self) -> Style:
        return self._style or self.config.style

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now: an immutable value; the next change makes another one."""
        return self._shelf.catalog

    @property
    def index(self) -> Index:
        """The search index of the catalog: made when first needed, then kept up with its changes."""
        return self._shelf.index

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """The tools that fit `query`, the best first, each with its score and the reasons for it."""
        return self.index.search(query, limit, ranker=self.ranker)

    def status(self) -> tuple[ServerStatus, ...]:
        """Every configured server, sorted by name."""
        return self._sessions.status()

    def hidden(self) -> tuple[Hidden, ...]:
        """Tools that servers offer and the catalog does not show, each with what hides it and why: the lock,
        a policy, `allow` and `deny` of its server, or a configuration file that was not approved."""
        return self._offer.hidden()

    def events(self, *kinds: type[Event]) -> EventStream:
        """What happens from now on, of all kinds or these. Bounded: a slow reader is told what it lost."""
        stream = EventStream(self._streams.discard, kinds)
        if self._closed:
            stream.end()
        else:
            _ = self.catalog  # what changed before is no news
            self._streams.add(stream)
        return stream

    # --- calls ----------------------------------------------------------------------------------

    def tools(self) -> tuple[Tool, ...]:
        """What the model of the session that everybody shares sees now; see `Session.tools`."""
        return self._shared.tools()

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
    ) -> Session:
        """One conversation: the same one for the same id, until it is left or has been idle for long.

        Servers with `isolation: session` give it a connection of its own, and so do HTTP servers for
        which `headers` names headers (or a function that returns them): nobody else uses those. With a
        `principal`, its own connections use that principal's logins, and never those of anybody else.

        Raises:
            UnknownServer: `headers` names a server that is not there.
            ConfigError: the id belongs to another agent or principal, or to somebody with other headers.
        """
        return self._sessions.open(session_id, agent_id=agent_id, headers=headers, principal=principal)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: Progress | None = None,
        budget: int | None = None,
    ) -> Result:
        """The outcome of one call; see `Session.call`."""
        return await self._shared.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )

    async def ping(self, server: str, timeout: float = 5.0) -> float:
        """Return the seconds that a round trip to `server` takes. A server that is not connected is connected
        first, within the same `timeout` seconds.

        Raises:
            UnknownServer: it is not there.
            MooringError: there was no answer in time, and why.
        """
        return await self._fleet.connection(server).ping(timeout)

    async def login(self, server: str, *, principal: str | None = None) -> Login:
        """A login to `server` that waits for a person: show its `host` and `url`, then await `done()`. With
        a `principal`, it serves that principal's sessions and nobody else.

        Raises:
            UnknownServer, ConfigError: the server is not there, or cannot be logged in to.
            AuthNeeded: no login can be had, and why.
        """
        self.check_running()
        return await self._sessions.connection(server, principal).login()

    async def logout(self, server: str, *, principal: str | None = None) -> bool | None:
        """Forget the login to `server`, and have it revoked: whether it was; None where that cannot be, or
        where there was no login. Raises as `login` does."""
        self.check_running()
        return await self._sessions.connection(server, principal).logout()

    async def health_check(self, timeout: float = 5.0) -> bool:
        """Return False if any server does not answer a ping within `timeout` seconds. Disabled servers, and
        lazy ones that were never used, are left out."""
        return await muster.healthy(self._fleet, timeout)

    # --- change ---------------------------------------------------------------------------------

    async def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        """List `servers` (or all) anew, connecting those that are not connected; how each went.

        Raises:
            UnknownServer: one of `servers` is not there.
        """
        reports = await muster.refresh(self._fleet, servers)
        return {name: report for name, report in reports.items() if name not in self._offer.own}

    async def add(self, server: ServerConfig) -> ServerStatus:
        """Connect one more server and show its tools: all of it or nothing.

        Raises:
            ConfigError: the name is taken.
            MooringError: it could not be connected; nothing of it is left.
        """
        self._running()
        connection = await self._fleet.add(server)
        self._configure(servers=(*self.config.servers, server))
        return connection.status()

    async def remove(self, server: str) -> None:
        """Hide a server's tools at once, then end it.

        Raises:
            UnknownServer: it is not there.
        """
        self.check_running()
        await self._fleet.remove(server)
        await self._sessions.settle()
        self._configure(servers=tuple(s for s in self.config.servers if s.name != server))

    async def apply(self, config: HostConfig) -> Plan:
        """Take over another configuration while running: only servers that differ are restarted. A
        ConfigError of `vet` leaves everything as it was."""
        self._running()
        settle = None if self.vet is None else self.vet(config)
        old, self.config = self.config, config
        if settle is not None:
            await settle()
        await self._auditing.apply(old.audit, config.audit)
        steps = await self._fleet.apply(old, config)
        await self._sessions.settle()
        self._shelf.changed()
        self.emit(
            ConfigApplied(
                started=tuple(server.name for server in steps.start),
                stopped=steps.stop,
                restarted=tuple(server.name for server in steps.restart),
            )
        )
        return steps

    async def reload(self) -> None:
        """Read the files again and take over what changed; a ConfigError leaves everything as it was."""
        self.check_running()
        if self._reload is not None:
            await self._take_over(await asyncio.to_thread(self._reload))

    # --- for providers and sessions -------------------------------------------------------------

    def provider(self, name: str, session: Session | None = None) -> Provider:
        """Whoever runs the tools of `name`, for a session or for everybody."""
        return self._sessions.provider(name, session or self._shared)

    async def leave(self, session: Session) -> None:
        """End what belongs to one session alone."""
        await self._sessions.end(session, "left")

    def rules(self, server: str) -> Rules:
        """What holds for the calls of a server."""
        return self._rules.rules(server, self.config, self._fleet.configs.get(server))

    async def act(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        """The outcome of a tool that is no plain call: see `Tool.verb`."""
        return await self._prompts.result(tool.server, tool.remote_name, arguments, timeout)

    @property
    def listened_to(self) -> bool:
        return any(stream.hears(CallStarted) for stream in self._streams)

    def emit(self, event: Event) -> None:
        self._clock.heard(event)
        if isinstance(event, AuthNeeded):
            self._shelf.changed()  # the tool that begins a login comes or goes
        for stream in self._streams:
            stream.put(event)

    @property
    def audit(self) -> Audit | None:
        return self._auditing.log

    @property
    def held(self) -> Mapping[str, NotTrusted]:
        """The servers that are not started because nobody approved the file that names them."""
        return self._fleet.held

    # --- inside ---------------------------------------------------------------------------------

    def _forget(self, server: str, uri: str | None) -> None:
        self._resources.forget(server, uri)

    def check_running(self) -> None:
        """Raise RuntimeError before the host is entered."""
        self._fleet.check_started()

    def _running(self) -> None:
        self.check_running()
        if self._closed:
            raise RuntimeError("The Host is closed. Make another one.")

    async def _follow(self, reload: Callable[[], HostConfig]) -> None:
        quiet = self.config.watch.debounce
        await follow(self._files, quiet, reload=reload, apply=self._take_over, emit=self.emit)

    async def _take_over(self, config: HostConfig) -> None:
        if config != self.config:
            await self.apply(config)
        elif self.vet is not None:
            await self.vet(config)()  # what it refers to may be something else now

    def _configure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)

    def _announce(self, change: Diff) -> None:
        if self._streams:  # the revision costs a hash of everything
            self.emit(CatalogChanged(revision=self.catalog.revision, **vars(change)))
        if self._on_tools_changed is not None:
            try:
                self._on_tools_changed()
            except Exception:
                log.exception("on_tools_changed failed")


def _check_servers(servers: object) -> None:
    """Raise TypeError for what is often passed in place of a list of servers, saying what to do."""
    if isinstance(servers, str | bytes | os.PathLike):
        raise TypeError(f"Host takes servers, not the path of a file. Use Host.from_config({servers!r}).")
    if isinstance(servers, Mapping):
        raise TypeError(
            "Host takes servers, not a mapping. Use Host([ServerConfig(name=..., command=...)]), or write "
            "the mapping to a file and use Host.from_config(path)."
        )
    if isinstance(servers, ServerConfig):
        raise TypeError("Host takes a list of servers. Use Host([server]).")
