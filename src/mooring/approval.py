"""The last question before a call: may it be made? Asked when it is made, not only when tools are listed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import is_
from typing import Any

from mooring.core.config import HostConfig, ServerConfig
from mooring.core.events import ApprovalAsked, CallDenied, Event
from mooring.core.names import Style, assign
from mooring.core.policy import Decision, JointPolicy, OwnPolicy
from mooring.core.types import Snapshot, Tool
from mooring.core.values import Value, replace
from mooring.errors import PolicyDenied

__all__ = ["ApprovalRequest", "Approver", "Gatekeeper"]

PATIENCE = 300.0
"""Seconds that a person has to answer, where the call itself has no limit."""
_NO_MORE = "Do not try again; tell the user what you wanted to do."


class ApprovalRequest(Value):
    """A call that waits for a yes. Title and arguments are as the server and the model wrote them: clean
    them before a person reads them (`mooring.core.text.clean`)."""

    server: str
    tool: str
    """The server's own name of it."""
    name: str
    """The local name, which the model used."""
    title: str | None
    arguments: Mapping[str, Any]
    reason: str
    """Which rule wants it."""
    session: str

    def __repr__(self) -> str:
        """Without the arguments' values, which may hold anything."""
        names = sorted(self.arguments)
        return f"ApprovalRequest({self.server!r}, {self.tool!r}, arguments={names}, reason={self.reason!r})"


Approver = Callable[[ApprovalRequest], "bool | Awaitable[bool]"]


class Gatekeeper:
    """Applies the policies of one host as they are at the moment of a call."""

    def __init__(
        self,
        *,
        own: frozenset[str],
        config: Callable[[], HostConfig],
        servers: Mapping[str, ServerConfig],
        ask: Approver | None,
        emit: Callable[[Event], None],
    ) -> None:
        self._own = own
        """The providers of the application's own functions and of mooring's: they need nobody's leave."""
        self._config, self._servers, self._ask, self._emit = config, servers, ask, emit
        self._decided: dict[str, tuple[tuple[object, ...], Decision]] = {}
        self._denied: dict[str, dict[str, str]] = {}
        """Tools that are not listed, by server and its own name of them, and which rule denies them."""

    def listed(self, snapshot: Snapshot) -> Snapshot:
        """What of it may be shown: denied tools are not."""
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
        """Tools that are not listed, by server and the server's own name, and the rule that denies each."""
        return self._denied

    def explain(self, local_name: str, style: Style) -> PolicyDenied | None:
        """Why a tool of this name is not shown, if it is denied."""
        known = frozenset(self._servers)
        for server, denied in self._denied.items():
            for remote, reason in denied.items():
                if assign([(server, remote)], style, known).get((server, remote)) == local_name:
                    problem = f"{local_name!r} is not called: {_denial(reason)}"
                    return PolicyDenied(problem, server=server, tool=remote, reason=reason)
        return None

    def allows(self, tool: Tool) -> bool:
        """Whether it may be called without asking anybody."""
        return tool.server in self._own or self._decision(tool).verdict == "allow"

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], session: str, timeout: float | None
    ) -> None:
        """Return if the call may be made.

        Raises:
            PolicyDenied: it may not, or nobody said yes.
        """
        if self.allows(tool):
            return
        decision = self._decision(tool)
        problem = _denial(decision.reason)
        if decision.verdict == "ask":
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
        """Why there was no yes; None when there was one."""
        if self._ask is None:
            return (
                f"it needs a person's approval ({reason}), and this application has nobody to ask. {_NO_MORE}"
            )
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
        from mooring.asking import said_yes  # few hosts ever ask
        from mooring.audit import NOTE

        yes = await said_yes(self._ask, request, PATIENCE if timeout is None else timeout)
        if (note := NOTE.get()) is not None:
            note.approval = "given" if yes else "denied"
        return None if yes else f"it needs a person's approval ({reason}), and nobody gave it. {_NO_MORE}"

    def _decision(self, tool: Tool) -> Decision:
        """What the policies say; weighed once while the tool and the policies are the same objects."""
        config = self._config()
        basis = (tool, self._servers.get(tool.server), config.policy, config.project_policy)
        known = self._decided.get(tool.name)
        if known is not None and all(map(is_, known[0], basis)):
            return known[1]
        decision = self._policy(tool.server).decide(tool)
        self._decided[tool.name] = (basis, decision)
        return decision

    def _policy(self, server: str) -> JointPolicy:
        one, own, config = self._servers.get(server), OwnPolicy(), self._config()
        if one is not None:  # else it is a provider of the application
            own = OwnPolicy(policy=one.policy, approve=one.approve, trust_hints=one.trust_hints)
        return JointPolicy(host=config.policy, project=config.project_policy, own=own)


def _denial(reason: str) -> str:
    return f"the configuration denies it ({reason}). {_NO_MORE}"
