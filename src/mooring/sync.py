"""The same host for code that does not await: one background event loop, any number of threads."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mooring.concurrency import EventStream
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.config.plan import Plan
from mooring.core.catalog import Catalog
from mooring.core.discovery import Mode
from mooring.core.events import Event
from mooring.core.search import Hit
from mooring.core.types import EMPTY, Contents, Hidden, Message, Result, ServerStatus, Tool
from mooring.errors import NotTrusted
from mooring.host import Host
from mooring.local import OnProgress
from mooring.prompts import PromptList
from mooring.resources import ResourceList
from mooring.servers.launcher import OwnHeaders
from mooring.servers.waiting import RefreshReport
from mooring.session import SHARED, Session

if TYPE_CHECKING:
    from mooring.auth.login import Login

__all__ = ["SyncHost", "SyncLogin", "SyncSession"]

T = TypeVar("T")
EXIT_WAIT = 6.0
NOT_RUNNING = "the host is not running; use it inside `with`, or call `open()` first"


class _Loop:
    """An event loop in a daemon thread. Not anyio's portal: its thread keeps an interpreter from ending
    whose program forgot to close."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._open = True
        self._door = threading.Lock()
        """Whatever is handed in before it shuts is ended with the loop; nothing is handed in after."""
        self.thread = threading.Thread(target=self._run, name="mooring", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def foreign(self) -> bool:
        """Whether this process is not the one that the loop runs in, but a fork of it."""
        return os.getpid() != self._pid

    def do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of `work`, done on the loop while this thread waits; interrupting it cancels it."""
        if self.foreign or threading.current_thread() is self.thread:
            work.close()
            if self.foreign:
                raise RuntimeError(
                    "this SyncHost belongs to the process that made it; make another after a fork"
                )
            raise RuntimeError("a SyncHost cannot be used from its own event loop; use Host there")
        with self._door:
            if not self._open:
                work.close()
                raise RuntimeError(NOT_RUNNING)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except CancelledError:
            raise RuntimeError("the host was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        with self._door:
            self._open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join(EXIT_WAIT)


class SyncHost:
    """`Host` without `await`: the same verbs, for scripts, notebooks and threads.

        with SyncHost.from_config() as host:
            print(host.call("mcp_files_read_file", {"path": "README.md"}).text)

    Takes what `Host` takes. Plain callbacks run in threads, and `on_auth` gets a `SyncLogin`. Calls from
    different threads run side by side. In a notebook, use `open()` and `close()` instead of `with`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._host = Host(*args, **self._for_threads(options))
        self._loop: _Loop | None = None
        self._stop = asyncio.Event()
        self._life: Any = None

    @classmethod
    def from_config(
        cls, *paths: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None, **options: Any
    ) -> Self:
        """See `Host.from_config`."""
        made = cls()
        made._host = Host.from_config(*paths, cwd=cwd, **made._for_threads(options))
        return made

    def _for_threads(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a `Host`, with a login that a plain `on_auth` can use without `await`."""
        on_auth = options.get("on_auth")
        if on_auth is None or iscoroutinefunction(on_auth):
            return options

        def show(login: Login) -> object:
            return on_auth(SyncLogin(login, self._do))

        return {**options, "on_auth": show}

    # --- life -----------------------------------------------------------------------------------

    def open(self) -> Self:
        """Start the background loop and the servers, as `with` does; `close()` ends them."""
        if self._loop is not None:
            raise RuntimeError("a SyncHost is used once; make another one")
        self._loop = _Loop()
        try:
            self._life = self._loop.do(self._enter())
        except BaseException:
            self._loop.stop()
            raise
        atexit.register(self.close)
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every server and the background loop. Idempotent."""
        life, self._life = self._life, None
        if life is not None and self._loop is not None and not self._loop.foreign:
            atexit.unregister(self.close)
            self._loop.do(self._end(life))
            self._loop.stop()

    async def _enter(self) -> asyncio.Task[None]:
        """The host is entered and left in one task of the loop."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def live() -> None:
            try:
                async with self._host:
                    entered.set_result(None)
                    await self._stop.wait()
            except BaseException as problem:
                if not entered.done():
                    entered.set_exception(problem)
                else:
                    raise

        task = asyncio.create_task(live(), name="mooring host")
        await entered
        return task

    async def _end(self, life: asyncio.Task[None]) -> None:
        self._stop.set()
        await life

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._life is None:
            work.close()
            raise RuntimeError(NOT_RUNNING)
        return self._loop.do(work)

    # --- what is there --------------------------------------------------------------------------

    @property
    def config(self) -> HostConfig:
        return self._host.config

    @property
    def style(self) -> Style:
        return self._host.style

    @property
    def redact(self) -> Callable[[str], str]:
        """Takes every secret that this host has used out of a text."""
        return self._host.redact

    @property
    def held(self) -> Mapping[str, NotTrusted]:
        """The servers that are not started because their file is not approved."""
        return self._do(_now(lambda: self._host.held))

    @property
    def catalog(self) -> Catalog:
        return self._do(_now(lambda: self._host.catalog))

    def hidden(self) -> tuple[Hidden, ...]:
        """What servers offer, or would offer, and the catalog does not show."""
        return self._do(_now(self._host.hidden))

    @property
    def discovery(self) -> Mode:
        return self._host.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """See `Session.tools`."""
        return self._do(_now(partial(self._host.tools, complete=complete)))

    def status(self) -> tuple[ServerStatus, ...]:
        return self._do(_now(self._host.status))

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        return self._do(_now(lambda: self._host.search(query, limit)))

    def events(self, *kinds: type[Event]) -> Iterator[Event]:
        """What happens from now on, of all kinds or these; each step waits for the next event. Ends with the
        host."""
        stream = self._do(_now(partial(self._host.events, *kinds)))
        return self._each(stream)

    def _each(self, stream: EventStream) -> Iterator[Event]:
        try:
            while self._life is not None:
                try:
                    yield self._do(stream.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            with suppress(RuntimeError):  # the host has ended, and the stream with it
                self._do(stream.aclose())

    # --- verbs ----------------------------------------------------------------------------------

    def ready(self, timeout: float | None = None) -> bool:
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
        """The outcome of one call; see `Session.call`."""
        work = self._host.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )
        return self._do(work)

    def resources(self, server: str | None = None, *, timeout: float | None = None) -> ResourceList:
        return self._do(self._host.resources(server, timeout=timeout))

    def read(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> Contents:
        return self._do(self._host.read(uri, server, timeout=timeout))

    def subscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        self._do(self._host.subscribe(uri, server, timeout=timeout))

    def unsubscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        self._do(self._host.unsubscribe(uri, server, timeout=timeout))

    def prompts(self, server: str | None = None, *, timeout: float | None = None) -> PromptList:
        return self._do(self._host.prompts(server, timeout=timeout))

    def prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
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
        """See `Host.complete`."""
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
        """See `Host.ping`."""
        return self._do(self._host.ping(server, timeout))

    def login(self, server: str, *, principal: str | None = None) -> SyncLogin:
        """See `Host.login`."""
        return SyncLogin(self._do(self._host.login(server, principal=principal)), self._do)

    def logout(self, server: str, *, principal: str | None = None) -> bool | None:
        return self._do(self._host.logout(server, principal=principal))

    def health_check(self, timeout: float = 5.0) -> bool:
        """See `Host.health_check`."""
        return self._do(self._host.health_check(timeout))

    def refresh(self, *servers: str) -> Mapping[str, RefreshReport]:
        return self._do(self._host.refresh(*servers))

    def add(self, server: ServerConfig) -> ServerStatus:
        return self._do(self._host.add(server))

    def remove(self, server: str) -> None:
        self._do(self._host.remove(server))

    def apply(self, config: HostConfig) -> Plan:
        return self._do(self._host.apply(config))

    def reload(self) -> None:
        """Read the files again and take over what changed; see `Host.reload`."""
        self._do(self._host.reload())

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
        discovery: Mode | None = None,
    ) -> SyncSession:
        """See `Host.session`."""
        made = partial(
            self._host.session,
            session_id,
            agent_id=agent_id,
            headers=headers,
            principal=principal,
            discovery=discovery,
        )
        return SyncSession(self._do(_now(made)), self._do)


class SyncSession:
    """`Session` without `await`."""

    def __init__(self, session: Session, do: Any) -> None:
        self._session = session
        self._do = do

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def agent_id(self) -> str | None:
        return self._session.agent_id

    @property
    def principal(self) -> str | None:
        return self._session.principal

    @property
    def headers(self) -> Mapping[str, OwnHeaders]:
        return self._session.headers

    def __enter__(self) -> Self:
        self._do(self._session.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._session.__aexit__(None, None, None))

    @property
    def catalog(self) -> Catalog:
        return self._do(_now(lambda: self._session.catalog))

    @property
    def discovery(self) -> Mode:
        return self._session.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """See `Session.tools`."""
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
        work = self._session.call(
            name, arguments, timeout=timeout, check=check, on_progress=on_progress, budget=budget
        )
        return self._do(work)


class SyncLogin:
    """`Login` without `await`."""

    def __init__(self, login: Login, do: Any) -> None:
        self.server, self.url, self.host, self.scopes = login.server, login.url, login.host, login.scopes
        self.issuer = login.issuer
        self._login = login
        self._do = do

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""
        return self._login.over

    def complete(self, callback_url: str) -> None:
        self._do(self._login.complete(callback_url))

    def done(self, timeout: float | None = None) -> None:
        self._do(self._login.done(timeout))

    def cancel(self) -> None:
        self._do(self._login.cancel())

    def close(self) -> None:
        self._do(self._login.close())


async def _now(look: Any) -> Any:
    """Done on the loop, so that no other thread sees a half-made change."""
    return look()
