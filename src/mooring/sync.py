"""`Host` and `Session` for code without `await`: one background event loop, any number of threads."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast

from mooring.concurrency import NOT_RUNNING, BackgroundLoop, EventStream
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.config.plan import Plan
from mooring.core.catalog import Catalog
from mooring.core.discovery import Mode
from mooring.core.events import Event
from mooring.core.search import Hit, Ranker
from mooring.core.types import EMPTY, Contents, Hidden, Message, Result, ServerStatus, Skill, Tool
from mooring.errors import NotTrusted
from mooring.extensions.blocking import SyncView
from mooring.host import Host
from mooring.local import OnProgress
from mooring.prompts import PromptList
from mooring.resources import ResourceList
from mooring.servers.launcher import OwnHeaders
from mooring.servers.sessions import SHARED
from mooring.servers.state import CommonOptions, HostOptions
from mooring.servers.waiting import RefreshReport
from mooring.session import Session

if TYPE_CHECKING:
    from mooring.auth.login import Login, OnAuth, SyncLogin

__all__ = ["SyncHost", "SyncSession"]

T = TypeVar("T")


class SyncHostOptions(CommonOptions, total=False):
    """Keyword arguments of `SyncHost`; see `Host`."""

    on_auth: Callable[[SyncLogin], object] | OnAuth | None


class SyncHost:
    """`Host` without `await`: the same verbs and options, for scripts, notebooks and threads.

        with SyncHost.from_config() as host:
            print(host.call("mcp_files_read_file", {"path": "README.md"}).text)

    Plain callbacks run in threads, and `on_auth` gets a `SyncLogin`. Calls from different threads run
    concurrently. In a notebook, use `open()` and `close()` instead of `with`.
    """

    def __init__(
        self, servers: HostConfig | Iterable[ServerConfig] = (), **options: Unpack[SyncHostOptions]
    ) -> None:
        self._host = Host(servers, **self._host_options(options))
        self._loop: BackgroundLoop | None = None
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @classmethod
    def from_config(
        cls,
        *paths: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        **options: Unpack[SyncHostOptions],
    ) -> Self:
        """Return a host for the servers in configuration files; see `Host.from_config`."""
        made = cls()
        made._host = Host.from_config(*paths, cwd=cwd, **made._host_options(options))
        return made

    def __repr__(self) -> str:
        return repr(self._host).replace("<Host", "<SyncHost", 1)

    def _host_options(self, options: SyncHostOptions) -> HostOptions:
        """Return the options of the `Host`, with an `on_auth` that passes a `SyncLogin` to a plain
        function."""
        on_auth: Any = options.get("on_auth")
        if on_auth is None or iscoroutinefunction(on_auth):
            return cast("HostOptions", options)

        def show(login: Login) -> object:
            return on_auth(_sync_login(login, self._do))

        return cast("HostOptions", {**options, "on_auth": show})

    # --- start and stop ---------------------------------------------------------------------------

    def open(self) -> Self:
        """Start the background loop and the servers, as `with` does; end them with `close()`."""
        if self._loop is not None:
            raise RuntimeError("a SyncHost is used once; make another one")
        self._loop = BackgroundLoop()
        try:
            self._running = self._loop.do(self._enter())
        except BaseException:
            self._loop.stop()
            raise
        atexit.register(self.close)
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all servers and the background loop. Idempotent."""
        running, self._running = self._running, None
        if running is not None and self._loop is not None and not self._loop.foreign:
            atexit.unregister(self.close)
            self._loop.do(self._end(running))
            self._loop.stop()

    async def _enter(self) -> asyncio.Task[None]:
        """Enter the host in a task of the loop, which also exits it."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                async with self._host:
                    entered.set_result(None)
                    await self._stop.wait()
            except BaseException as problem:
                if not entered.done():
                    entered.set_exception(problem)
                else:
                    raise

        task = asyncio.create_task(run(), name="mooring host")
        await entered
        return task

    async def _end(self, running: asyncio.Task[None]) -> None:
        self._stop.set()
        await running

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._running is None:
            work.close()
            raise RuntimeError(NOT_RUNNING)
        return self._loop.do(work)

    # --- state ----------------------------------------------------------------------------------

    @property
    def config(self) -> HostConfig:
        """The configuration in force; `add`, `remove`, `apply` and `reload` replace it."""
        return self._host.config

    @property
    def style(self) -> Style:
        """How tool names are built: the option of the host, or of its configuration."""
        return self._host.style

    @property
    def ranker(self) -> Ranker | None:
        """A second ranking for `search`, such as `SemanticRanker`. Can be set at any time."""
        return self._host.ranker

    @ranker.setter
    def ranker(self, ranker: Ranker | None) -> None:
        self._host.ranker = ranker

    @property
    def redact(self) -> Callable[[str], str]:
        """Function that returns a text with `***` in place of every secret that this host has used."""
        return self._host.redact

    @property
    def held(self) -> Mapping[str, NotTrusted]:
        """The servers that are not started because their file is not approved, with the error for each."""
        return self._do(_now(lambda: self._host.held))

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called now. The value is immutable; a change makes a new one."""
        return self._do(_now(lambda: self._host.catalog))

    def hidden(self) -> tuple[Hidden, ...]:
        """Return what servers have and the catalog does not show, each with the reason: the lock (tools,
        resources, prompts), a policy, `allow` and `deny` of the server, or a file that is not approved."""
        return self._do(_now(self._host.hidden))

    @property
    def discovery(self) -> Mode:
        """When sessions show the discovery tools instead of the whole catalog: `auto`, `always` or
        `never`."""
        return self._host.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """Return the tools to show to a model in the shared session; see `Session.tools`.
        See `Host.tools`."""
        return self._do(_now(partial(self._host.tools, complete=complete)))

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of every configured server, sorted by name."""
        return self._do(_now(self._host.status))

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        """Return at most `limit` tools that match `query`, best first, each with its score and reasons."""
        return self._do(_now(lambda: self._host.search(query, limit)))

    def events(self, *kinds: type[Event]) -> Iterator[Event]:
        """Return an iterator of the events from now on; each step waits for the next event. It ends with the
        host.

        Args:
            kinds: Classes of events to deliver. Default: all.
        """
        stream = self._do(_now(partial(self._host.events, *kinds)))
        return self._each(stream)

    def _each(self, stream: EventStream) -> Iterator[Event]:
        try:
            while self._running is not None:
                try:
                    yield self._do(stream.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            with suppress(RuntimeError):  # the host has ended, and the stream with it
                self._do(stream.aclose())

    # --- verbs ----------------------------------------------------------------------------------

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until every server has connected or failed; return whether at least one is connected.
        See `Host.ready`."""
        return self._do(self._host.ready(timeout))

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: OnProgress | None = None,
        budget: int | None = None,
    ) -> Result:
        """Call a tool in the shared session and return its result; see `Session.call`. See `Host.call`."""
        work = self._host.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )
        return self._do(work)

    def resources(self, server: str | None = None, *, timeout: float | None = None) -> ResourceList:
        """Return the resources and templates of one server or of all; servers are connected if needed.
        See `Host.resources`."""
        return self._do(self._host.resources(server, timeout=timeout))

    def read(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> Contents:
        """Return the contents of a resource, from the cache if they are fresh. See `Host.read`."""
        return self._do(self._host.read(uri, server, timeout=timeout))

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills of all servers, without the contents of their files. See `Host.skills`."""
        return self._do(_now(self._host.skills))

    def view(
        self, tool_name: str, *, session: SyncSession | None = None, timeout: float | None = None
    ) -> SyncView:
        """Return the page of a tool (MCP Apps), to show in a sandboxed iframe. See `Host.view`."""
        own = None if session is None else session._session  # pyright: ignore[reportPrivateUsage]
        return SyncView(self._do(self._host.view(tool_name, session=own, timeout=timeout)), self._do)

    def subscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Emit a `ResourceUpdated` event for each change of a resource, also after reconnects.
        See `Host.subscribe`."""
        self._do(self._host.subscribe(uri, server, timeout=timeout))

    def unsubscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Emit no more events for a resource; see `subscribe`. See `Host.unsubscribe`."""
        self._do(self._host.unsubscribe(uri, server, timeout=timeout))

    def prompts(self, server: str | None = None, *, timeout: float | None = None) -> PromptList:
        """Return the prompts of one server or of all; servers are connected if needed. See `Host.prompts`."""
        return self._do(self._host.prompts(server, timeout=timeout))

    def prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages of a prompt. See `Host.prompt`."""
        return self._do(self._host.prompt(server, name, arguments, timeout=timeout))

    def complete(
        self,
        server: str,
        *,
        argument: str,
        value: str,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] = EMPTY,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Return completions for an argument of a prompt, or for a variable of a resource template.
        See `Host.complete`."""
        work = self._host.complete(
            server,
            argument=argument,
            value=value,
            prompt=prompt,
            template=template,
            context=context,
            timeout=timeout,
        )
        return self._do(work)

    def ping(self, server: str, timeout: float = 5.0) -> float:
        """Return the seconds of a round trip to `server`, connecting it if needed. See `Host.ping`."""
        return self._do(self._host.ping(server, timeout))

    def login(
        self, server: str, *, principal: str | None = None, redirect_uri: str | None = None
    ) -> SyncLogin:
        """Start a login to `server`: show its `host` and `url`, then call `done()`. See `Host.login`."""
        work = self._host.login(server, principal=principal, redirect_uri=redirect_uri)
        return _sync_login(self._do(work), self._do)

    def logout(self, server: str, *, principal: str | None = None) -> bool | None:
        """Forget the login to `server` and revoke it. See `Host.logout`."""
        return self._do(self._host.logout(server, principal=principal))

    def health_check(self, timeout: float = 5.0) -> bool:
        """Return False if a server does not answer a ping within `timeout` seconds (default: 5).
        See `Host.health_check`."""
        return self._do(self._host.health_check(timeout))

    def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        """List the tools of `servers` (default: all) again, connecting them. See `Host.refresh`."""
        return self._do(self._host.refresh(*servers))

    def add(self, server: ServerConfig) -> ServerStatus:
        """Add a server: connect it, then show its tools. See `Host.add`."""
        return self._do(self._host.add(server))

    def remove(self, server: str) -> None:
        """Remove the tools of a server from the catalog, then stop it. See `Host.remove`."""
        self._do(self._host.remove(server))

    def apply(self, config: HostConfig) -> Plan:
        """Replace the configuration, including the changes by `add` and `remove`; return the steps.
        See `Host.apply`."""
        return self._do(self._host.apply(config))

    def reload(self) -> None:
        """Read the configuration files again and apply what changed. Does nothing without files.
        See `Host.reload`."""
        self._do(self._host.reload())

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
        discovery: Mode | None = None,
        scripts: bool | Literal["only"] | None = None,
    ) -> SyncSession:
        """Return the session of this id: the same one until it is left or has been idle for `session_ttl`.
        See `Host.session`."""
        made = partial(
            self._host.session,
            session_id,
            agent_id=agent_id,
            headers=headers,
            principal=principal,
            discovery=discovery,
            scripts=scripts,
        )
        return SyncSession(self._do(_now(made)), self._do)


class SyncSession:
    """`Session` without `await`: made by `SyncHost.session`."""

    def __init__(self, session: Session, do: Any) -> None:
        self._session = session
        self._do = do

    def __repr__(self) -> str:
        return repr(self._session).replace("<Session", "<SyncSession", 1)

    @property
    def id(self) -> str:
        """The id of the session; unique within a host."""
        return self._session.id

    @property
    def agent_id(self) -> str | None:
        """The agent that the session belongs to, if one was named."""
        return self._session.agent_id

    @property
    def principal(self) -> str | None:
        """The principal whose logins the session uses on its own connections; None: those of the host."""
        return self._session.principal

    @property
    def headers(self) -> Mapping[str, OwnHeaders]:
        """By server: HTTP headers that this session sends in addition to, or instead of, the configured
        ones."""
        return self._session.headers

    def __enter__(self) -> Self:
        self._do(self._session.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._session.__aexit__(None, None, None))

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called, whether `tools()` lists it or not."""
        return self._do(_now(lambda: self._session.catalog))

    @property
    def discovery(self) -> Mode:
        """When `tools()` lists the discovery tools instead of the whole catalog: `auto` (if the catalog has
        more than `discovery_budget` tokens), `always` or `never`."""
        return self._session.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """Return the tools to show to a model: the whole catalog, or the discovery tools and the selected
        ones.

        See `Session.tools`.
        """
        return self._do(_now(partial(self._session.tools, complete=complete)))

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: OnProgress | None = None,
        budget: int | None = None,
    ) -> Result:
        """Call a tool and return its result. A failure is a result with `is_error` too, unless `check` is
        set.

        See `Session.call`.
        """
        work = self._session.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )
        return self._do(work)

    def read_skill(self, name: str, file: str | None = None, *, timeout: float | None = None) -> Result:
        """Read a skill for the model: its `SKILL.md`, or one of its supporting files.

        See `Session.read_skill`.
        """
        return self._do(self._session.read_skill(name, file, timeout=timeout))

    def run_script(
        self, code: str, timeout: float = 60.0, *, on_progress: OnProgress | None = None
    ) -> Result:
        """Run a program that calls tools. See `Session.run_script`."""
        return self._do(self._session.run_script(code, timeout, on_progress=on_progress))


def _sync_login(login: Login, do: Any) -> SyncLogin:
    from mooring.auth.login import SyncLogin

    return SyncLogin(login, do)


async def _now(look: Any) -> Any:
    """Call a function on the event loop, so that it does not run during a change."""
    return look()
