"""One conversation with a host: the tools that it sees, and its calls."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self

from mooring import concurrency
from mooring.concurrency import EventHub, OrderedCallback, within
from mooring.config.logs import logger
from mooring.core.builtin_tools import READ, READ_SKILL, RESOURCE_TOOLS, SCRIPT_NAMES
from mooring.core.callers import CALL as CALL_NUMBER
from mooring.core.calls import checked_arguments, failed_result, hinted, not_called, provider_failed
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
from mooring.core.events import CallFinished, CallStarted, ScriptCalled
from mooring.core.render import plain
from mooring.core.search import Index, Ranker
from mooring.core.text import nearest
from mooring.core.transforms import CallContext, TransformError, call_context
from mooring.core.types import EMPTY, Absence, Block, Result, Tool
from mooring.errors import CallError, MooringError, UnknownTool
from mooring.extensions.skills import Skills, SkillVerbs
from mooring.local import OnProgress, Progress, Provider
from mooring.policy import PolicyEnforcer, keep_planned
from mooring.prompts import Prompts
from mooring.resources import Resources
from mooring.results.pipeline import ResultPipeline, RuleBook, Rules
from mooring.runtime import Runtime
from mooring.servers import waiting
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.launcher import OwnHeaders
from mooring.servers.manager import ServerManager
from mooring.servers.reconfigure import Reconfigurer
from mooring.servers.sessions import SHARED, HostSessions, SessionIdentity
from mooring.servers.state import CurrentConfig
from mooring.telemetry import AuditManager, CallRecord, call_facts, tool_call, traced

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.config.sections import ScriptSettings
    from mooring.core.redact import Redactor
    from mooring.policy.guards import Guard, GuardChain
    from mooring.transport.forwarding import ClientBridge

log = logger("mooring.session")

READING = (*RESOURCE_TOOLS, READ_SKILL)
DISCOVERY_NAMES = frozenset(tool.name for tool in DISCOVERY)
ARRIVAL_TIMEOUT = 60.0
"""Seconds that a call without a timeout waits for a server that may provide an unknown tool."""
_UNOBSERVED = nullcontext[CallRecord | None](None)


class HostRuntime:
    """The parts of a host that sessions, the gateway and the command line use."""

    def __init__(
        self,
        *,
        current: CurrentConfig,
        events: EventHub,
        servers: ServerManager,
        builder: CatalogBuilder,
        policy: PolicyEnforcer,
        guards: Sequence[Guard],
        results: ResultPipeline,
        audits: AuditManager,
        sessions: HostSessions[Session],
        resources: Resources,
        prompts: Prompts,
        skills: Skills,
        config: Reconfigurer,
        relay: ClientBridge | None,
        redact: Redactor,
    ) -> None:
        self._redact = redact
        self.current, self.servers, self.builder, self.results = current, servers, builder, results
        self.audits, self.resources, self.config, self.relay = audits, resources, config, relay
        self.skills = skills
        self._events, self._prompts, self.sessions = events, prompts, sessions
        self._rules = RuleBook()
        self.emit = events.emit
        self.check_running = servers.check_started
        self.policy, self._guards = policy, tuple(guards)
        self._chain: GuardChain | None = None
        self.allows, self.permit = policy.allows, policy.permit
        self.plans, self.denies, self.approve = policy.plans, policy.denies, policy.approve
        self._workers: Any = None
        self.exposure, self.withheld = builder.exposure, builder.withheld

    @property
    def catalog(self) -> Catalog:
        return self.builder.catalog

    @property
    def index(self) -> Index:
        return self.builder.index

    @property
    def ranker(self) -> Ranker | None:
        return self.current.ranker

    @property
    def audit(self) -> Audit | None:
        return self.audits.log

    @property
    def discovery(self) -> Mode:
        return self.current.discovery

    @property
    def observed(self) -> bool:
        return self._events.delivers(CallStarted, CallFinished, ScriptCalled)

    @property
    def scripts(self) -> ScriptSettings:
        return self.current.config.scripts

    @property
    def workers(self) -> Any:
        if self._workers is None:
            self._workers = import_module("mooring.scripts.workers").Workers()
        return self._workers

    async def end_scripts(self) -> None:
        """End the processes that run scripts."""
        if self._workers is not None:
            await self._workers.close()

    @property
    def guards(self) -> GuardChain | None:
        if not self._guards and self.current.config.guards is None:
            return None
        if self._chain is None:
            from mooring.policy.guards import GuardChain  # lazy: most hosts have none

            self._chain = GuardChain(
                self._guards,
                current=self.current,
                redact=self._redact,
                exempt=frozenset((OWNER,)),
                emit=self.emit,
            )
        return self._chain

    def context(self, session: Session) -> CallContext:
        return call_context(session.id, session.agent_id, session.principal)

    @property
    def by_caller(self) -> bool:
        return self.policy.by_caller

    def shown_to(
        self, session: Session, tools: tuple[Tool, ...], context: CallContext | None = None
    ) -> tuple[Tool, ...]:
        if not self.by_caller:
            return tools
        caller = context or self.context(session)
        return tuple(tool for tool in tools if self.policy.visible(tool, caller))

    def rules(self, server: str) -> Rules:
        return self._rules.rules(server, self.current.config, self.servers.configs.get(server))

    def provider(self, name: str, session: Session) -> Provider:
        return self.sessions.provider(name, session)

    async def leave(self, session: Session) -> None:
        await self.sessions.end(session, "left")

    async def get_prompt(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        return await self._prompts.result(tool.server, tool.remote_name, arguments, timeout)

    async def arrival(self, tool: str, timeout: float | None, view: waiting.ToolView | None = None) -> None:
        """Wait until `view` (default: the catalog) has `tool`, or until no server can still provide it."""
        with within(ARRIVAL_TIMEOUT if timeout is None else timeout):
            hidden = view is None and self.withheld(tool) is not None
            if tool == READ_SKILL and view is None and tool not in self.builder.catalog.tools:
                await waiting.gather(
                    self.servers, self.servers.unlisted(), None
                )  # their skills are not known
            await waiting.await_tool(self.servers, tool, view or self.builder, withheld=hidden)

    def absence(self, tool: str, view: waiting.ToolView | None = None) -> Absence | None:
        """Return the server in `view` (default: all) that may own `tool` and is not connected."""
        return waiting.absence(self.servers, tool, view or self.builder)


class Session(SessionIdentity, SkillVerbs):
    """One conversation: made by `Host.session`. Sessions are cheap: use one for each conversation.

    Use it as `async with host.session("alice") as session` to close its own connections at the end; otherwise
    they are closed when it has been idle for `session_ttl` seconds.
    """

    __slots__ = ("_discovery", "_entered", "_exposure", "_offers_call", "_runtime", "_scripts", "_shown")

    def __init__(
        self,
        runtime: Runtime,
        session_id: str = SHARED,
        *,
        agent_id: str | None = None,
        headers: Mapping[str, OwnHeaders] = EMPTY,
        principal: str | None = None,
        discovery: Mode | None = None,
        scripts: bool | Literal["only"] | None = None,
    ) -> None:
        super().__init__(session_id, agent_id=agent_id, headers=headers, principal=principal)
        self._runtime = runtime
        self._entered = 0
        self._discovery: Mode | None = checked_mode(discovery)
        self._offers_call = False
        """Whether `tools_call` has been listed."""
        self._exposure: VisibleTools | None = None
        self._shown = ShownSchemas()
        self._scripts: Any = scripts
        """The setting of this session, or its script tools after their first use."""

    async def __aenter__(self) -> Self:
        self._entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections of this session when the last block that entered it ends."""
        self._entered -= 1
        if self._entered <= 0:
            await self._runtime.leave(self)

    def __repr__(self) -> str:
        parts = [repr("shared" if self.id == SHARED else self.id)]
        parts += [f"{name}={value!r}" for name in ("agent_id", "principal") if (value := getattr(self, name))]
        if self.headers:
            parts.append(f"headers={sorted(self.headers)}")
        return f"<Session {' '.join(parts)}>"

    @property
    def catalog(self) -> Catalog:
        """Everything that this caller may call now, whether `tools()` lists it or not."""
        self._runtime.check_running()
        whole = self._runtime.catalog
        if not self._runtime.by_caller:
            return whole
        return whole.only(tool.name for tool in self._runtime.shown_to(self, tuple(whole.tools.values())))

    @property
    def discovery(self) -> Mode:
        """When `tools()` lists the discovery tools instead of the whole catalog: `auto` (if the catalog has
        more than `discovery_budget` tokens), `always` or `never`."""
        return self._discovery or self._runtime.discovery

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]:
        """Return the tools to show to a model: the whole catalog, or the discovery tools and the selected
        ones.

        The choice is made on the first call. After that the list only grows at its end, so that the prompt
        cache of a model provider stays valid. Tools that are not listed can be called as well.

        Args:
            complete: For frameworks that refuse calls of tools that are not in their list. With `discovery`
                `auto`, the list is the whole catalog whatever its size; with `always`, it includes
                `tools_call`.
        """
        self._runtime.check_running()
        self._used = concurrency.monotonic()
        if self._exposure is None or (complete and self._exposure.discovery and self.discovery == "auto"):
            mode = self.discovery
            self._exposure = self._runtime.exposure("never" if complete and mode == "auto" else mode)
            self._shown = self._shown.plus(self._exposure.names)
        # The tools that read resources appear with the first resource, also beside the discovery tools.
        catalog = self._runtime.catalog
        more = filter(catalog.tools.__contains__, READING) if self._exposure.discovery else catalog.tools
        self._shown = self._shown.plus(more)
        if self._runtime.results.has(self.id):
            self._shown = self._shown.plus([READ.name])
        self._offers_call = self._offers_call or (complete and self._exposure.discovery)
        tools = self._shown.tools(catalog, discovery=self._exposure.discovery, with_call=complete)
        tools = self._runtime.shown_to(self, tools)
        return scripts.shown(self.catalog, tools) if (scripts := self._script_tools()) else tools

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
        """Call a tool and return its result. A failure is a result with `is_error` too, unless `check` is
        set.

        A result above the budget is stored and returned as a preview; the tool `result_read` reads the rest.

        Args:
            name: The name of the tool in the catalog, or of a built-in tool.
            arguments: The arguments of the tool: a mapping of JSON values. Default: none.
            timeout: Seconds for the whole call, including the connection. Default: `call_timeout` of the
                server.
            check: Raise an exception if the call fails.
            on_progress: Called with progress, total and message of each report of the server, in order. A
                plain function runs in a thread, a coroutine function on the event loop.
            budget: Tokens of the result to show, estimated; 0: no limit. Default: `result_budget`.

        Raises:
            RuntimeError: The host has not been entered.
            MooringError: Only with `check=True`: the tool returned an error, or there is no answer.
        """
        runtime = self._runtime
        runtime.check_running()
        if name == CALL.name and self._offers_call:
            name, arguments = unwrapped(arguments)
        reports = None if on_progress is None else OrderedCallback(on_progress, "on_progress", timeout)
        audit, work = runtime.audit, self._call(name, arguments, timeout, reports, budget)
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

    async def run_script(
        self, code: str, timeout: float = 60.0, *, on_progress: OnProgress | None = None
    ) -> Result:
        """Run a program that calls tools. Needs the extra `mooring[scripts]`; see docs/scripts.md.

        Args:
            code: The program, in Python. Each tool is an async function with keyword arguments.
            timeout: Seconds for the program and its calls, without the wait for an approval. Default: 60.
            on_progress: Called after each call inside, with the number of finished calls.

        Returns:
            `structured`: the value of the last expression; `text`: what was printed, and that value.
        """
        self._runtime.check_running()
        run: Any = import_module("mooring.scripts.tools").run_script
        return await run(self, self._runtime, code, timeout, on_progress)

    def _script_tools(self) -> Any:
        """Return the script tools of this session; a false value if they are not enabled."""
        given = self._runtime.scripts.enabled if self._scripts is None else self._scripts
        if given is True or given == "only":
            given = self._scripts = import_module("mooring.scripts.tools").ScriptTools(given)
        return given

    async def _call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
        on_progress: Progress | None,
        budget: int | None,
        tool: Tool | None = None,
    ) -> Result:
        """Call `tool`, or the tool that models see under this name."""
        started, runtime = time.monotonic(), self._runtime
        try:
            if tool is None:
                if name == CALL.name and self._offers_call:
                    problem = "tools_call needs the 'name' of another tool."
                    raise CallError(problem, server=OWNER, tool=name, outcome="not sent")
                if name in DISCOVERY_NAMES:
                    return self._discover(name, arguments, started)
                if name in SCRIPT_NAMES and (scripts := self._script_tools()):
                    return await scripts.call(self, runtime, name, arguments, timeout, on_progress, budget)
                if name == READ.name:
                    return await self._read(arguments, budget)
                tool = runtime.catalog.tools.get(name) or await self._find(name, timeout)
            checked, guards = checked_arguments(tool, arguments), runtime.guards
            if tool.shape is not None or guards is not None:
                result = await self._shaped_call(tool, checked, guards, started, timeout, on_progress)
            else:
                if not runtime.allows(tool):
                    await runtime.permit(tool, checked, runtime.context(self), _left(started, timeout))
                result = await self._send(tool, checked, _left(started, timeout), on_progress)
        except MooringError as problem:
            result = failed_result(problem, name, tool, time.monotonic() - started)
        results = runtime.results
        if results.recording:
            await results.record(result, arguments=arguments, session_id=self.id, agent_id=self.agent_id)
        if tool is None:
            return result
        if result.is_error:
            result = hinted(result, tool, arguments)
        rules = runtime.rules(tool.server)
        limit = rules.budget if budget is None else budget
        if plain(result, limit) and (tool.output_schema is None or rules.output_schema == "off"):
            return result
        return await results.keep(
            tool, result, session=self.id, budget=limit, conformance=rules.output_schema
        )

    async def _shaped_call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        guards: GuardChain | None,
        started: float,
        timeout: float | None,
        on_progress: Progress | None,
    ) -> Result:
        """Call a tool with its transform and the guards. The policy sees the arguments as they are sent."""
        runtime, given = self._runtime, arguments
        context = runtime.context(self)
        if tool.shape is not None:
            try:
                arguments = tool.shape.sent(arguments, context)
            except TransformError as problem:
                raise not_called(tool, str(problem)) from None
        if guards is not None:
            arguments = await guards.before(tool, arguments, context, last=False)
        keep_planned(tool, given, arguments)
        if runtime.audit is not None:
            runtime.audit.sending(arguments)
        if not runtime.allows(tool):
            await runtime.permit(tool, arguments, context, _left(started, timeout))
        if guards is not None:
            arguments = await guards.before(tool, arguments, context, last=True)
        result = await self._send(tool, arguments, _left(started, timeout), on_progress)
        return result if guards is None else await guards.after(tool, arguments, context, result)

    def _discover(self, name: str, arguments: Mapping[str, Any] | None, started: float) -> Result:
        given = arguments if isinstance(arguments, Mapping) else EMPTY
        runtime = self._runtime
        reply = answer(name, given, self.catalog, runtime.index, ranker=runtime.ranker)
        self._shown = self._shown.plus(reply.selected)
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
        limit = self._runtime.rules(OWNER).budget if budget is None else budget
        return await self._runtime.results.read(given, session=self.id, budget=limit)

    async def _find(self, name: str, timeout: float | None) -> Tool:
        """Wait for a tool that is not in the catalog; raise UnknownTool, or the reason why it is hidden."""
        runtime = self._runtime
        await runtime.arrival(name, timeout)
        try:
            return runtime.catalog.tools.get(name) or self.catalog.route(name)
        except UnknownTool as unknown:
            if (withheld := runtime.withheld(name)) is not None:
                raise withheld from None
            near = unknown.suggestions or nearest(name, [tool.name for tool in self.tools()])
            if (absent := runtime.absence(name)) is None:
                raise UnknownTool(unknown.name, near) from None
            raise UnknownTool(
                unknown.name, near, hint=absent.hint, server=absent.server, state=absent.state
            ) from None

    async def _send(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        timeout: float | None,
        on_progress: Progress | None,
    ) -> Result:
        started, runtime = time.monotonic(), self._runtime
        self._calls += 1
        try:
            observed = runtime.observed or traced()
            with self._observe(tool) if observed else _UNOBSERVED as record:
                if tool.verb != "call":
                    result = await runtime.get_prompt(tool, arguments, timeout)
                else:
                    meta = self._meta(tool.server, EMPTY if record is None else record.meta)
                    provider = runtime.provider(tool.server, self)
                    while True:
                        left = _left(started, timeout)
                        try:
                            result = await provider.call(
                                tool.remote_name, arguments, timeout=left, on_progress=on_progress, meta=meta
                            )
                            break
                        except CallError as problem:
                            if problem.outcome != "not sent":
                                raise
                            failed, provider = provider, runtime.provider(tool.server, self)
                            if provider is failed:  # else it was replaced before the call was sent
                                raise
                        except MooringError:
                            raise
                        except Exception as bug:
                            log.error("provider failed: tool=%s", tool.name, exc_info=bug)
                            raise provider_failed(tool, bug) from None
                if record is not None:
                    record.ended(result)
                return result
        finally:
            self._calls -= 1
            self._used = concurrency.monotonic()

    def _meta(self, server: str, meta: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the metadata of a request: with the ids of this session if the server is to receive them."""
        if not self._runtime.rules(server).passthrough:
            return meta
        agent = {} if self.agent_id is None else {"agent_id": self.agent_id}
        return {**meta, "session_id": self.id, **agent}

    @contextmanager
    def _observe(self, tool: Tool) -> Generator[CallRecord]:
        """Emit the events of a call, and record its span and duration."""
        started, error = time.monotonic(), None
        about = call_facts(tool, self.id, self.principal)
        self._runtime.emit(CallStarted(**about))
        number = CALL_NUMBER.set(about["call"])
        with tool_call(tool, self.id) as record:
            try:
                yield record
            except BaseException as problem:
                error = type(problem).__name__
                record.refused(problem)
                raise
            finally:
                CALL_NUMBER.reset(number)
                took, failed = time.monotonic() - started, record.error is not None
                self._runtime.emit(CallFinished(**about, duration=took, is_error=failed, error=error))


def _left(started: float, timeout: float | None) -> float | None:
    return None if timeout is None else max(started + timeout - time.monotonic(), 0.0)
