"""The host: many servers, one catalog, one set of verbs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from mooring.concurrency import EventHub, EventStream, OrderedCallback, Tasks, shielded, within
from mooring.config import GetSecret, found_files, load
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.config.plan import Plan
from mooring.core.catalog import Catalog
from mooring.core.discovery import OWNER, Mode
from mooring.core.events import Event
from mooring.core.redact import Redactor
from mooring.core.search import Hit, Ranker
from mooring.core.types import Hidden, Result, ServerStatus, Tool
from mooring.errors import ConfigError, NotTrusted
from mooring.extensions.skills import BuiltinTools, Skills
from mooring.extensions.verbs import ExtensionVerbs, checked_extensions
from mooring.extensions.views import Views
from mooring.local import LocalTools, OnProgress, Provider, local_bundles
from mooring.lock.enforce import memory_of
from mooring.policy import Approver, Ask, Decide, PolicyEnforcer, Trust
from mooring.prompts import ContentVerbs, Prompts
from mooring.resources import ContentsCache, Resources
from mooring.results.pipeline import ResultPipeline, home_at
from mooring.servers import waiting
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.launcher import Launcher, OwnHeaders
from mooring.servers.manager import ServerManager, check_servers
from mooring.servers.reconfigure import Reconfigurer
from mooring.servers.sessions import SHARED, HostSessions
from mooring.servers.state import CurrentConfig, HostOptions, ServerTable
from mooring.servers.waiting import RefreshReport
from mooring.session import HostRuntime, Session
from mooring.telemetry import AuditManager, ConnectionTimer, monitor_loop

if TYPE_CHECKING:
    from mooring.auth.login import Login, OnAuth
    from mooring.policy.guards import Guard
    from mooring.servers.connection import Connection
    from mooring.servers.elicitation import OnElicit
    from mooring.transport.forwarding import ClientBridge

__all__ = ["Host", "runtime_of"]


class Host(ContentVerbs, ExtensionVerbs, waiting.HealthVerbs):
    """Connects to MCP servers and merges their tools into one catalog.

        async with Host([ServerConfig(name="files", command="files-mcp")]) as host:
            result = await host.call("mcp_files_read_file", {"path": "README.md"})

    Entering returns at once: servers connect in the background, except for those with `start: eager`, which
    are awaited. A call waits only for the server that it needs; `ready()` waits for all. A host is entered
    once.

    Args:
        servers: The servers, or a whole configuration.
        style: How tool names are built. Default: `style` of the configuration.
        discovery: When models see the discovery tools instead of every tool: `auto`, `always` or `never`.
            Default: `discovery` of the configuration.
        local: Functions of the application as tools.
        providers: Other sources of tools.
        get_secret: Looks up `${NAME}` references in the configuration, before the environment.
        on_tools_changed: Called after each change of the catalog.
        on_auth: Called with a `Login` when a server needs one that a person must complete.
        on_elicit: Answers the questions that servers ask during a call.
        relay: Forwards requests of servers to the client for which a call is made.
        ranker: A second ranking for `search`, such as `SemanticRanker`; combined with the one by words.
        lock: True: the lock file beside the configuration. A path: another lock file. False: neither lock nor
            cache of tool definitions.
        home: The directory for large results. True: the state directory of the user. None or False: no files.
        artifacts: A directory for a record of every call. Default: `artifacts` of the configuration.
        trust: Approves project files that were found automatically: True for all, or a function that is
            asked. Default: only those approved with `mooring trust`.
        on_approval: Asked for calls whose policy is `ask`. Default: such calls are denied.
        decide: Decides about calls that the policies do not deny: `allow`, `ask` or `deny`; fails closed.
        guards: Checks before and after each call; see `Guard`.
        max_starting: Servers that start at the same time. Default: from the configuration, or the CPU count.
        extensions: Extensions of the protocol that the application supports, by identifier, with their
            settings; beside those of the configuration. Default: none beside those that mooring implements.

    Raises:
        TypeError: `servers` is not a list of `ServerConfig`.
        ConfigError: Two providers have the same name, or a rule of a policy cannot be used.
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
        decide: Decide | None = None,
        guards: Iterable[Guard] = (),
        max_starting: int | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        check_servers(servers)
        supported = checked_extensions(extensions)
        config = servers if isinstance(servers, HostConfig) else HostConfig.of(servers)
        current = CurrentConfig(config, style=style, discovery=discovery, ranker=ranker, artifacts=artifacts)
        table = ServerTable()
        for provider in (*local_bundles(local), *providers):
            table.add_provider(provider)
        own = frozenset(name for name, one in table.providers.items() if isinstance(one, LocalTools))
        self._on_change = OrderedCallback(on_tools_changed, "on_tools_changed") if on_tools_changed else None
        self._trust, self._lock = Trust(trust), lock
        self._events = events = EventHub(ConnectionTimer().observe)
        policy = PolicyEnforcer(
            own=own | {OWNER},
            current=current,
            servers=table.configs,
            ask=on_approval,
            emit=events.emit,
            decide=decide,
        )
        builder = CatalogBuilder(
            table,
            current,
            policy,
            events,
            own=own | {OWNER},
            pins=memory_of(lock, (), None),
            declared=("+all" if relay is not None else "+elicitation" if on_elicit is not None else "")
            + "".join(f"+{name}" for name in sorted({*config.extensions, *supported})),
            on_change=self._on_change,
        )
        cache = ContentsCache(current)
        launcher = Launcher(
            get_secret=get_secret,
            publish=builder.publish,
            emit=events.emit,
            stale=cache.forget,
            on_auth=on_auth,
            on_elicit=on_elicit,
            relay=relay,
            max_starting=max_starting,
            extensions=supported,
        )
        self._redact = launcher.redact
        self._servers = ServerManager(table, builder, launcher, self._trust, events, forget=cache.forget)
        audits = AuditManager(config.audit, launcher.redact)
        self._resources = Resources(self._servers, builder, current, audits, cache)
        self._prompts = Prompts(self._servers, builder, audits)
        self._skills = Skills(builder, self._resources)
        self._views = Views(builder, self._resources)
        table.add_provider(BuiltinTools(self._resources, self._skills))
        self._sessions: HostSessions[Session] = HostSessions(self._servers, builder, current, events)
        self._runtime = HostRuntime(
            current=current,
            events=events,
            servers=self._servers,
            builder=builder,
            policy=policy,
            guards=tuple(guards),
            results=ResultPipeline(partial(home_at, home), current.artifacts, launcher.redact),
            audits=audits,
            sessions=self._sessions,
            resources=self._resources,
            prompts=self._prompts,
            skills=self._skills,
            config=Reconfigurer(current, self._servers, self._sessions, builder, audits, self._trust, events),
            relay=relay,
            redact=launcher.redact,
        )
        self._shared = Session(self._runtime)
        self._tasks: Tasks | None = None
        self._closed = False

    @classmethod
    def from_config(
        cls,
        *paths: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        **options: Unpack[HostOptions],
    ) -> Self:
        """Return a host for the servers in configuration files.

        Args:
            paths: The files. Default: the files of the project and of the user.
            cwd: The directory of the project. Default: the current directory.
            options: Keyword arguments of `Host`.

        Raises:
            ConfigError: A file cannot be read. A bad entry is only a warning in `config.warnings`.
        """
        files = [Path(path) for path in paths] or None
        directory = Path(cwd) if cwd is not None else None
        approval = Trust(options.get("trust")).approval
        host = cls(load(files, cwd=directory, approval=approval), **options)
        found = found_files(files, cwd=directory)
        host._runtime.builder.use_pins(memory_of(host._lock, found, directory or Path.cwd()))
        host._runtime.config.use_files(
            [file.path for file in found], partial(load, files, cwd=directory, approval=host._trust.approval)
        )
        return host

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self._tasks is not None else "not entered"
        names = [server.name for server in self.config.servers]
        more = f", … {len(names) - 5} more" if len(names) > 5 else ""
        return f"<Host {state}: {len(names)} servers ({', '.join(names[:5])}{more})>"

    # --- start and stop ---------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._closed:
            raise RuntimeError("a Host is used once; make another one")
        self._tasks = tasks = Tasks()
        runtime = self._runtime
        try:
            await runtime.config.start()
            runtime.builder.start(tasks)
            tasks.start_soon(monitor_loop, self._events.emit)
            tasks.start_soon(self._sessions.end_idle)
            tasks.start_soon(runtime.config.watch)
            tasks.start_soon(runtime.results.tidy)
            tasks.start_soon(runtime.audits.check)
            await self._servers.start(self.config, tasks)
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
        """Stop all servers and the processes that they started. Idempotent; never raises for a server."""
        self._closed = True
        await self._runtime.end_scripts()
        await self._servers.stop()
        self._runtime.builder.pins.close()
        await self._runtime.results.close()
        await self._runtime.audits.close()
        await self._runtime.policy.close()
        if self._on_change is not None:
            await self._on_change.delivered()
        self._events.close()

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until every server has connected or failed; return whether at least one is connected.

        Lazy and disabled servers are not waited for. `status()` has the reasons of failures.

        Args:
            timeout: Seconds; then False is returned. Default: none, as each server has a `connect_timeout`.

        Returns:
            True if a server is connected, or if there is none to wait for.
        """
        self._check_open()
        with within(timeout) as scope:
            await waiting.settled(self._servers)
        return not scope.cancelled_caught and waiting.usable(self._servers)

    # --- state ----------------------------------------------------------------------------------

    @property
    def config(self) -> HostConfig:
        """The configuration in force; `add`, `remove`, `apply` and `reload` replace it."""
        return self._runtime.current.config

    @property
    def style(self) -> Style:
        """How tool names are built: the option of the host, or of its configuration."""
        return self._runtime.current.style

    @property
    def discovery(self) -> Mode:
        """When sessions show the discovery tools instead of the whole catalog: `auto`, `always` or
        `never`."""
        return self._runtime.current.discovery

    @property
    def ranker(self) -> Ranker | None:
        """A second ranking for `search`, such as `SemanticRanker`. Can be set at any time."""
        return self._runtime.current.ranker

    @ranker.setter
    def ranker(self, ranker: Ranker | None) -> None:
        self._runtime.current.ranker = ranker

    @property
    def redact(self) -> Redactor:
        """Function that returns a text with `***` in place of every secret that this host has used."""
        return self._redact

    @property
    def held(self) -> Mapping[str, NotTrusted]:
        """The servers that are not started because their file is not approved, with the error for each."""
        return self._servers.table.held

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now. The value is immutable; a change makes a new one."""
        self._runtime.check_running()
        return self._runtime.catalog

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """Return the tools to show to a model in the shared session; see `Session.tools`.

        Args:
            complete: For frameworks that refuse calls of tools that are not in their list.
        """
        return self._shared.tools(complete=complete)

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Return at most `limit` tools that match `query`, best first, each with its score and reasons."""
        self._runtime.check_running()
        return self._runtime.index.search(query, limit, ranker=self.ranker)

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of every configured server, sorted by name."""
        self._runtime.check_running()
        return self._sessions.status()

    def hidden(self) -> tuple[Hidden, ...]:
        """Return what servers have and the catalog does not show, each with the reason: the lock (tools,
        resources, prompts), a policy, `allow` and `deny` of the server, or a file that is not approved."""
        return self._runtime.builder.hidden()

    def events(self, *kinds: type[Event]) -> EventStream:
        """Return an async iterator of the events from now on.

        It buffers 1,024 events; a slow reader gets an `EventsDropped` with the number of those it missed.

        Args:
            kinds: Classes of events to deliver. Default: all.
        """
        _ = self._runtime.catalog  # merge now: earlier changes are not announced
        stream = self._events.open(kinds)
        if self._closed:
            stream.end()
        return stream

    def provider(self, name: str) -> Provider:
        """Return the shared connection to the server, or the provider of the application, of this name.

        Raises:
            UnknownServer: There is no provider or server of this name.
        """
        return self._sessions.provider(name, self._shared)

    # --- sessions and calls -----------------------------------------------------------------------

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
        discovery: Mode | None = None,
        scripts: bool | Literal["only"] | None = None,
    ) -> Session:
        """Return the session of this id: the same one until it is left or has been idle for `session_ttl`.

        Servers with `isolation: session` and HTTP servers in `headers` give it connections of its own.

        Args:
            session_id: Default: the shared session.
            agent_id: The agent that uses it; for the audit log and for servers with `context.passthrough`.
            headers: By HTTP server: headers, or a function that returns them, for its own connections.
            principal: Its own connections use the logins of this principal, and no others.
            discovery: `auto`, `always` or `never`. Default: the setting of the host.
            scripts: Whether the model gets `script_api` and `script_run`; `only`: instead of the other tools.
                Default: `scripts.enabled` of the host.

        Raises:
            UnknownServer: `headers` names an unknown server.
            ConfigError: The session exists with another agent, principal, discovery mode or other headers.
        """
        session = self._sessions.open(
            partial(Session, self._runtime, discovery=discovery, scripts=scripts),
            session_id,
            agent_id=agent_id,
            headers=headers,
            principal=principal,
        )
        if discovery not in (None, session.discovery):
            raise ConfigError(
                f"session {session_id!r} is open with discovery={session.discovery!r}, not {discovery!r}; "
                "leave it first, or use another id"
            )
        return session

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
        """Call a tool in the shared session and return its result; see `Session.call`.

        Args:
            name: The name of the tool in the catalog, or of a built-in tool.
            arguments: The arguments of the tool: a mapping of JSON values. Default: none.
            timeout: Seconds for the whole call. Default: `call_timeout` of the server.
            check: Raise an exception if the call fails. Default: return a result with `is_error`.
            on_progress: Called with progress, total and message of each report of the server.
            budget: Tokens of the result to show, estimated; 0: no limit. Default: `result_budget`.

        Raises:
            RuntimeError: The host has not been entered.
            MooringError: Only with `check=True`: the tool returned an error, or there is no answer.
        """
        return await self._shared.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )

    # --- servers --------------------------------------------------------------------------------

    async def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        """List the tools of `servers` (default: all) again; servers are connected if needed.

        Returns:
            By server: whether it succeeded, with the number of tools or the error.

        Raises:
            UnknownServer: There is no such server.
        """
        self._check_open()
        reports = await waiting.refresh(self._servers, servers)
        return {name: report for name, report in reports.items() if name not in self._runtime.builder.own}

    async def login(
        self, server: str, *, principal: str | None = None, redirect_uri: str | None = None
    ) -> Login:
        """Start a login to `server`: show its `host` and `url` to a person, then await `done()`.

        Args:
            server: The name of an HTTP server.
            principal: The login is used by the sessions of this principal only. Default: by the host.
            redirect_uri: An address that your application serves; give the whole address to which the browser
                was sent back to `complete()`. Default: a page on 127.0.0.1.

        Raises:
            UnknownServer, ConfigError: There is no such server, or it has no login.
            AuthNeeded: The login cannot be started.
        """
        return await self._login_connection(server, principal).login(redirect_uri)

    async def logout(self, server: str, *, principal: str | None = None) -> bool | None:
        """Forget the login to `server` and revoke it.

        Returns:
            Whether it was revoked; None if there was no login or the server does not support revocation.

        Raises:
            UnknownServer, ConfigError: There is no such server, or it has no login.
        """
        return await self._login_connection(server, principal).logout()

    async def add(self, server: ServerConfig) -> ServerStatus:
        """Add a server: connect it, then show its tools.

        A server that the configuration turns off (`disabled`, `enabled`, `enabled_servers`) is added without
        being started. The server survives a reload, unless the files then have a new entry of that name.

        Raises:
            ConfigError: The name is taken.
            NotTrusted: The file that names it is not approved.
            MooringError: It cannot be connected, and is not added.
        """
        self._check_open()
        await self._runtime.config.add(server)
        return next(status for status in self.status() if status.name == server.name)

    async def remove(self, server: str) -> None:
        """Remove the tools of a server from the catalog, then stop it.

        It stays removed after a reload, until its entry in the files changes.

        Raises:
            UnknownServer: There is no such server.
        """
        self._check_open()
        await self._runtime.config.remove(server)

    async def apply(self, config: HostConfig) -> Plan:
        """Replace the configuration, including the changes by `add` and `remove`; return the steps.

        Only servers whose configuration differs are restarted. On failure, everything is as before.

        Raises:
            ConfigError: The gateway that serves this host rejects the configuration.
        """
        self._check_open()
        return await self._runtime.config.apply(config)

    async def reload(self) -> None:
        """Read the configuration files again and apply what changed. Does nothing without files.

        Raises:
            ConfigError: A file has a new problem. Everything stays as it was.
        """
        self._check_open()
        await self._runtime.config.reload()

    # --- inside ---------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._runtime.check_running()
        if self._closed:
            raise RuntimeError("The Host is closed. Make another one.")

    def _login_connection(self, server: str, principal: str | None) -> Connection:
        self._runtime.check_running()
        return self._sessions.login_connection(server, principal, partial(self.session, principal=principal))


def runtime_of(host: Host) -> HostRuntime:
    """Return the private runtime of a host, for other packages of mooring. Not for applications."""
    return host._runtime  # pyright: ignore[reportPrivateUsage]
