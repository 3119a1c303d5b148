"""May this tool be called: yes, no, or only after somebody was asked.

Configuration decides. What a server says of its own tools can make an answer stricter; it makes one
milder only for a server whose hints the configuration trusts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

from mooring.core.checks import list_of_text
from mooring.core.settings import Settings, one_of, setting
from mooring.core.types import Tool
from mooring.core.values import Value

__all__ = ["Decision", "JointPolicy", "OwnPolicy", "Policy", "Verdict"]

Verdict = Literal["allow", "ask", "deny"]

_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_HINTS = ("@destructive", "@read-only")


def _patterns(value: object) -> tuple[str, ...]:
    known = list_of_text(value)
    for pattern in known:
        if pattern.startswith("@") and pattern not in _HINTS:
            raise ValueError(f"knows the hints {' and '.join(map(repr, _HINTS))} and no other")
    return known


class Policy(Settings):
    """Globs of tools, the strictest list that fits counts. In the host's own policy a glob with a slash is
    `server/tool`; all others are the server's own names of tools. `@destructive` fits a tool that says so
    of itself, `@read-only` one that says so and whose server's hints are trusted."""

    deny: tuple[str, ...] = setting(_patterns, default=())
    """Neither listed nor called."""
    ask: tuple[str, ...] = setting(_patterns, default=())
    allow: tuple[str, ...] = setting(_patterns, default=())
    otherwise: Verdict = setting(one_of("allow", "ask", "deny"), default="allow")
    """For tools that no list names."""


class Decision(Value):
    verdict: Verdict
    reason: str = ""
    """Which rule says so: words of the configuration, none of the server."""


class OwnPolicy(Value):
    """What the entry of one server says."""

    policy: Policy = Policy()
    approve: tuple[str, ...] = ()
    """Globs of tools that need a yes."""
    trust_hints: bool = False


class JointPolicy(Value):
    """What the host says; what the project's file and a server's entry say can only make it stricter."""

    host: Policy
    own: OwnPolicy
    project: Policy = Policy()

    def decide(self, tool: Tool) -> Decision:
        """Whether the tool is called, and which rule says so."""
        own, server = self.own, tool.server
        decisions = [
            _decided(tool, self.host, own.trust_hints, server=server, whose="the host's policy"),
            _decided(tool, self.project, own.trust_hints, server=server, whose="the project's policy"),
            _decided(tool, own.policy, own.trust_hints, server=None, whose=f"the policy of {server!r}"),
        ]
        if any(fnmatchcase(tool.remote_name, glob) for glob in own.approve):
            decisions.append(Decision(verdict="ask", reason=f"`approve` of {server!r}"))
        return max(decisions, key=lambda one: _STRICTNESS[one.verdict])

    @property
    def may_deny(self) -> bool:
        """Whether any tool could be denied: where not, none needs to be looked at."""
        policies = (self.host, self.project, self.own.policy)
        return any(policy.deny or policy.otherwise == "deny" for policy in policies)


def _decided(tool: Tool, policy: Policy, trusted: bool, *, server: str | None, whose: str) -> Decision:
    lists: tuple[tuple[Verdict, tuple[str, ...]], ...] = (
        ("deny", policy.deny),
        ("ask", policy.ask),
        ("allow", policy.allow),
    )
    for verdict, patterns in lists:
        for pattern in patterns:
            if _fits(tool, pattern, trusted, server):
                return Decision(verdict=verdict, reason=f"`{verdict}: {pattern}` in {whose}")
    return Decision(verdict=policy.otherwise, reason=f"`otherwise: {policy.otherwise}` in {whose}")


def _fits(tool: Tool, pattern: str, trusted: bool, server: str | None) -> bool:
    if pattern == "@destructive":
        return tool.annotations.get("destructiveHint") is True
    if pattern == "@read-only":
        return trusted and tool.annotations.get("readOnlyHint") is True
    # A tool may be named `github/read`: that must not make it one of the server `github`.
    whole = server is not None and "/" in pattern
    return fnmatchcase(f"{server}/{tool.remote_name}" if whole else tool.remote_name, pattern)
