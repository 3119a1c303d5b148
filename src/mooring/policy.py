"""Decide whether a server may be started (`Trust`) and whether a call may be made (`PolicyEnforcer`)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from mooring.concurrency import call_back
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.sections import Decision, JointPolicy, OwnPolicy
from mooring.core.events import ApprovalAsked, CallDenied, Event
from mooring.core.names import OWNER, Style, assign
from mooring.core.text import clean_for_model, line
from mooring.core.types import EMPTY, Snapshot, Tool
from mooring.core.value import Value, replace
from mooring.errors import NotTrusted, PolicyDenied

if TYPE_CHECKING:
    from mooring.config.trust import Approval, TrustRequest
    from mooring.servers.state import CurrentConfig

log = logger("mooring.policy")


Q = TypeVar("Q")


async def approved_by(
    callback: Callable[[Q], bool | Awaitable[bool]], question: Q, limit: float | None
) -> bool:
    """Return whether the callback returns True within `limit` seconds (None: no limit).

    An exception counts as False and is logged. A plain function runs in a thread, because it may wait for a
    person.
    """
    with anyio.move_on_after(limit):
        try:
            return await call_back(callback, question) is True
        except Exception:
            log.exception("approval callback failed; the request is denied")
    return False


ANSWER_TIMEOUT = 300.0
"""Seconds that a person has to approve, unless the call has a timeout of its own."""
_NO_MORE = "Do not try again; tell the user what you wanted to do."


PLANNED: ContextVar[tuple[str, str] | None] = ContextVar("mooring_planned", default=None)
"""The write of an approved plan that this task makes: local name and arguments as canonical JSON."""


class ApprovalRequest(Value):
    """A call that needs approval, or the plan of a script (`name` is `script_run`, `arguments` the plan).

    Title and arguments are unchecked text of the server and the model: clean them before a person reads them
    (`mooring.core.text.clean`).
    """

    server: str
    tool: str
    """The name of the tool at the server."""
    name: str
    """The name of the tool in the catalog."""
    title: str | None
    arguments: Mapping[str, Any]
    reason: str
    """The rule that requires the approval."""
    session: str
    """The id of the session that calls."""

    def __repr__(self) -> str:
        """Show the names of the arguments only: their values may hold secrets."""
        names = sorted(self.arguments)
        return f"ApprovalRequest({self.server!r}, {self.tool!r}, arguments={names}, reason={self.reason!r})"


LONGEST_PLAN = 4_000


def plan_text(request: ApprovalRequest) -> str:
    """Return the plan of a script in words, with the untrusted parts cleaned."""
    plan: Any = request.arguments
    lines = [f"A script wants to make {plan['writes']} calls that may change something:"]
    for entry in plan["calls"]:
        lines.append(
            f"- {entry['count']} x {line(entry['tool'], 80)} of server {line(entry['server'], 80)!r}"
        )
        lines += [f"    {line(json.dumps(one, ensure_ascii=False), 300)}" for one in entry["first"]]
        if entry["count"] > len(entry["first"]):
            lines.append(f"    … and {entry['count'] - len(entry['first'])} more")
    done = ", ".join(f"{line(tool, 80)} ({count})" for tool, count in plan["done"].items()) or "nothing"
    lines.append(f"So far: {done}.")
    if not plan["complete"]:
        lines.append(f"Then: {line(plan['then'], 200)}.")
    return clean_for_model("\n".join(lines), LONGEST_PLAN)


Approver = Callable[[ApprovalRequest], "bool | Awaitable[bool]"]


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
    ) -> None:
        """
        Args:
            own: Providers of the application's functions and of mooring's built-in tools, which are always
                allowed.
            current: The configuration with the policies.
            servers: The configured servers.
            ask: Approves calls whose policy is `ask`; None: they are denied.
            emit: Receives `ApprovalAsked` and `CallDenied`.
        """
        self._own = own
        self._current, self._servers, self._ask, self._emit = current, servers, ask, emit
        self._decided: dict[str, tuple[tuple[object, ...], Decision]] = {}
        self._denied: dict[str, dict[str, str]] = {}

    def listed(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without tools that the policy denies."""
        policy = self._policy(snapshot.server)
        self._denied.pop(snapshot.server, None)
        if snapshot.server in self._own or not policy.may_deny:
            return snapshot
        judged = [(tool, policy.decide(tool)) for tool in snapshot.tools]
        denied = {tool.remote_name: one.reason for tool, one in judged if one.verdict == "deny"}
        if not denied:
            return snapshot
        self._denied[snapshot.server] = denied
        return replace(snapshot, tools=tuple(tool for tool, one in judged if one.verdict != "deny"))

    @property
    def denied(self) -> Mapping[str, Mapping[str, str]]:
        """By server and name at the server: the rule that denies a tool."""
        return self._denied

    def explain(self, local_name: str, style: Style) -> PolicyDenied | None:
        """Return the error for a tool of this name, if the policy hides it."""
        known = frozenset(self._servers)
        for server, denied in self._denied.items():
            for remote, reason in denied.items():
                if assign([(server, remote)], style, known).get((server, remote)) == local_name:
                    problem = f"{local_name!r} is not called: {_denial(reason)}"
                    return PolicyDenied(problem, server=server, tool=remote, reason=reason)
        return None

    def allows(self, tool: Tool) -> bool:
        """Return whether the tool may be called without approval."""
        return tool.server in self._own or self._decision(tool).verdict == "allow"

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], session: str, timeout: float | None
    ) -> None:
        """Ask for the approval that the policy requires, if any.

        Raises:
            PolicyDenied: The policy denies the call, or it was not approved.
        """
        if self.allows(tool):
            return
        decision = self._decision(tool)
        problem = _denial(decision.reason)
        if decision.verdict == "ask" and _is_planned(tool, arguments):
            problem = None
        elif decision.verdict == "ask":
            problem = await self._refusal(tool, arguments, session, decision.reason, timeout)
        if problem is None:
            return
        self._emit(CallDenied(server=tool.server, tool=tool.remote_name, session=session, reason=problem))
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
            return f"it needs a person's approval ({reason}), and this application cannot ask. {_NO_MORE}"
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
        _record("given" if approved else "denied")
        return None if approved else f"it needs approval ({reason}), and was not approved. {_NO_MORE}"

    def plans(self, tool: Tool) -> str | None:
        """Return why a script must have its call of a tool approved in a plan; None for reads and for tools
        that an `allow` rule of the host or the server names."""
        if tool.server == OWNER or tool.verb == "prompt":
            return None
        if not self.allows(tool):
            return self._decision(tool).reason
        policy = self._policy(tool.server)
        trusted = tool.server in self._own or policy.own.trust_hints
        if (trusted and tool.annotations.get("readOnlyHint") is True) or policy.names(tool):
            return None
        return f"{tool.server!r} does not say that {tool.remote_name!r} only reads, or is not trusted to"

    async def approve(self, request: ApprovalRequest, timeout: float) -> bool:
        """Ask for approval of the plan of a script; return whether it was given."""
        self._emit(
            ApprovalAsked(
                server=request.server, tool=request.tool, session=request.session, reason=request.reason
            )
        )
        approved = self._ask is not None and await approved_by(self._ask, request, timeout)
        _record("given" if approved else "denied")
        if not approved:
            self._emit(
                CallDenied(
                    server=request.server, tool=request.tool, session=request.session, reason=request.reason
                )
            )
        return approved

    def _decision(self, tool: Tool) -> Decision:
        """Return the decision, cached while the tool and the policies are the same objects."""
        config = self._current.config
        basis = (tool, self._servers.get(tool.server), config.policy, config.project_policy)
        known = self._decided.get(tool.name)
        if known is not None and all(map(is_, known[0], basis)):
            return known[1]
        decision = self._policy(tool.server).decide(tool)
        self._decided[tool.name] = (basis, decision)
        return decision

    def _policy(self, server: str) -> JointPolicy:
        one, own, config = self._servers.get(server), OwnPolicy(), self._current.config
        if one is not None:  # else a provider of the application
            own = OwnPolicy(policy=one.policy, approve=one.approve, trust_hints=one.trust_hints)
        return JointPolicy(host=config.policy, project=config.project_policy, own=own)


