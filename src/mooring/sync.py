"""The same host for code that does not await: one background event loop, any number of threads."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mooring.core.catalog import Catalog
from mooring.core.config import HostConfig, ServerConfig
from mooring.core.events import Event
from mooring.core.hidden import Hidden
from mooring.core.plan import Plan
from mooring.core.search import Hit
from mooring.core.types import Contents, Message, Result, ServerStatus, Tool
from mooring.host import Host
from mooring.identity import OwnHeaders
from mooring.local import Progress
from mooring.muster import RefreshReport
from mooring.prompting import PromptList
from mooring.resources import ResourceList
from mooring.session import SHARED, Session

if TYPE_CHECKING:
    from mooring.net.login import Login

__all__ = ["SyncHost", "SyncLogin", "SyncSession"]

T = TypeVar("T")
EXIT_WAIT = 6.0
NOT_RUNNING = "the host is not running; use it inside `with`"


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

    Takes what `Host` takes. Calls from different threads run side by side.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._host = Host(*args, **options)
        self._loop: _Loop | None = None
        self._stop = asyncio.Event()
        self._life: Any = None

    @classmethod
    def from_config(cls, *paths: str | os.PathLike[str], **options: Any) -> Self:
        """See `Host.from_config`."""
        made = cls()
        made._host = Host.from_config(*paths, **options)
        return made

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("a SyncHost is used once; make another one")
        self._loop = _Loop()
        try:
            self._life = self._loop.do(self._open())
        except BaseException:
            self._loop.stop()
            raise
        atexit.register(self.close)
        return self

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

    async def _open(self) -> asyncio.Task[None]:
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
    def catalog(self) -> Catalog:
        return self._do(_now(lambda: self._host.catalog))

    def tools(self) -> tuple[Tool, ...]:
        return self._do(_now(self._host.tools))

    def status(self) -> tuple[ServerStatus, ...]:
        return self._do(_now(self._host.status))

    def hidden(self) -> tuple[Hidden, ...]:
        return self._do(_now(self._host.hidden))

    def search(self, query: str, limit: int = 10) -> list[Hit]:
        return self._do(_now(lambda: self._host.search(query, limit)))

    def events(self) -> Iterator[Event]:
        """What happens from now on; each step waits for the next event. Ends with the host."""
        stream = self._do(_now(self._host.events))
        return self._each(stream)

    def _each(self, stream: Any) -> Iterator[Event]:
        while self._life is not None:
            try:
                yield self._do(stream.__anext__())
            except StopAsyncIteration:
                return

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
        on_progress: Progress | None = None,
        budget: int | None = None,
    ) -> Result:
        """The outcome of one call; see `Session.call`. `on_progress` is a coroutine function and runs on the
        background loop."""
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

    def complete(self, server: str, **asked: Any) -> tuple[str, ...]:
        """Takes what `Host.complete` takes."""
        return self._do(self._host.complete(server, **asked))

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

    def session(
        self,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] | None = None,
        principal: str | None = None,
    ) -> SyncSession:
        """See `Host.session`."""
        made = partial(
            self._host.session, session_id, agent_id=agent_id, headers=headers, principal=principal
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

    def __enter__(self) -> Self:
        self._do(self._session.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._session.__aexit__(None, None, None))

    @property
    def catalog(self) -> Catalog:
        return self._do(_now(lambda: self._session.catalog))

    def tools(self) -> tuple[Tool, ...]:
        return self._do(_now(self._session.tools))

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        check: bool = False,
        on_progress: Progress | None = None,
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
        self._login = login
        self._do = do

    def complete(self, callback_url: str) -> None:
        self._do(self._login.complete(callback_url))

    def done(self, timeout: float | None = None) -> None:
        self._do(self._login.done(timeout))

    def cancel(self) -> None:
        self._do(self._login.cancel())


async def _now(look: Any) -> Any:
    """Done on the loop, so that no other thread sees a half-made change."""
    return look()
