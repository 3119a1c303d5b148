"""The provider for one MCP server: its verbs, while the supervisor keeps it connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from mooring import concurrency
from mooring.config.models import ServerConfig, Target
from mooring.core.builtin_tools import login_tool
from mooring.core.events import Event
from mooring.core.names import AUTHENTICATE, LOGIN
from mooring.core.redact import Redactor
from mooring.core.types import EMPTY, Block, CachedSnapshot, Era, Result, ServerStatus, Snapshot, State, Tool
from mooring.core.value import replace
from mooring.errors import AuthNeeded, CallTimeout, ConfigError, MooringError, ServerError, raise_alone
from mooring.servers.active import Guard
from mooring.servers.elicitation import ELICIT, ElicitationHandler, Task, failed, finished, passed_on, task_in
from mooring.servers.eras import EraConnections, pid_of
from mooring.servers.requests import RelistLimit, RequestSender
from mooring.servers.start_queue import StartLimit
from mooring.servers.state import ServerLoad
from mooring.servers.status import call_error
from mooring.servers.supervisor import Supervisor
from mooring.transport import wire
from mooring.transport.limits import Progress
from mooring.transport.message import WireError
from mooring.transport.pool import HttpPool

if TYPE_CHECKING:
    from mooring.auth.credentials import Credentials
    from mooring.auth.login import Login, OnAuth


VISIT_WAIT = 120.0
"""Seconds to wait for a server to report that the user has finished at a URL; then the request is
repeated."""


def whole(raw: Mapping[str, Any]) -> bool:
    """Whether a result is final: neither `input_required` nor a task."""
    return raw.get("resultType", "complete") == "complete" and "task" not in raw


class InputRounds:
    """Completes one request that needs input. Errors name `about`; the time limit is `end`."""

    def __init__(self, sender: RequestSender, about: str, end: float) -> None:
        self._sender, self._about, self._end = sender, about, end
        self._supervisor = sender.supervisor
        self._opened_ids: set[str] = set()
        """Elicitation ids of the URLs that the user has opened."""
        self._server = sender.supervisor.config.name
        self._started = concurrency.monotonic()

    @property
    def _elapsed(self) -> float:
        return concurrency.monotonic() - self._started

    async def finish(
        self, raw: dict[str, Any], method: str, params: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the final result of a request that was first answered with `raw`. Input that the server
        requires is requested from the user.

        Raises:
            CallError, AuthNeeded: There is no final result.
        """

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            return await self._sender.ask(method, params, self._about, self._end, **options)

        try:
            raw = await finished(raw, send, params, self._answer)
            kind = raw.get("resultType")
            if kind not in ("complete", "task", None) and not (kind == "input_required" and passed_on()):
                raise failed("the response has an unknown resultType")
            if method != "tools/call" or (state := task_in(raw)) is None:
                return raw
            return await self._followed(state, options.get("on_progress"))
        except WireError as fault:
            redact = self._supervisor.redact
            raise_alone(call_error(fault, self._server, self._about, self._elapsed, None, redact))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._end - concurrency.monotonic()):
                key = params.get("elicitationId") if method == ELICIT else None
                if key in self._opened_ids:
                    raise failed("it asks again for a URL that the user has opened before")
                answer = await self._supervisor.answer(method, params)
                if isinstance(key, str):
                    await self._visited(key, answer)
                return answer
        except TimeoutError:
            raise CallTimeout(
                f"{self._about!r} of {self._server!r} was cancelled after {self._elapsed:.3g} s: "
                "its elicitation was not answered",
                server=self._server,
                tool=self._about,
                elapsed=self._elapsed,
                outcome="failed",
            ) from None

    async def _visited(self, key: str, answer: Mapping[str, Any]) -> None:
        """Wait until the server reports that the user, who agreed to open a URL, has finished there.

        Raises:
            WireError: The user did not agree.
        """
        live = self._supervisor.live
        if live is None or (done := live.visited.get(key)) is None:
            return
        if answer.get("action") != "accept":
            raise failed("the user did not open the requested URL")
        self._opened_ids.add(key)
        with suppress(TimeoutError):  # then the next attempt shows whether they have
            async with asyncio.timeout(VISIT_WAIT):
                await done.wait()

    async def _followed(self, state: Mapping[str, Any], on_progress: Progress | None) -> dict[str, Any]:
        """Return the result of a task. Cancelling the caller cancels the task."""

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return await self._sender.ask(method, params, self._about, self._end)

        live = await self._supervisor.connected(self._end - concurrency.monotonic())
        task = Task(state, live, ask, self._answer)
        over = False
        try:
            async with asyncio.timeout(self._end - concurrency.monotonic()):
                result = await task.result(on_progress)
            over = True
            return result
        except TimeoutError:
            raise WireError("", kind="timeout", outcome="unknown") from None
        except (WireError, ServerError) as fault:
            over = not isinstance(fault, WireError) or task.ended
            raise
        finally:
            if not over:
                task.abandon()


