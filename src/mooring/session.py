"""One conversation: the tools it sees, and the way of a call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from mooring import concurrency
from mooring.concurrency import OrderedCallback
from mooring.config.logs import logger
from mooring.core.builtin_tools import READ
from mooring.core.catalog import Catalog
from mooring.core.discovery import (
    CALL,
    DISCOVERY,
    OWNER,
    Mode,
    ShownSchemas,
    VisibleTools,
    answer,
    checked_mode,
    unwrapped,
)
from mooring.core.events import CallFinished, CallStarted, Event
from mooring.core.json_values import not_json
from mooring.core.render import plain
from mooring.core.search import Index, Ranker
from mooring.core.types import EMPTY, Absence, Block, Result, Tool
from mooring.errors import CallError, MooringError, UnknownTool
from mooring.local import OnProgress, Progress, Provider
from mooring.results.pipeline import ResultPipeline, Rules
from mooring.servers.launcher import OwnHeaders
from mooring.telemetry import tool_call, traced

if TYPE_CHECKING:
    from mooring.audit import Audit

log = logger("mooring.session")

READING = ("list_mcp_resources", "read_mcp_resource")
DISCOVERY_NAMES = frozenset(tool.name for tool in DISCOVERY)
SHARED = "00000000-0000-0000-0000-000000000000"
"""Id of the session that everybody shares who asks for none."""


class Runtime(Protocol):
    """What a session needs of its host."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def index(self) -> Index: ...

    @property
    def ranker(self) -> Ranker | None: ...

    @property
    def keeper(self) -> ResultPipeline: ...

    @property
    def audit(self) -> Audit | None:
        """Where calls are noted, if they are."""
        ...

    def rules(self, server: str) -> Rules:
        """What holds for the calls of a server."""
        ...

    @property
    def discovery(self) -> Mode:
        """Whether sessions that do not say otherwise show the discovery tools."""
        ...

    def exposure(self, mode: Mode) -> VisibleTools:
        """What a new session starts with."""
        ...

    def provider(self, name: str, session: Session) -> Provider:
        """Whoever runs the tools of `name` for this session."""
        ...

    async def leave(self, session: Session) -> None:
        """End what belongs to this session alone."""
        ...

    async def act(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        """The outcome of a tool that is no plain call."""
        ...

    async def arrival(self, tool: str, timeout: float | None) -> None:
        """Wait until `tool` is there, or no server could still bring it."""
        ...

    def absence(self, tool: str) -> Absence | None:
        """Why `tool` may be missing: a server that could own the name and is not connected."""
        ...

    def allows(self, tool: Tool) -> bool:
        """Whether it may be called without asking anybody."""
        ...

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], session: str, timeout: float | None
    ) -> None:
        """Return if the call may be made; raise `PolicyDenied` if not."""
        ...

    def withheld(self, tool: str) -> MooringError | None:
        """Why a tool that was there is not shown, if it was set aside."""
        ...

    def check_running(self) -> None:
        """Raise RuntimeError before the host is entered."""
        ...

    @property
    def listened_to(self) -> bool:
        """Whether anybody would hear of a call."""
        ...

    def emit(self, event: Event) -> None: ...


