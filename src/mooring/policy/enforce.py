"""Decide whether a call may be made: lists, rules over its arguments, and an external decision."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from operator import is_
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.sections import JointPolicy, OwnPolicy
from mooring.core.events import ApprovalAsked, CallDenied, Event
from mooring.core.names import OWNER, Style, assign
from mooring.core.rules import Decision, Facts, Residual, Verdict, compile_rules, strictest
from mooring.core.types import Snapshot, Tool, ToolCall
from mooring.core.value import replace
from mooring.errors import TELL_USER, ConfigError, PolicyDenied
from mooring.policy.approvals import (
    ANSWER_TIMEOUT,
    ApprovalRequest,
    Approver,
    approved_by,
    is_planned,
    note_approval,
)

if TYPE_CHECKING:
    from mooring.config.shaping import Rule
    from mooring.core.transforms import CallContext
    from mooring.policy.external import DecisionService
    from mooring.servers.state import CurrentConfig

log = logger("mooring.policy")


_MOST_PLANS = 20_000
_MOST_DECISIONS = 10_000
_ABSENT = object()
_CALLER = r"\b(?:principal|profile|now)\b"

Decide = Callable[[ToolCall], "Decision | Verdict | bool | Awaitable[Decision | Verdict | bool]"]
"""Decides about a call: a decision, its verdict, True (allow) or False (deny)."""


class _Plan:
    """The decisions of the policies about one tool, as far as they are known without arguments."""

    __slots__ = ("_used", "decision", "joint", "only", "otherwise", "variants")

    def __init__(self, joint: JointPolicy, variants: Sequence[tuple[Tool, tuple[Residual, ...]]]) -> None:
        self.joint, self.variants = joint, variants
        """`variants`: the tool, and with its original annotations if a transform changed them."""
        self.otherwise = strictest(
            [joint.decide(tool, [(rules.final,) for rules in residuals]) for tool, residuals in variants]
        )
        """The decision if no undecided rule applies."""
        settled = all(rules.decided for _, residuals in variants for rules in residuals)
        self.decision = self.otherwise if settled else None
        undecided = [rules for _, residuals in variants for rules in residuals if rules.rules]
        self.only = undecided[0] if len(variants) == len(undecided) == 1 else None
        """The only policy with undecided rules: the usual case."""
        timed = any("now" in rule.variables for rules in undecided for rule in rules.rules)
        used = [rules.arguments for rules in undecided]
        self._used = None if timed or None in used else frozenset[str]().union(*filter(None, used))
        """The arguments that decide, with the caller; None if the decision is not remembered."""

    def key(self, arguments: Mapping[str, Any], context: CallContext) -> tuple[object, ...] | None:
        """Return everything that the decision about a call depends on; None if it is not remembered."""
        if self._used is None:
            return None
        values = [arguments.get(name, _ABSENT) for name in self._used]
        if not all(map(_short, values)):
            return None
        # With the classes, because 1 and True are equal.
        return (self, context.principal, context.profile, *values, *map(type, values))

    def decide(self, facts: Facts) -> Decision:
        """Return the decision about one call."""
        if (only := self.only) is not None and only.decide(facts) is only.final:
            return self.otherwise
        outcomes, applied = list[list[Decision | None]](), False
        for tool, residuals in self.variants:
            known = facts.about(tool.annotations)
            ruled = [rules.decide(known) if rules.rules else rules.final for rules in residuals]
            applied = applied or any(one is not own.final for one, own in zip(ruled, residuals, strict=True))
            outcomes.append(ruled)
        if not applied:
            return self.otherwise
        each = zip(self.variants, outcomes, strict=True)
        return strictest([self.joint.decide(tool, [(one,) for one in ruled]) for (tool, _), ruled in each])

    def may_ask(self) -> str | None:
        """Return why some calls may need approval, whatever the caller and the arguments are; else None."""
        if self.otherwise.verdict != "allow":
            return self.otherwise.reason
        undecided = [
            rule.decision for _, residuals in self.variants for one in residuals for rule in one.rules
        ]
        return next((one.reason for one in undecided if one.verdict == "ask"), None)

    def settled(self, facts: Facts) -> bool:
        """Return whether these facts are enough for a decision."""
        return all(
            rules.with_facts(facts.about(tool.annotations)).decided
            for tool, residuals in self.variants
            for rules in residuals
        )

    def most_permissive(self, facts: Facts | None = None) -> Decision:
        """Return the most permissive decision that is possible, whatever the arguments are."""
        found = list[Decision]()
        for tool, residuals in self.variants:
            possible = list[list[Decision | None]]()
            for rules in residuals:
                if facts is not None:
                    rules = rules.with_facts(facts.about(tool.annotations))
                possible.append([rules.final, *(rule.decision for rule in rules.rules)])
            found.append(self.joint.decide(tool, possible))
        return strictest(found)


def _short(value: object) -> bool:
    """Whether a decision is remembered with this value of an argument."""
    if isinstance(value, str):
        return len(value) <= 200
    return value is None or value is _ABSENT or (isinstance(value, int) and abs(value) < 2**53)


def _with_offset(now: datetime, zone: tzinfo) -> datetime:
    """Return the time in a zone: CEL supports offsets, but not zones."""
    if zone is UTC:
        return now if now.tzinfo is UTC else now.astimezone(UTC)
    local = now.astimezone(zone)
    return local.replace(tzinfo=timezone(local.utcoffset() or timedelta()))


class PolicyEnforcer:
    """Applies the policies of one host, as configured at the moment of a call."""

    def __init__(
        self,
        *,
        own: frozenset[str],
        current: CurrentConfig,
        servers: Mapping[str, ServerConfig],
        ask: Approver | None,
        emit: Callable[[Event], None],
        decide: Decide | None = None,
    ) -> None:
        """
        Args:
            own: Providers of the application's functions and of mooring's built-in tools, which are always
                allowed.
            current: The configuration with the policies.
            servers: The configured servers.
            ask: Approves calls whose policy is `ask`; None: they are denied.
            emit: Receives `ApprovalAsked` and `CallDenied`.
            decide: Decides about calls that the policies do not deny.

        Raises:
            ConfigError: A rule of the configuration is wrong.
        """
        self._own = own
        self._current, self._servers, self._ask, self._emit = current, servers, ask, emit
        self._decide = decide
        self._service: DecisionService | None = None
        self._plans: dict[str, tuple[tuple[object, ...], _Plan]] = {}
        self._decisions: dict[tuple[object, ...], Decision] = {}
        """Decisions about earlier calls, by plan, caller and the values of the arguments that rules use."""
        self._rules: dict[str, tuple[tuple[Rule, ...], Residual]] = {}
        self._denied: dict[str, dict[str, tuple[str, str]]] = {}
        check_rules(replace(current.config, servers=()))

    def listed(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without tools that the policy denies, whatever their arguments are."""
        joint = self._policy(snapshot.server)
        self._denied.pop(snapshot.server, None)
        if snapshot.server in self._own or not joint.may_deny:
            return snapshot
        judged = [(tool, self._made(tool).most_permissive()) for tool in snapshot.tools]
        denied = {tool.name: (tool.remote_name, one.reason) for tool, one in judged if one.verdict == "deny"}
        if not denied:
            return snapshot
        self._denied[snapshot.server] = denied
        return replace(snapshot, tools=tuple(tool for tool, one in judged if one.verdict != "deny"))

    @property
    def denied(self) -> Mapping[str, Mapping[str, str]]:
        """By server and name at the server: the rule that denies a tool."""
        return {server: dict(denied.values()) for server, denied in self._denied.items()}

    def explain(self, local_name: str, style: Style) -> PolicyDenied | None:
        """Return the error for a tool of this name, if the policy hides it."""
        known = frozenset(self._servers)
        for server, denied in self._denied.items():
            for shown, (remote, reason) in denied.items():
                if assign([(server, shown)], style, known).get((server, shown)) == local_name:
                    problem = f"{local_name!r} is not called: {_denial(reason)}"
                    return PolicyDenied(problem, server=server, tool=remote, reason=reason)
        return None

    # --- which tools a caller sees --------------------------------------------------------------

    @property
    def by_caller(self) -> bool:
        """Whether some tools are hidden from some callers, or at some times."""
        config = self._current.config
        written = (config.policy, config.project_policy, *(one.policy for one in self._servers.values()))
        return any(re.search(_CALLER, rule.when) for policy in written for rule in policy.rules)

    def visible(self, tool: Tool, context: CallContext) -> bool:
        """Return whether a caller sees a tool of the catalog now."""
        if tool.server in self._own:
            return True
        plan = self._plan(tool)
        return plan.decision is not None or plan.most_permissive(self._facts(tool, context)).verdict != "deny"

    # --- calls ----------------------------------------------------------------------------------

    def allows(self, tool: Tool) -> bool:
        """Return whether the tool may be called without approval, whatever its arguments are."""
        if tool.server in self._own:
            return True
        decision = self._plan(tool).decision
        return decision is not None and decision.verdict == "allow" and not self._asks_others

    def decision(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        now: datetime | None = None,
    ) -> Decision:
        """Return the decision of the configured policies about a call; `now`: at another time."""
        plan = self._plan(tool)
        if plan.decision is not None:
            return plan.decision
        if plan.only is not None and not plan.only.possible(arguments):
            return plan.otherwise
        key = plan.key(arguments, context)
        if key is not None and (known := self._decisions.get(key)) is not None:
            return known
        decision = plan.decide(self._facts(tool, context, arguments, now))
        if key is not None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def replayed(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None,
        context: CallContext,
        *,
        now: datetime,
        inexact: frozenset[str] = frozenset(),
        hints: bool = True,
    ) -> Decision | None:
        """Return the decision of the policies about a past call; None if too little of it is known.

        Args:
            tool: The tool.
            arguments: Those that are known exactly; None: none.
            context: The caller.
            now: The time of the call.
            inexact: Names of other arguments that it had.
            hints: Whether the annotations of the tool are known.
        """
        plan = self._made(tool)
        if not hints and plan.joint.uses_hints:
            return None
        facts = self._facts(tool, context, arguments, now)
        if arguments is not None:
            used = [rules.arguments for _, residuals in plan.variants for rules in residuals if rules.rules]
            if not inexact or all(one is not None and not one & inexact for one in used):
                return plan.decide(facts)
        facts.arguments = None
        found = plan.most_permissive(facts)
        return found if plan.settled(facts) or found.verdict == "deny" else None

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, timeout: float | None
    ) -> None:
        """Ask for the approval that the policy requires, if any.

        Raises:
            PolicyDenied: The policy denies the call, or it was not approved.
        """
        if tool.server in self._own:
            return
        decision = self.decision(tool, arguments, context)
        if decision.verdict != "deny" and self._asks_others:
            decision = strictest([decision, await self._external(tool_call(tool, arguments, context))])
        if decision.verdict == "allow":
            return
        problem = _denial(decision.reason)
        if decision.verdict == "ask" and is_planned(tool, arguments):
            problem = None
        elif decision.verdict == "ask":
            problem = await self._refusal(tool, arguments, context.session, decision.reason, timeout)
        if problem is None:
            return
        self._emit(
            CallDenied(server=tool.server, tool=tool.remote_name, session=context.session, reason=problem)
        )
        raise PolicyDenied(
            f"{tool.name!r} was not called: {problem}",
            server=tool.server,
            tool=tool.remote_name,
            reason=decision.reason,
        )

    async def _refusal(
        self, tool: Tool, arguments: Mapping[str, Any], session: str, reason: str, timeout: float | None
    ) -> str | None:
        """Ask for approval; return why the call is denied, or None."""
        if self._ask is None:
            return f"it needs a person's approval ({reason}), and this application cannot ask. {TELL_USER}"
        self._emit(ApprovalAsked(server=tool.server, tool=tool.remote_name, session=session, reason=reason))
        request = ApprovalRequest(
            server=tool.server,
            tool=tool.remote_name,
            name=tool.name,
            title=tool.title,
            arguments=arguments,
            reason=reason,
            session=session,
        )
        approved = await approved_by(self._ask, request, ANSWER_TIMEOUT if timeout is None else timeout)
        note_approval("given" if approved else "denied")
        return None if approved else f"it needs approval ({reason}), and was not approved. {TELL_USER}"

    # --- plans of scripts -----------------------------------------------------------------------

    def plans(self, tool: Tool) -> str | None:
        """Return why a script must have its call of a tool approved in a plan; None for reads and for tools
        that an `allow` list of the host or the server names. A transform cannot turn a write into a read."""
        if tool.server == OWNER or tool.verb == "prompt":
            return None
        joint, variants, trusted = self._policy(tool.server), [tool], tool.server in self._own
        if not trusted:
            plan = self._plan(tool)
            if (reason := plan.may_ask()) is not None:
                return reason
            variants, trusted = [one for one, _ in plan.variants], joint.own.trust_hints
        reads = trusted and all(one.annotations.get("readOnlyHint") is True for one in variants)
        if reads or all(map(joint.names, variants)):
            return None
        return (
            f"{tool.server!r} does not mark {tool.remote_name!r} as read-only, or its hints are not trusted"
        )

    def denies(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> str | None:
        """Return why the configured policies deny a call of a plan; None if they do not, or must ask an
        external service."""
        if tool.server in self._own:
            return None
        decision = self.decision(tool, arguments, context)
        return decision.reason if decision.verdict == "deny" else None

    async def approve(self, request: ApprovalRequest, timeout: float) -> bool:
        """Ask for approval of the plan of a script; return whether it was given."""
        self._emit(
            ApprovalAsked(
                server=request.server, tool=request.tool, session=request.session, reason=request.reason
            )
        )
        approved = self._ask is not None and await approved_by(self._ask, request, timeout)
        note_approval("given" if approved else "denied")
        if not approved:
            self._emit(
                CallDenied(
                    server=request.server, tool=request.tool, session=request.session, reason=request.reason
                )
            )
        return approved

    # --- external decisions ---------------------------------------------------------------------

    @property
    def _asks_others(self) -> bool:
        settings = self._current.config.policy.decide
        return self._decide is not None or (settings is not None and settings.url is not None)

    async def _external(self, call: ToolCall) -> Decision:
        """Return the strictest decision of the application and the service. Without an answer: deny."""
        from mooring.policy.external import DecisionService, ask_function

        settings = self._current.config.policy.decide
        limit = 2.0 if settings is None else settings.timeout
        found = list[Decision]()
        if self._decide is not None:
            found.append(await ask_function(self._decide, call, limit))
        if settings is not None and settings.url is not None and all(one.verdict != "deny" for one in found):
            if self._service is None:
                self._service = DecisionService()
            found.append(await self._service.ask(settings.url, call, datetime.now(self._zone), limit))
        return strictest(found)

    async def close(self) -> None:
        """Close the connections to the decision service."""
        if self._service is not None:
            await self._service.close()

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _zone(self) -> tzinfo:
        zone = self._current.config.policy.timezone
        if zone == "UTC":
            return UTC
        from zoneinfo import ZoneInfo

        return ZoneInfo(zone)

    def _now(self) -> datetime:
        return _with_offset(datetime.now(UTC), self._zone)

    def _facts(
        self,
        tool: Tool,
        context: CallContext,
        arguments: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> Facts:
        return Facts(
            tool=tool.remote_name,
            server=tool.server,
            annotations=tool.annotations,
            arguments=arguments,
            principal=context.principal or "",
            profile=context.profile or "",
            now=self._now if now is None else lambda: _with_offset(now, self._zone),
        )

    def _plan(self, tool: Tool) -> _Plan:
        """Return the plan of a tool, cached while the tool and the policies are the same objects."""
        config = self._current.config
        basis = (tool, self._servers.get(tool.server), config.policy, config.project_policy)
        known = self._plans.get(tool.name)
        if known is not None and all(map(is_, known[0], basis)):
            return known[1]
        plan = self._made(tool)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[tool.name] = (basis, plan)
        return plan

    def _made(self, tool: Tool) -> _Plan:
        joint = self._policy(tool.server)
        variants = [tool]
        if tool.shape is not None and tool.shape.definition.annotations != tool.annotations:
            variants.append(replace(tool, annotations=tool.shape.definition.annotations))
        compiled = [self._compiled(whose, policy.rules) for whose, policy in joint.policies(tool.server)]
        made = list[tuple[Tool, tuple[Residual, ...]]]()
        for one in variants:
            facts = Facts(tool=one.remote_name, server=one.server, annotations=one.annotations)
            made.append((one, tuple(rules.with_facts(facts) for rules in compiled)))
        return _Plan(joint, made)

    def _compiled(self, whose: str, written: tuple[Rule, ...]) -> Residual:
        known = self._rules.get(whose)
        if known is None or known[0] is not written:
            try:
                rules = compile_rules(written, whose)
            except ConfigError as problem:  # of one server: the others are not affected
                log.warning("every tool of the server is denied: %s", problem)
                rules = Residual((), Decision(verdict="deny", reason=str(problem)))
            known = self._rules[whose] = (written, rules)
        return known[1]

    def _policy(self, server: str) -> JointPolicy:
        one, own, config = self._servers.get(server), OwnPolicy(), self._current.config
        if one is not None:  # else a provider of the application
            own = OwnPolicy(policy=one.policy, approve=one.approve, trust_hints=one.trust_hints)
        return JointPolicy(host=config.policy, project=config.project_policy, own=own)


def check_rules(config: HostConfig) -> None:
    """Raise ConfigError if a rule of the configuration is wrong, or cannot be evaluated here.

    Rules of servers of a project file are not checked: wrong ones deny the tools of their server only.
    """
    for whose, policy in (
        ("the host's policy", config.policy),
        ("the project's policy", config.project_policy),
    ):
        compile_rules(policy.rules, whose)
    for server in config.active:
        if server.scope != "project":
            check_rules_of(server)


def check_rules_of(server: ServerConfig) -> None:
    """Raise ConfigError if a rule of this server is wrong, or cannot be evaluated here."""
    compile_rules(server.policy.rules, f"the policy of {server.name!r}")


def tool_call(tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolCall:
    """Return a call for guards and `decide`."""
    return ToolCall(
        server=tool.server,
        tool=tool.remote_name,
        name=tool.name,
        arguments=arguments,
        annotations=tool.annotations,
        session=context.shown_session,
        agent=context.agent,
        principal=context.principal,
        profile=context.profile,
    )


def _denial(reason: str) -> str:
    return f"the configuration denies it ({reason}). {TELL_USER}"
