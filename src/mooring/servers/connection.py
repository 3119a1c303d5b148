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
from mooring.core.chain import raise_alone
from mooring.core.events import Event
from mooring.core.names import AUTHENTICATE, LOGIN
from mooring.core.redact import Redactor
from mooring.core.types import EMPTY, Block, CachedSnapshot, Era, Result, ServerStatus, Snapshot, State, Tool
from mooring.core.value import replace
from mooring.errors import AuthNeeded, CallTimeout, ConfigError, MooringError, ServerError
from mooring.servers.active import Guard
from mooring.servers.elicitation import ElicitationHandler
from mooring.servers.eras import EraConnections
from mooring.servers.input_required import Task, converse, failed, passed_on, task_in
from mooring.servers.requests import RelistLimit, RequestSender
from mooring.servers.start_queue import StartLimit
from mooring.servers.status import call_error
from mooring.servers.supervisor import Supervisor
from mooring.transport import wire
from mooring.transport.limits import Progress
from mooring.transport.message import WireError
from mooring.transport.pool import HttpPool

if TYPE_CHECKING:
    from mooring.auth.credentials import Credentials
    from mooring.auth.login import Login, OnAuth


def whole(raw: Mapping[str, Any]) -> bool:
    """Whether a result is the last word: no question, and no promise of a later one."""
    return raw.get("resultType", "complete") == "complete" and "task" not in raw