def _is_planned(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether this call is the write of an approved plan that this task makes."""
    planned = PLANNED.get()
    if planned is None or planned != (tool.name, json.dumps(arguments, sort_keys=True)):
        return False
    _record("given")
    return True


def _record(approval: Literal["given", "denied"]) -> None:
    """Note the answer for the audit log."""
    from mooring.audit import NOTE

    if (note := NOTE.get()) is not None:
        note.approval = approval


def _denial(reason: str) -> str:
    return f"the configuration denies it ({reason}). {_NO_MORE}"


Ask = Callable[["TrustRequest"], "bool | Awaitable[bool]"]
"""Called once for each file and content. The answer is used by this host only and is not stored."""


class Trust:
    """The approvals of one host. Only project files that were found automatically need one."""

    def __init__(self, answer: bool | Ask | None) -> None:
        self._answer = answer
        self._answers: dict[tuple[str, str], bool] = {}
        """Answers of this run, by file, server name and mark. The settings of a file have an empty name."""

    def approval(self, file: str) -> Approval:
        """Return which parts of a project file are approved, on this machine or in this run."""
        from mooring.config.trust import Approval, approval_of

        if self._answer is True:
            return Approval(everything=True)
        known = approval_of(file)
        marks = {key: mark for (key, mark), yes in self._answers.items() if yes}
        servers = {key.partition("\0")[2]: mark for key, mark in marks.items() if key.startswith(f"{file}\0")}
        settings = servers.pop("", known.settings)
        return Approval(servers={**known.servers, **servers}, settings=settings)

    async def approved_more(self, config: HostConfig) -> bool:
        """Ask the application to approve the settings and servers of a project file.

        Returns:
            Whether something was approved: then the configuration must be read again with `approval`.
        """
        withheld = config.withheld
        if withheld is None or not callable(self._answer):
            return False
        from mooring.config.trust import forbidden

        found = [one for one in config.active if one.scope == "project" and one.file == withheld.file]
        servers = [server for server in (*found, *withheld.servers) if not forbidden(server)]
        before = dict(self._answers)
        await self._unapproved(withheld.file, servers, withheld.settings)
        return any(yes and not before.get(key) for key, yes in self._answers.items())

    async def held(self, servers: Iterable[ServerConfig]) -> dict[str, NotTrusted]:
        """Return the servers that must not be started, with the error for each."""
        found = [server for server in servers if server.scope == "project"]
        if not found:
            return {}
        from mooring.config.trust import forbidden

        held = {server.name: _forbidden(server, names) for server in found if (names := forbidden(server))}
        by_file: dict[str, list[ServerConfig]] = {}
        for server in found:
            if server.name not in held:
                by_file.setdefault(server.file or "", []).append(server)
        for file, own in by_file.items():
            held |= await self._unapproved(file, own)
        return held

    async def _unapproved(
        self, file: str, servers: list[ServerConfig], settings: Mapping[str, Any] = EMPTY
    ) -> dict[str, NotTrusted]:
        if self._answer is True:
            return {}
        from mooring.config.trust import TrustRequest, approved, mark, settings_mark

        known = approved(file)
        open_ones = [server for server in servers if known.get(server.name) != mark(server)]
        changed = tuple(server.name for server in open_ones if server.name in known)
        new = tuple(server for server in open_ones if _key(server) not in self._answers)
        asked = (f"{file}\0", settings_mark(settings))
        fresh = settings if settings and asked not in self._answers else EMPTY
        if (new or fresh) and callable(self._answer):
            request = TrustRequest(file=file, servers=new, changed=changed, settings=fresh)
            yes = await approved_by(self._answer, request, ANSWER_TIMEOUT)
            self._answers |= {_key(server): yes for server in new}
            if fresh:
                self._answers[asked] = yes
        refused = [server for server in open_ones if not self._answers.get(_key(server))]
        return {server.name: _unapproved(server, changed=server.name in changed) for server in refused}


def _key(server: ServerConfig) -> tuple[str, str]:
    from mooring.config.trust import mark

    return f"{server.file}\0{server.name}", mark(server)


def _unapproved(server: ServerConfig, *, changed: bool) -> NotTrusted:
    why = "has changed since it was approved" if changed else "was found here and is not approved"
    return NotTrusted(
        f"{server.name!r} is not started: its entry in {server.file} {why} on this machine; "
        "read what it would run and approve it with `mooring trust`",
        server=server.name,
        file=server.file,
    )


def _forbidden(server: ServerConfig, names: tuple[str, ...]) -> NotTrusted:
    listed = ", ".join(map(repr, names))
    return NotTrusted(
        f"{server.name!r} is not started: {server.file} sets {listed}, which can make a program run other "
        "code, and project files found automatically may not do that; move the entry into your own "
        "configuration, or name the file with `--config`",
        server=server.name,
        file=server.file,
    )