class Session:
    """A view of the host for one conversation. Cheap: make as many as there are conversations."""

    __slots__ = (
        *("_discovery", "_entered", "_exposure", "_offers_call", "_reveal", "_shore"),
        *("agent_id", "busy", "headers", "id", "principal", "used"),
    )

    def __init__(
        self,
        shore: Runtime,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] = EMPTY,
        principal: str | None = None,
        discovery: Mode | None = None,
    ) -> None:
        self.id = session_id
        self.agent_id = agent_id
        self.principal = principal
        """Whose logins it uses at servers that are its alone; None: those of whoever runs the host."""
        self.headers = headers
        """By server: what this conversation sends beside, or in place of, the configured headers."""
        self.used = concurrency.monotonic()
        """When it was last of use, on the clock of `mooring.concurrency`."""
        self.busy = 0
        """Calls under way."""
        self._entered = 0
        self._shore = shore
        self._discovery: Mode | None = checked_mode(discovery)
        self._offers_call = False
        """Whether `tools_call` was listed."""
        self._exposure: VisibleTools | None = None
        self._reveal = ShownSchemas()

    async def __aenter__(self) -> Session:
        self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the connections that are this session's alone, when the last who entered it leaves."""
        self._entered -= 1
        if self._entered <= 0:
            await self._shore.leave(self)

    def __repr__(self) -> str:
        return f"Session(id={self.id!r}, agent_id={self.agent_id!r}, headers={sorted(self.headers)})"

    @property
    def catalog(self) -> Catalog:
        """Everything that can be called, shown or not."""
        return self._shore.catalog

    @property
    def discovery(self) -> Mode:
        """When this session shows the discovery tools instead of the whole catalog: `auto` (above
        `discovery_budget`), `always` or `never`."""
        return self._discovery or self._shore.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """What the model sees now: the whole catalog, or the discovery tools and what it has selected.

        Which of the two is decided on the first call, and the list only ever grows at its end, so
        that what a provider has cached of the prompt stays good. Tools that are not listed can be
        called nevertheless.

        Args:
            complete: For frameworks that refuse calls of tools they were not given. With `discovery`
                `auto`, the list is the whole catalog whatever its size; with `always`, it has `tools_call`.
        """
        self.used = concurrency.monotonic()
        if self._exposure is None or (complete and self._exposure.discovery and self.discovery == "auto"):
            mode = self.discovery
            self._exposure = self._shore.exposure("never" if complete and mode == "auto" else mode)
            self._reveal = self._reveal.plus(self._exposure.names)
        # The tools that read resources come when a server has some, and stand beside those of discovery.
        known = self._shore.catalog.tools
        more = filter(known.__contains__, READING) if self._exposure.discovery else known
        self._reveal = self._reveal.plus(more)
        if self._shore.keeper.has(self.id):
            self._reveal = self._reveal.plus([READ.name])
        self._offers_call = self._offers_call or (complete and self._exposure.discovery)
        return self._reveal.tools(self._shore.catalog, discovery=self._exposure.discovery, with_call=complete)

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
        """The outcome of one call, good or bad, as something to read.

        What is above the budget is kept, and shown as a preview; `result_read` gives the rest.

        Args:
            name: As the catalog has it.
            arguments: What the tool is given, and all that is sent to its server.
            timeout: Seconds that it may take.
            check: Raise when it fails.
            on_progress: Called with progress, total and message for each step that the server reports, in
                order. A plain function runs in a thread, a coroutine function on the event loop.
            budget: Estimated tokens that may be shown, if not as configured; 0: everything.

        Raises:
            RuntimeError: the host was not entered.
            MooringError: only with `check=True`: there is no answer of the tool, or the tool says that
                it failed.
        """
        self._shore.check_running()
        if name == CALL.name and self._offers_call:
            name, arguments = unwrapped(arguments)
        reports = None if on_progress is None else OrderedCallback(on_progress, "on_progress")
        audit, work = self._shore.audit, self._call(name, arguments, timeout, reports, budget)
        result = await (work if audit is None else audit.call(self, name, arguments, work))
        if reports is not None:
            await reports.delivered()
        if check and result.is_error:
            raise result.error or CallError(
                result.text or f"{result.tool!r} failed",
                server=result.server,
                tool=result.tool,
                elapsed=result.duration,
            )
        return result

    async def _call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
        on_progress: Progress | None,
        budget: int | None,
    ) -> Result:
        started = time.monotonic()
        tool: Tool | None = None
        try:
            if name == CALL.name and self._offers_call:
                problem = "tools_call needs the 'name' of another tool."
                raise CallError(problem, server=OWNER, tool=name, outcome="not sent")
            if name in DISCOVERY_NAMES:
                return self._discover(name, arguments, started)
            if name == READ.name:
                return await self._read(arguments, budget)
            tool = self._shore.catalog.tools.get(name) or await self._route(name, timeout)
            given = _checked(tool, arguments)
            if not self._shore.allows(tool):
                await self._shore.permit(tool, given, self.id, _left(started, timeout))
            result = await self._run(tool, given, _left(started, timeout), on_progress)
        except MooringError as problem:
            result = _refused(problem, name, tool, time.monotonic() - started)
        keeper = self._shore.keeper
        if keeper.recording:
            await keeper.record(result, arguments=arguments, session_id=self.id, agent_id=self.agent_id)
        if tool is None:
            return result
        rules = self._shore.rules(tool.server)
        most = rules.budget if budget is None else budget
        if plain(result, most) and (tool.output_schema is None or rules.output_schema == "off"):
            return result
        return await keeper.keep(tool, result, session=self.id, budget=most, conformance=rules.output_schema)

    def _discover(self, name: str, arguments: Mapping[str, Any] | None, started: float) -> Result:
        given = arguments if isinstance(arguments, Mapping) else EMPTY
        shore = self._shore
        reply = answer(name, given, shore.catalog, shore.index, ranker=shore.ranker)
        self._reveal = self._reveal.plus(reply.selected)
        return Result(
            server=OWNER,
            tool=name,
            blocks=(Block({"type": "text", "text": reply.text}),),
            structured=reply.structured,
            is_error=reply.is_error,
            duration=time.monotonic() - started,
        )

    async def _read(self, arguments: Mapping[str, Any] | None, budget: int | None) -> Result:
        given = arguments if isinstance(arguments, Mapping) else EMPTY
        most = self._shore.rules(OWNER).budget if budget is None else budget
        return await self._shore.keeper.read(given, session=self.id, budget=most)

    async def _route(self, name: str, timeout: float | None) -> Tool:
        """The tool of this name, once it is there."""
        await self._shore.arrival(name, timeout)
        try:
            return self._shore.catalog.route(name)
        except UnknownTool as unknown:
            if (withheld := self._shore.withheld(name)) is not None:
                raise withheld from None
            if (absent := self._shore.absence(name)) is None:
                raise
            raise UnknownTool(
                unknown.name, unknown.suggestions, hint=absent.hint, server=absent.server, state=absent.state
            ) from None

    async def _run(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        timeout: float | None,
        on_progress: Progress | None,
    ) -> Result:
        self.busy += 1
        try:
            if not self._shore.listened_to and not traced():
                return await self._send(tool, arguments, timeout, on_progress, EMPTY)
            return await self._run_watched(tool, arguments, timeout, on_progress)
        finally:
            self.busy -= 1
            self.used = concurrency.monotonic()

    async def _run_watched(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        timeout: float | None,
        on_progress: Progress | None,
    ) -> Result:
        """The same, told to whoever listens."""
        started = time.monotonic()
        self._shore.emit(CallStarted(server=tool.server, tool=tool.remote_name, session=self.id))
        error, failed = None, True
        with tool_call(tool, self.id) as record:
            try:
                result = await self._send(tool, arguments, timeout, on_progress, record.meta)
                failed = result.is_error
                record.ended(result)
                return result
            except BaseException as problem:
                error = type(problem).__name__
                record.refused(problem)
                raise
            finally:
                self._shore.emit(
                    CallFinished(
                        server=tool.server,
                        tool=tool.remote_name,
                        session=self.id,
                        duration=time.monotonic() - started,
                        is_error=failed,
                        error=error,
                    )
                )

    async def _send(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        timeout: float | None,
        on_progress: Progress | None,
        meta: Mapping[str, Any],
    ) -> Result:
        if self._shore.rules(tool.server).passthrough:
            meta = {**meta, "session_id": self.id}
            if self.agent_id is not None:
                meta["agent_id"] = self.agent_id
        if tool.verb != "call":
            return await self._shore.act(tool, arguments, timeout)
        started, provider = time.monotonic(), self._shore.provider(tool.server, self)
        while True:
            left = _left(started, timeout)
            try:
                return await provider.call(
                    tool.remote_name, arguments, timeout=left, on_progress=on_progress, meta=meta
                )
            except CallError as problem:
                if problem.outcome != "not sent":
                    raise
                old, provider = provider, self._shore.provider(tool.server, self)
                if provider is old:  # no other has taken its place before anything was sent
                    raise
            except MooringError:
                raise
            except Exception as bug:
                log.exception("provider %s failed tool=%s", tool.server, tool.remote_name)
                # The text of a foreign exception may hold anything; it stays in the log.
                raise CallError(
                    f"{tool.name!r} failed: provider {tool.server!r} raised {type(bug).__name__}; "
                    "the log has the details",
                    server=tool.server,
                    tool=tool.remote_name,
                    outcome="unknown",
                ) from None


def _left(started: float, timeout: float | None) -> float | None:
    return None if timeout is None else max(started + timeout - time.monotonic(), 0.0)


def _checked(tool: Tool, arguments: object) -> Mapping[str, Any]:
    """Return the arguments of a call if they can be sent: an object of JSON values.

    Raises:
        CallError: they cannot.
    """
    if arguments is None:
        return EMPTY
    if not isinstance(arguments, Mapping):  # models send anything
        raise _unfit(tool, f"arguments must be an object, not {type(arguments).__name__}")
    given = cast("Mapping[str, Any]", arguments)
    if problem := not_json(given):
        raise _unfit(tool, f"the arguments are not JSON: {problem}")
    return given


def _unfit(tool: Tool, problem: str) -> CallError:
    return CallError(
        f"{tool.name!r} was not called: {problem}",
        server=tool.server,
        tool=tool.remote_name,
        outcome="not sent",
    )


def _refused(problem: MooringError, name: str, tool: Tool | None, duration: float) -> Result:
    return Result(
        server=tool.server if tool else "",
        tool=tool.remote_name if tool else name,
        blocks=(Block({"type": "text", "text": str(problem)}),),
        is_error=True,
        duration=duration,
        error=problem,
    )