class InputRounds:
    """Made for one request, whose errors name `about` and which ends at `end`."""

    def __init__(self, carrier: RequestSender, about: str, end: float) -> None:
        self._carrier, self._about, self._end = carrier, about, end
        self._owner = carrier.owner
        self._server = carrier.owner.config.name
        self._started = concurrency.monotonic()

    @property
    def _elapsed(self) -> float:
        return concurrency.monotonic() - self._started

    async def finish(
        self, raw: dict[str, Any], method: str, params: dict[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The final result of a request that was first answered with `raw`; the user is asked whatever
        the server wants to know before it.

        Raises:
            CallError, AuthNeeded: there is none.
        """

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            return await self._carrier.ask(method, params, self._about, self._end, **options)

        try:
            raw = await converse(raw, send, params, self._answer)
            kind = raw.get("resultType")
            if kind not in ("complete", "task", None) and not (kind == "input_required" and passed_on()):
                raise failed("the answer is of a kind that is not known")
            if method != "tools/call" or (state := task_in(raw)) is None:
                return raw
            return await self._followed(state, options.get("on_progress"))
        except WireError as fault:
            redact = self._owner.redact
            raise_alone(call_error(fault, self._server, self._about, self._elapsed, None, redact))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._end - concurrency.monotonic()):
                return await self._owner.answer(method, params)
        except TimeoutError:
            raise CallTimeout(
                f"{self._about!r} of {self._server!r} was given up after {self._elapsed:.3g} s: "
                "nobody answered the question that it asked",
                server=self._server,
                tool=self._about,
                elapsed=self._elapsed,
                outcome="failed",
            ) from None

    async def _followed(self, state: Mapping[str, Any], on_progress: Progress | None) -> dict[str, Any]:
        """The result of a task; whoever stops waiting for it stops it, too."""

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return await self._carrier.ask(method, params, self._about, self._end)

        live = await self._owner.connected(self._end - concurrency.monotonic())
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
"""Requests beside calls that a server may answer with a question."""
RETIREMENT = 5.0
"""Seconds that calls under way have to end when another connection takes the place of theirs."""


class Connection:
    """Calls go out in their caller's own task; only `run()` opens and closes anything."""

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
        self.owner = made(config, enabled=enabled, known=known)
        self.run = self.owner.run
        self.refresh = self.owner.refresh
        self._relistings = RelistLimit(3, 10.0)
        self._relisting: asyncio.Task[None] | None = None
        self._carrier = RequestSender(self.owner)
        self._lanes = EraConnections(self._carrier, partial(made, enabled=True, known=None), guard)

    @property
    def config(self) -> ServerConfig:
        return self.owner.config

    @property
    def name(self) -> str:
        return self.owner.config.name

    @property
    def state(self) -> State:
        return self.owner.state

    @property
    def snapshot(self) -> Snapshot:
        return self.owner.snapshot

    @property
    def settled(self) -> asyncio.Event:
        return self.owner.settled

    @property
    def pid(self) -> int | None:
        """Process id of the child, while one is running."""
        return getattr(getattr(self.owner.live and self.owner.live.channel, "child", None), "pid", None)

    def status(self) -> ServerStatus:
        owner, now = self.owner, concurrency.monotonic()
        up = owner.state == "connected"
        return ServerStatus(
            name=self.name,
            state=owner.state,
            transport=owner.live.channel.kind if owner.live else self.config.transport,
            protocol=owner.snapshot.info.protocol if up else None,
            tools=len(owner.snapshot.tools),
            resources=len(owner.snapshot.resources),
            prompts=len(owner.snapshot.prompts),
            error=str(owner.problem) if owner.problem else None,
            connected_at=owner.connected_at,
            breaker=self._carrier.breaker(now),
            retry_in=None if owner.next_try is None else max(owner.next_try - now, 0.0),
            fresh_within=owner.freshness.bound if owner.freshness else None,
            warnings=owner.snapshot.warnings,
        )

    async def start(self) -> None:
        """Connect now, even if the configuration says `start: lazy`."""
        self.owner.kick()

    async def stop(self) -> None:
        """End it and all that belongs to it."""
        await self._lanes.stop()
        await self.owner.stop()
        if self.owner.access is not None:
            await self.owner.access.close()

    async def retire(self) -> None:
        """End it when another one takes its place: what is under way gets some time to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETIREMENT):
                await self._carrier.idle()
                await self._lanes.idle()
        await self.stop()

    async def relist(self) -> None:
        """Connect or list again because of a call of an unknown name. Never raises for the server.

        However many callers ask, one listing serves all of them. Unless the server announced a change,
        there are three in a row and then one each 10 s.
        """
        if self._relisting is None or self._relisting.done():
            if not (self.owner.lists.outdated or self._relistings.take()):
                return
            self._relisting = asyncio.ensure_future(self._relist())
        await asyncio.wait([self._relisting])

    async def _relist(self) -> None:
        with suppress(MooringError):
            if self.owner.live is None:
                await self.owner.connected(self.config.connect_timeout + self.config.list_timeout)
            elif self.owner.lists.outdated:
                await self.owner.lists.settle()
            else:
                await self.owner.refresh()

    # --- logins ---------------------------------------------------------------------------------

    @property
    def login_tool(self) -> Tool | None:
        """What a model calls to begin a login, or to learn why the server refuses access."""
        access = self.owner.access
        if access is not None and access.wanted is not None:
            return login_tool(self.name)
        # It stays while the server is asked again after a login.
        refused = isinstance(self.owner.problem, AuthNeeded)
        return login_tool(self.name, possible=not self._hopeless) if refused else None

    @property
    def _hopeless(self) -> bool:
        """Whether the server refuses access and no login in a browser would help."""
        access = self.owner.access
        return isinstance(self.owner.problem, AuthNeeded) and (access is None or access.hopeless)

    async def login(self) -> Login:
        """A login that waits for a person.

        Raises:
            ConfigError: the server is not one that can be logged in to.
            AuthNeeded: no login can be had, and why.
        """
        if self.owner.access is None:
            with suppress(MooringError):
                await self.owner.refresh()  # the server tells where to log in when it is asked
        login = await (await self._access()).begin()
        login.on_success, login.settle = self._logged_in, self._asked_again
        return login

    async def logout(self) -> bool | None:
        """Forget the login; see `Access.logout`.

        Raises:
            ConfigError: the server is not one that can be logged in to.
        """
        done = await (await self._access()).logout()
        if self.owner.live is not None:
            self.owner.live.channel.die("logged out")
        return done

    async def _access(self) -> Credentials:
        if self.owner.access is None and self.state != "disabled":
            await self.owner.introduce()
        if self.owner.access is not None:
            return self.owner.access
        if self.config.url is None:
            how = "it is a program on this machine: give it what it needs in `env`"
        elif self.state == "disabled":
            how = "it is disabled"
        else:
            how = "its credentials are in `headers`, or `auth` says 'none'"
        raise ConfigError(f"there is no login to {self.name!r}: {how}", file=self.config.file)

    async def _asked_again(self) -> None:
        """Wait for the attempt that `_logged_in` asked for."""
        if self.owner.live is not None:
            await self.owner.refresh()
        else:
            await self.owner.connected(None, None)

    def _logged_in(self) -> None:
        if self.owner.live is None:
            self.owner.kick()
        else:
            self.owner.lists.mark_dirty()

    async def _authenticate(self, timeout: float | None) -> Result:
        from mooring.auth.login import authenticate

        started = concurrency.monotonic()
        if self._hopeless:
            how = "A login in a browser is not possible: ask the user to correct the configuration."
            raise AuthNeeded(f"{self.owner.problem}. {how}", server=self.name)
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
        """The server's answer to a call of its tool `tool`.

        Raises:
            CallError, AuthNeeded: there is no answer of the tool; `outcome` tells whether it may have run.
        """
        if tool == LOGIN:
            return await self._authenticate(timeout)
        started = concurrency.monotonic()
        config, carrier = self.owner.config, self._carrier
        limit, idle = config.call_limits(timeout)
        end = started + limit
        if (wanted := self._lanes.wanted(tool)) is not None:
            carrier = await self._lanes.carrier(wanted, end)
        # A token always goes along: a server that reports progress must not be cut off as silent.
        options: dict[str, Any] = {"idle": idle, "on_progress": on_progress or _unheard, "meta": meta}
        options["again"] = any(fnmatchcase(tool, glob) for glob in config.idempotent)
        try:
            params = _call_params(carrier, tool, arguments)
            raw = await carrier.ask("tools/call", params, tool, end, **options)
            self._used()
            if not whole(raw):
                raw = await InputRounds(carrier, tool, end).finish(raw, "tools/call", params, options)
        except ServerError as problem:
            other = None
            if options["again"]:
                other = await self._lanes.asking_by_result(tool, carrier, problem, end)
            if other is None:
                if (note := self._lanes.learn(tool, carrier, problem.said)) is not None:
                    problem.args, problem.said = (f"{problem}\n{note}",), f"{problem.said}\n{note}"
                raise
            carrier = other
            params = _call_params(carrier, tool, arguments)
            raw = await self._asked(carrier, "tools/call", params, tool, end, options)
        result = wire.result(self.name, tool, raw, concurrency.monotonic() - started)
        if result.is_error and (note := self._lanes.learn(tool, carrier, result.text)) is not None:
            blocks = (*result.blocks, Block({"type": "text", "text": note}))
            result = replace(result, blocks=blocks)
        return result

    async def era_for(self, tool: str, wanted: Era, timeout: float | None = None) -> Era | None:
        """The era in which a call of `tool` is made for a caller who wants `wanted`; connects if need be.
        None when there is no connection."""
        end = concurrency.monotonic() + self.config.call_limits(timeout)[0]
        carrier = await self._lanes.carrier(self._lanes.learned(tool, wanted), end)
        live = carrier.owner.live
        return None if live is None else live.peer.era

    async def ping(self, timeout: float) -> float:
        """Seconds that one round trip takes; connecting and answering have `timeout` seconds together.

        Raises:
            CallError, AuthNeeded: there was none.
        """
        end = concurrency.monotonic() + timeout
        try:
            live = await self._carrier.live(end)
        except WireError as fault:
            raise_alone(call_error(fault, self.name, "ping", 0.0, None, self.owner.redact))
        started = concurrency.monotonic()
        # The 2026 era has no ping; discovery is its cheapest question.
        method = "ping" if live.peer.era == "legacy" else "server/discover"
        await self._carrier.ask(method, {}, method, end)
        return concurrency.monotonic() - started

    async def ask(
        self, method: str, params: dict[str, Any], *, about: str, timeout: float | None = None
    ) -> dict[str, Any]:
        """The raw result of any other request; `about` is what an error names.

        Raises:
            CallError, AuthNeeded: no result came.
        """
        limit, idle = self.config.call_limits(timeout)
        end = concurrency.monotonic() + limit
        carrier = self._carrier
        if method in ASKING:
            carrier = await self._lanes.carrier(self._lanes.wanted(), end)
        try:
            return await self._asked(carrier, method, params, about, end, {"idle": idle})
        except ServerError as problem:
            if method not in ASKING:
                raise
            other = await self._lanes.asking_by_result(None, carrier, problem, end)
            if other is None:
                raise
        return await self._asked(other, method, params, about, end, {"idle": idle})

    async def _asked(
        self,
        carrier: RequestSender,
        method: str,
        params: dict[str, Any],
        about: str,
        end: float,
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """The raw result of one request on this connection, after all questions of the server."""
        raw = await carrier.ask(method, params, about, end, **options)
        self._used()
        if whole(raw):
            return raw
        return await InputRounds(carrier, about, end).finish(raw, method, params, options)

    def _used(self) -> None:
        freshness = self.owner.freshness
        if freshness is not None and not freshness.in_use:
            freshness.use()

    async def watch(self, uri: str, timeout: float | None = None) -> None:
        """Have changes of a resource told as `ResourceUpdated`, on this connection and the next ones.

        Raises:
            CallError, AuthNeeded: the server does not do that.
        """
        async with self._told("resources/subscribe", timeout):
            known = uri in self.owner.notices.watched
            self.owner.notices.watched.add(uri)
            try:
                assert self.owner.notices.watching is not None
                await self.owner.notices.watching.add(uri)
                await self._lanes.watch(uri, wanted=True)
            except BaseException:
                if not known:
                    self.owner.notices.watched.discard(uri)
                raise

    async def unwatch(self, uri: str, timeout: float | None = None) -> None:
        """Have them told no longer.

        Raises:
            CallError, AuthNeeded: the server did not take the word; they are not told all the same.
        """
        self.owner.notices.watched.discard(uri)
        if self.owner.live is not None:
            async with self._told("resources/unsubscribe", timeout):
                assert self.owner.notices.watching is not None
                await self.owner.notices.watching.remove(uri)
                await self._lanes.watch(uri, wanted=False)

    @asynccontextmanager
    async def _told(self, about: str, timeout: float | None) -> AsyncGenerator[None]:
        """A live connection, and its faults in our words."""
        started = concurrency.monotonic()
        try:
            await self._carrier.live(started + self.config.call_limits(timeout)[0])
            yield
        except WireError as fault:
            elapsed, words = concurrency.monotonic() - started, fault.obituary
            raise_alone(call_error(fault, self.name, about, elapsed, words, self.owner.redact))


async def _unheard(progress: float, total: float | None, message: str | None) -> None:
    pass


def _call_params(carrier: RequestSender, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `tools/call` on this connection."""
    live = carrier.owner.live
    params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
    if live is not None and tool in live.deferred:
        params["task"] = {}
    return params
