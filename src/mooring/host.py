"""The host: many servers, one catalog, one way to call."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mooring.concurrency import EventStream, OrderedCallback, Tasks, shielded, within
from mooring.config import GetSecret, found_files, load
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.config.plan import Changes
from mooring.core.catalog import Catalog, Diff
from mooring.core.discovery import Mode, checked_mode
from mooring.core.events import CallStarted, CatalogChanged, Event, LoginNeeded, StateChanged
from mooring.core.search import Hit, Index, Ranker
from mooring.core.types import Hidden, Result, ServerStatus, Tool
from mooring.errors import NotTrusted
from mooring.local import LocalTools, OnProgress, Provider, local_bundles
from mooring.lock.enforce import memory_of
from mooring.policy import Approver, Ask, Trust
from mooring.prompts import Prompts
from mooring.reconfigure import Reconfigurable
from mooring.resources import Resources, ResourceTools
from mooring.results.pipeline import ResultPipeline, RuleBook, Rules, directory, home_at
from mooring.servers import waiting
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.launcher import Launcher, OwnHeaders
from mooring.servers.manager import ServerManager, check_servers
from mooring.servers.waiting import RefreshReport
from mooring.session import SHARED, Session
from mooring.sessions import SessionManager
from mooring.telemetry import AuditManager, SessionClock, feel

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.auth.login import Login, OnAuth
    from mooring.servers.elicitation import OnElicit
    from mooring.transport.forwarding import ClientBridge

__all__ = ["Host", "RefreshReport"]

log = logger("mooring.host")


class Host(Reconfigurable):
    """Owns the connections, the catalog and the events. Use it as `async with Host(...) as host`.

    Entering returns at once: servers connect in the background, each within its own deadline (those
    with `start: eager` are awaited). A call waits for the one server it needs; `ready()` waits for all.
    """

    def __init__(
        self,
        servers: HostConfig | Iterable[ServerConfig] = (),
        *,
        style: Style | None = None,
        discovery: Mode | None = None,
        local: LocalTools | Iterable[LocalTools | Callable[..., Any]] = (),
        providers: Iterable[Provider] = (),
        get_secret: GetSecret | None = None,
        on_tools_changed: Callable[[], Awaitable[None] | None] | None = None,
        on_auth: OnAuth | None = None,
        on_elicit: OnElicit | None = None,
        relay: ClientBridge | None = None,
        ranker: Ranker | None = None,
        lock: str | os.PathLike[str] | bool = True,
        home: str | os.PathLike[str] | bool | None = True,
        artifacts: str | os.PathLike[str] | None = None,
        trust: bool | Ask | None = None,
        on_approval: Approver | None = None,
        max_starting: int | None = None,
    ) -> None:
        check_servers(servers)
        self.relay = relay  # whom servers speak to while they work for somebody else
        self.ranker = ranker
        """A second opinion for the search, such as one by meaning; fused with that of the words."""
        self.config = servers if isinstance(servers, HostConfig) else HostConfig.of(servers)
        self._style: Style | None = style
        self._discovery: Mode | None = checked_mode(discovery)
        bundles, others = local_bundles(local), list(providers)
        own = frozenset(one.name for one in (*bundles, *others) if isinstance(one, LocalTools))
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
        self._trust = Trust(trust)
        self._fleet = ServerManager(
            [*bundles, *others],
            launcher=launcher,
            trust=self._trust,
            known=lambda server: self._offer.known(server),
            publish=lambda snapshot: self._offer.publish(snapshot),
            withdraw=lambda name: self._offer.withdraw(name),
            emit=self.emit,
            stale=self._forget,
        )
        self._auditing = AuditManager(self.config.audit, self.redact)
        self.note_in = self._auditing.note_in
        self._resources = Resources(
            self._fleet, lambda: self.catalog, lambda: self.config, lambda: self.audit
        )
        self._prompts = Prompts(self._fleet, lambda: self.catalog, lambda: self.audit)
        builtin = ResourceTools(self._resources)
        self._fleet.join(builtin)
        self.config = self._usable(self.config)
        self.resources, self.read = self._resources.list, self._resources.read
        self.subscribe, self.unsubscribe = self._resources.subscribe, self._resources.unsubscribe
        self.check_resource = self._resources.check
        self.prompts, self.prompt = self._prompts.list, self._prompts.get
        self.complete = self._prompts.complete
        self.keeper = ResultPipeline(
            home=partial(home_at, home),
            artifacts=lambda: directory(artifacts or self.config.artifacts),
            redact=self.redact,
        )
        self._rules = RuleBook()
        self._tools_changed = (
            OrderedCallback(on_tools_changed, "on_tools_changed") if on_tools_changed else None
        )
        self._offer: CatalogBuilder = CatalogBuilder(
            self._fleet,
            builtin,
            local=own,
            memory=memory_of(lock, (), None),
            declared="+all" if relay is not None else "+elicitation" if on_elicit is not None else "",
            style=lambda: self.style,
            config=lambda: self.config,
            ask=on_approval,
            emit=self.emit,
            awaited=lambda: bool(self._streams) or self._tools_changed is not None,
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
        self._changes = Changes(self.config.servers)
        self._sessions = SessionManager(
            self, self._fleet, self._shelf.offered, lambda one, two: self._offer.pins.guard_for(one, two)
        )
        self._shared = Session(self)
        self._clock = SessionClock()
        self._files: Sequence[Path] = ()
        self.vet = None
        self._load = None

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
        approval = Trust(options.get("trust")).approval
        host = cls(load(files, cwd=here, approval=approval), **options)
        found = found_files(files, cwd=here)
        host._files = [file.path for file in found]
        host._offer.remember(memory_of(host._lock, found, here or Path.cwd()))
        host._load = partial(load, files, cwd=here, approval=host._trust.approval)
        return host

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._closed:
            raise RuntimeError("a Host is used once; make another one")
        self._tasks = Tasks()
        try:
            self.config = await self._approved(self.config, strict=False)
            self._changes = Changes(self.config.servers)
            for warning in self.config.warnings:
                log.warning("%s", warning)
            self._tasks.start_soon(feel, self.emit)
            self._tasks.start_soon(self._sessions.reap)
            if self.config.watch.enabled and self._load is not None:
                self._tasks.start_soon(self._follow)
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
        if self._tools_changed is not None:
            await self._tools_changed.delivered()
        for stream in list(self._streams):
            stream.end()

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until every server has connected or failed to; return whether the host is of use.

        False when `timeout` seconds passed before, or when none of the servers waited for is connected
        (`status()` has the reasons). Lazy and disabled servers are not waited for: True where there are no
        others.
        """
        with within(timeout) as scope:
            await waiting.settled(self._fleet)
        return not scope.cancelled_caught and waiting.usable(self._fleet)

    # --- what is there --------------------------------------------------------------------------

    @property
    def style(self) -> Style:
        return self._style or self.config.style

    @property
    def discovery(self) -> Mode:
        """When sessions show the discovery tools, not the whole catalog: `auto`, `always` or `never`."""
        return self._discovery or self.config.discovery

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now: an immutable value; the next change makes another one."""
        self.check_running()
        return self._shelf.catalog

    @property
    def index(self) -> Index:
        """The search index of the catalog: made when first needed, then kept up with its changes."""
        return self._shelf.index

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """The tools that fit `query`, the best first, each with its score and the reasons for it."""
        self.check_running()
        return self.index.search(query, limit, ranker=self.ranker)

    def status(self) -> tuple[ServerStatus, ...]:
        """Every configured server, sorted by name."""
        self.check_running()
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
            _ = self._shelf.catalog  # what changed before is no news
            self._streams.add(stream)
        return stream

    # --- calls ----------------------------------------------------------------------------------

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """What a model sees now in the shared session; see `Session.tools`."""
        self.check_running()
        return self._shared.tools(complete=complete)

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
        discovery: Mode | None = None,
    ) -> Session:
        """One conversation: the same one for the same id, until it is left or has been idle for long.

        Servers with `isolation: session` give it a connection of its own, and so do HTTP servers for
        which `headers` names headers (or a function that returns them): nobody else uses those. With a
        `principal`, its own connections use that principal's logins, and never those of anybody else.
        `discovery` takes the place of the host's setting: `auto`, `always` or `never`.

        Raises:
            UnknownServer: `headers` names a server that is not there.
            ConfigError: the id belongs to another agent or principal, or to somebody with other headers.
        """
        return self._sessions.open(
            session_id, agent_id=agent_id, headers=headers, principal=principal, discovery=discovery
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: OnProgress | None = None,
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
        return await waiting.healthy(self._fleet, timeout)

    # --- change ---------------------------------------------------------------------------------

    async def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        """List `servers` (or all) anew, connecting those that are not connected; how each went.

        Raises:
            UnknownServer: one of `servers` is not there.
        """
        reports = await waiting.refresh(self._fleet, servers)
        return {name: report for name, report in reports.items() if name not in self._offer.own}

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
        if isinstance(event, LoginNeeded) or (isinstance(event, StateChanged) and event.new == "failed"):
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

    def _announce(self, change: Diff) -> None:
        if self._streams:  # the revision costs a hash of everything
            self.emit(CatalogChanged(revision=self.catalog.revision, **vars(change)))
        if self._tools_changed is not None and self._tasks is not None:
            self._tasks.start_from_anywhere(self._tools_changed)
