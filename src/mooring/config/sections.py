"""Settings of the policy and the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from mooring.config.references import is_reference
from mooring.config.units import kind, seconds, size
from mooring.config.validate import (
    Settings,
    flag,
    list_of_text,
    one_of,
    optional,
    section,
    setting,
    shown,
    some_text,
    whole,
    within,
)
from mooring.core.names import STYLES, Style
from mooring.core.types import EMPTY, Tool
from mooring.core.value import Value

if TYPE_CHECKING:
    from mooring.config.audit import AuditSettings


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
    """Called only after approval."""
    allow: tuple[str, ...] = setting(_patterns, default=())
    """Called without approval."""
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


SAFE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures whose key may be public. A shared secret must not be taken for one, nor `none` for any."""

_duration = within(seconds, above=0)
_name_letters = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class ProfileSettings(Settings):
    """A named part of the catalog, served at `/mcp/<name>`."""

    servers: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of server names."""
    allow: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of `server/tool`, by the servers' own names of their tools."""
    deny: tuple[str, ...] = setting(list_of_text, default=())
    style: Style | None = setting(optional(one_of(*STYLES)), default=None)
    """How tools and prompts are named; as everywhere when left out."""
    discovery: Literal["auto", "always", "never"] = setting(
        one_of("auto", "always", "never"), default="never"
    )
    resources: bool = setting(flag, default=True)
    prompts: bool = setting(flag, default=True)
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be good for."""
    call_timeout: float | None = setting(optional(_duration), default=None)


class TokenSettings(Settings):
    """A fixed token and whose it is. The token itself is one reference, such as `${GATEWAY_TOKEN}`."""

    name: str = setting(some_text)
    token: str = setting(some_text)
    scopes: tuple[str, ...] = setting(list_of_text, default=())

    def _check(self) -> None:
        if not is_reference(self.token):
            raise ValueError(
                f"the token of {shown(self.name)} must be one reference without a default, such as ${{VAR}}"
            )

    def __repr__(self) -> str:
        return f"TokenSettings(name={self.name!r}, scopes={self.scopes!r})"


class OAuthSettings(Settings):
    """Whose signed tokens are taken: the gateway is a protected resource and issues none itself."""

    issuer: str = setting(some_text)
    audience: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be made for; the gateway's own `url` when left out."""
    jwks_url: str | None = setting(optional(some_text), default=None)
    key_file: str | None = setting(optional(some_text), default=None)
    """A public key (PEM) or a key set (JSON)."""
    algorithms: tuple[str, ...] = setting(list_of_text, default=("RS256", "ES256"))

    def _check(self) -> None:
        if (self.jwks_url is None) == (self.key_file is None):
            raise ValueError("needs one of 'jwks_url' and 'key_file'")
        for name in self.algorithms:
            if name not in SAFE_ALGORITHMS:
                raise ValueError(f"'algorithms' holds {shown(name)}; take {', '.join(SAFE_ALGORITHMS)}")


def _profiles(value: object) -> Mapping[str, ProfileSettings]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to profiles, not {kind(value)}")
    read = section(ProfileSettings)
    found: dict[str, ProfileSettings] = {}
    for name, item in cast("Mapping[object, object]", value).items():
        text = str(name)
        if not text or not _name_letters.issuperset(text):
            raise ValueError(f"{shown(text)} is no name for a path; use letters, digits, '-' and '_'")
        found[text] = read({} if item is None else item)
    return MappingProxyType(found)


def _tokens(value: object) -> tuple[TokenSettings, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of 'name' and 'token', not {kind(value)}")
    read = section(TokenSettings)
    return tuple(read(item) for item in cast("list[object]", value))


def _audit(value: object) -> AuditSettings | None:
    if value is None:
        return None
    from mooring.config.audit import read_audit

    return read_audit(value)


class GatewaySettings(Settings):
    """How `mooring serve` meets its clients."""

    profiles: Mapping[str, ProfileSettings] = setting(_profiles, default=EMPTY)
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """What a token must be good for at `/mcp` itself."""
    tokens: tuple[TokenSettings, ...] = setting(_tokens, default=())
    oauth: OAuthSettings | None = setting(optional(section(OAuthSettings)), default=None)
    url: str | None = setting(optional(some_text), default=None)
    """The address under which clients reach the gateway, when that is not the one it listens on."""
    allowed_hosts: tuple[str, ...] = setting(list_of_text, default=())
    """Names in the `Host` header beside addresses and `localhost`."""
    allowed_origins: tuple[str, ...] = setting(list_of_text, default=())
    max_body: int = setting(within(size, least=1024), default=4 * 2**20)
    body_timeout: float = setting(_duration, default=10.0)
    """Seconds within which a request must have arrived whole."""
    rate: float | None = setting(optional(within(seconds, above=0)), default=None)
    """Requests per second of one client; no limit when left out."""
    burst: int = setting(within(whole, least=1), default=64)
    concurrency: int = setting(within(whole, least=1), default=256)
    """Requests of one client that may be under way."""
    max_sessions: int = setting(within(whole, least=1), default=10_000)
    client_sessions: int = setting(within(whole, least=1), default=2_000)
    """Sessions of one client: of one principal, or of one address where no token is asked for. At the limit
    a new session ends the client's own session that has been idle for longest."""
    max_connections: int = setting(within(whole, least=1), default=20_000)
    audit: AuditSettings | None = setting(_audit, default=None)
    """The audit log while it serves, in place of the host's."""
    drain: float = setting(seconds, default=10.0)
    """Seconds that calls under way are given when the gateway is told to end."""