ASKING = ("prompts/get", "resources/read")
"""Requests other than calls that may return `input_required`."""
RETIREMENT = 5.0
"""Seconds that running calls have to finish when their connection is replaced."""


class Connection:
    """Calls run in their caller's task; only `run()` opens and closes the transport."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        enabled: bool = True,
        known: CachedSnapshot | None = None,
        resolve: Callable[[ServerConfig], Awaitable[Target]],
        redact: Redactor,
        pool: HttpPool,
        publish: Callable[[Snapshot], Guard | None],
        emit: Callable[[Event], None],
        on_auth: OnAuth | None = None,
        stale: Callable[[str, str | None], None],
        questions: ElicitationHandler,
        starts: StartLimit,
        guard: Callable[[Snapshot], Guard | None] = lambda snapshot: None,
    ) -> None:
        self._on_auth = on_auth
        made = partial(
            Supervisor,
            resolve=resolve,
            redact=redact,
            pool=pool,
            publish=publish,
            emit=emit,
            stale=stale,
            questions=questions,
            starts=starts,
        )
        self.supervisor = made(config, enabled=enabled, known=known)
        self.run = self.supervisor.run
        self.refresh = self.supervisor.refresh
        self._relistings = RelistLimit(3, 10.0)
        self._relisting: asyncio.Task[None] | None = None
        self._sender = RequestSender(self.supervisor)
        self._eras = EraConnections(self._sender, partial(made, enabled=True, known=None), guard)

    @property
    def config(self) -> ServerConfig:
        return self.supervisor.config

    @property
    def name(self) -> str:
        return self.supervisor.config.name

    @property
    def state(self) -> State:
        return self.supervisor.state

    @property
    def snapshot(self) -> Snapshot:
        return self.supervisor.snapshot

    @property
    def settled(self) -> asyncio.Event:
        return self.supervisor.settled

    @property
    def pid(self) -> int | None:
        """Process id of the child, while one is running."""
        return pid_of(self.supervisor)

    def status(self) -> ServerStatus:
        supervisor, now = self.supervisor, concurrency.monotonic()
        up = supervisor.state == "connected"
        return ServerStatus(
            name=self.name,
            state=supervisor.state,
            transport=supervisor.live.channel.kind if supervisor.live else self.config.transport,
            protocol=supervisor.snapshot.info.protocol if up else None,
            tools=len(supervisor.snapshot.tools),
            resources=len(supervisor.snapshot.resources),
            prompts=len(supervisor.snapshot.prompts),
            extensions=tuple(one.name for one in supervisor.snapshot.extensions),
            skills=len(supervisor.snapshot.skills),
            error=str(supervisor.problem) if supervisor.problem else None,
            connected_at=supervisor.connected_at,
            breaker=self._sender.breaker(now),
            retry_in=None if supervisor.next_try is None else max(supervisor.next_try - now, 0.0),
            fresh_within=supervisor.freshness.bound if supervisor.freshness else None,
            announced_within=supervisor.freshness.announced_bound if supervisor.freshness else None,
            warnings=supervisor.snapshot.warnings,
        )

    def load(self) -> ServerLoad:
        """Return the current activity of this connection, for metrics."""
        gate = self._sender.gate
        return ServerLoad(
            running=gate.under_way,
            waiting=gate.waiting,
            connects=self.supervisor.attempts.connects,
            processes=int(self.pid is not None) + self._eras.processes(),
        )

    async def start(self) -> None:
        """Connect now, even if the configuration says `start: lazy`; an attempt under way is enough."""
        self.supervisor.connect_now(again=False)

    async def stop(self) -> None:
        """Stop the connection and everything that belongs to it."""
        await self._eras.stop()
        await self.supervisor.stop()
        if self.supervisor.access is not None:
            await self.supervisor.access.close()

    async def retire(self) -> None:
        """Stop the connection when it is replaced; running requests get some time to finish."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETIREMENT):
                await self._sender.idle()
                await self._eras.idle()
        await self.stop()

    async def relist(self) -> None:
        """Connect or list again because of a call of an unknown name. Never raises for the server.

        Concurrent callers share one listing. Unless the server announced a change,
        there are three in a row and then one each 10 s.
        """
        if self._relisting is None or self._relisting.done():
            if not (self.supervisor.lists.outdated or self._relistings.take()):
                return
            self._relisting = asyncio.ensure_future(self._relist())
        await asyncio.wait([self._relisting])

    async def _relist(self) -> None:
        with suppress(MooringError):
            if self.supervisor.live is None:
                await self.supervisor.connected(self.config.connect_timeout + self.config.list_timeout)
            elif self.supervisor.lists.outdated:
                await self.supervisor.lists.settle()
            else:
                await self.supervisor.refresh()

    # --- logins ---------------------------------------------------------------------------------

    @property
    def login_tool(self) -> Tool | None:
        """The tool that starts a login, or says why the server denies access."""
        access = self.supervisor.access
        if access is not None and access.wanted is not None:
            return login_tool(self.name)
        # It stays while the server is connected again after a login.
        refused = isinstance(self.supervisor.problem, AuthNeeded)
        return login_tool(self.name, possible=not self.hopeless) if refused else None

    @property
    def hopeless(self) -> bool:
        """Whether the server denies access and no login in a browser can change that."""
        access = self.supervisor.access
        return isinstance(self.supervisor.problem, AuthNeeded) and (access is None or access.hopeless)

    async def login(self, redirect_uri: str | None = None) -> Login:
        """Return a login that waits for the user.

        Raises:
            ConfigError: The server does not support logins.
            AuthNeeded: A login is not possible.
        """
        if self.supervisor.access is None:
            with suppress(MooringError):
                await self.supervisor.refresh()  # the response of the server names the authorization server
        login = await (await self._access()).begin(redirect_uri)
        login.on_success, login.settle = self._logged_in, self._asked_again
        return login

    async def logout(self) -> bool | None:
        """Remove the login; see `Credentials.logout`.

        Raises:
            ConfigError: The server does not support logins.
        """
        done = await (await self._access()).logout()
        if self.supervisor.live is not None:
            self.supervisor.live.channel.mark_closed("logged out")
        return done

    async def _access(self) -> Credentials:
        if self.supervisor.access is None and self.state != "disabled":
            await self.supervisor.introduce()
        if self.supervisor.access is not None:
            return self.supervisor.access
        if self.config.url is None:
            why = "it is a program on this machine. Pass its credentials in `env`"
        elif self.state == "disabled":
            why = "it is disabled"
        else:
            why = "its credentials are in `headers`, or `auth` is `none`"
        raise ConfigError(f"server {self.name!r} has no login: {why}", file=self.config.file)

    async def _asked_again(self) -> None:
        """Wait for the attempt that `_logged_in` requested."""
        if self.supervisor.live is not None:
            await self.supervisor.refresh()
        else:
            await self.supervisor.connected(None, None)

    def _logged_in(self) -> None:
        if self.supervisor.live is None:
            self.supervisor.connect_now()
        else:
            self.supervisor.lists.mark_dirty()

    async def _authenticate(self, timeout: float | None) -> Result:
        from mooring.auth.login import authenticate

        started = concurrency.monotonic()
        if self.hopeless:
            how = "A login in a browser is not possible: ask the user to correct the configuration."
            raise AuthNeeded(f"{self.supervisor.problem}. {how}", server=self.name)
        text = await authenticate(await self.login(), self._on_auth, timeout)
        block = Block({"type": "text", "text": text})
        duration = concurrency.monotonic() - started
        return Result(server=self.name, tool=AUTHENTICATE, blocks=(block,), duration=duration)

    # --- verbs ----------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        """Return the result of a call of the tool `tool`.

        Raises:
            CallError, AuthNeeded: There is no result; `outcome` says whether the tool may have run.
        """
        if tool == LOGIN:
            return await self._authenticate(timeout)
        started = concurrency.monotonic()
        config, sender = self.supervisor.config, self._sender
        limit, idle = config.call_limits(timeout)
        end = started + limit
        if (wanted := self._eras.wanted(tool)) is not None:
            sender = await self._eras.sender(wanted, end, tool)
        # A progress token is always sent, so that a server can reset the idle timeout.
        options: dict[str, Any] = {"idle": idle, "on_progress": on_progress or _ignore_progress, "meta": meta}
        if config.idempotent:
            options["again"] = any(fnmatchcase(tool, glob) for glob in config.idempotent)
        try:
            params = _call_params(sender, tool, arguments)
            raw = await sender.ask("tools/call", params, tool, end, **options)
            self._used()
            if not whole(raw):
                raw = await InputRounds(sender, tool, end).finish(raw, "tools/call", params, options)
        except ServerError as problem:
            other = None
            if options.get("again"):
                other = await self._eras.asking_by_result(tool, sender, problem, end)
            if other is None:
                if (note := self._eras.learn(tool, sender, problem.said)) is not None:
                    problem.args, problem.said = (f"{problem}\n{note}",), f"{problem.said}\n{note}"
                raise
            sender = other
            params = _call_params(sender, tool, arguments)
            raw = await self._asked(sender, "tools/call", params, tool, end, options)
        result = wire.result(self.name, tool, raw, concurrency.monotonic() - started)
        if result.is_error and (note := self._eras.learn(tool, sender, result.text)) is not None:
            blocks = (*result.blocks, Block({"type": "text", "text": note}))
            result = replace(result, blocks=blocks)
        return result

    async def era_for(self, tool: str, wanted: Era, timeout: float | None = None) -> Era | None:
        """Return the era in which a call of `tool` is made if the caller needs `wanted`; connects if needed.
        None without a connection."""
        end = concurrency.monotonic() + self.config.call_limits(timeout)[0]
        sender = await self._eras.sender(self._eras.learned(tool, wanted), end, tool)
        try:
            return (sender.supervisor.live or await sender.live(end)).peer.era
        except (WireError, MooringError):
            return None  # the call raises the error

    async def ping(self, timeout: float) -> float:
        """Return the seconds of one round trip; connecting and the response share `timeout`.

        Raises:
            CallError, AuthNeeded: There was no response.
        """
        end = concurrency.monotonic() + timeout
        try:
            live = await self._sender.live(end)
        except WireError as fault:
            raise_alone(call_error(fault, self.name, "ping", 0.0, None, self.supervisor.redact))
        started = concurrency.monotonic()
        # The 2026 era has no ping; discovery is its cheapest request.
        method = "ping" if live.peer.era == "legacy" else "server/discover"
        await self._sender.ask(method, {}, method, end)
        return concurrency.monotonic() - started

    async def ask(
        self, method: str, params: dict[str, Any], *, about: str, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the raw result of any other request; errors name `about`.

        Raises:
            CallError, AuthNeeded: There is no result.
        """
        limit, idle = self.config.call_limits(timeout)
        end = concurrency.monotonic() + limit
        sender = self._sender
        if method in ASKING:
            sender = await self._eras.sender(self._eras.wanted(), end)
        try:
            return await self._asked(sender, method, params, about, end, {"idle": idle})
        except ServerError as problem:
            if method not in ASKING:
                raise
            other = await self._eras.asking_by_result(None, sender, problem, end)
            if other is None:
                raise
        return await self._asked(other, method, params, about, end, {"idle": idle})

    async def _asked(
        self,
        sender: RequestSender,
        method: str,
        params: dict[str, Any],
        about: str,
        end: float,
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the raw result of one request on this connection, after all required input."""
        raw = await sender.ask(method, params, about, end, **options)
        self._used()
        if whole(raw):
            return raw
        return await InputRounds(sender, about, end).finish(raw, method, params, options)

    def _used(self) -> None:
        freshness = self.supervisor.freshness
        if freshness is not None and not freshness.in_use:
            freshness.use()

    async def watch(self, uri: str, timeout: float | None = None) -> None:
        """Subscribe to changes of a resource (`ResourceUpdated`), on this connection and the next ones.

        Raises:
            CallError, AuthNeeded: The server does not support it.
        """
        async with self._request_errors("resources/subscribe", timeout):
            known = uri in self.supervisor.notices.watched
            self.supervisor.notices.watched.add(uri)
            try:
                assert self.supervisor.notices.watching is not None
                await self.supervisor.notices.watching.add(uri)
                await self._eras.watch(uri, wanted=True)
            except BaseException:
                if not known:
                    self.supervisor.notices.watched.discard(uri)
                raise

    async def unwatch(self, uri: str, timeout: float | None = None) -> None:
        """Unsubscribe from a resource.

        Raises:
            CallError, AuthNeeded: the server did not confirm; no more events are emitted in any case.
        """
        self.supervisor.notices.watched.discard(uri)
        if self.supervisor.live is not None:
            async with self._request_errors("resources/unsubscribe", timeout):
                assert self.supervisor.notices.watching is not None
                await self.supervisor.notices.watching.remove(uri)
                await self._eras.watch(uri, wanted=False)

    @asynccontextmanager
    async def _request_errors(self, about: str, timeout: float | None) -> AsyncGenerator[None]:
        """Return a live connection; transport errors become mooring errors."""
        started = concurrency.monotonic()
        try:
            await self._sender.live(started + self.config.call_limits(timeout)[0])
            yield
        except WireError as fault:
            elapsed, words = concurrency.monotonic() - started, fault.failure_reason
            raise_alone(call_error(fault, self.name, about, elapsed, words, self.supervisor.redact))


async def _ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    pass


def _call_params(sender: RequestSender, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `tools/call` on this connection."""
    live = sender.supervisor.live
    params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
    if live is not None and tool in live.deferred:
        params["task"] = {}
    return params
