"""Settings of the policy and the gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from mooring.config.operation import (
    AccessLogSettings,
    ClusterSettings,
    ForwardedSettings,
    GatewayTls,
    LogSettings,
    MetricsSettings,
    read_access_log,
    read_cluster,
)
from mooring.config.references import is_reference
from mooring.config.validate import (
    InvalidEntryError,
    Problem,
    Settings,
    flag,
    kind,
    list_of_text,
    number,
    one_of,
    optional,
    seconds,
    section,
    setting,
    shown,
    size,
    some_text,
    whole,
    within,
)
from mooring.core.names import STYLES, Style
from mooring.core.rules import STRICTNESS, Decision, Verdict, strictest
from mooring.core.types import EMPTY, Tool
from mooring.core.value import Value

if TYPE_CHECKING:
    from mooring.config.audit import AuditSettings
    from mooring.config.shaping import DecideSettings, Rule, Transform


_HINTS = ("@destructive", "@read-only")


def _rules(value: object) -> tuple[Rule, ...]:
    from mooring.config.shaping import rules

    return rules(value)


def _decide(value: object) -> DecideSettings | None:
    if value is None:
        return None
    from mooring.config.shaping import DecideSettings

    return section(DecideSettings)(value)


def _transforms(value: object) -> Mapping[str, Transform]:
    from mooring.config.shaping import transforms

    return transforms(value)


def _timezone(value: object) -> str:
    name = some_text(value)
    if name != "UTC":
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            raise ValueError("must be the name of a time zone, such as 'Europe/Berlin'") from None
    return name


def _patterns(value: object) -> tuple[str, ...]:
    known = list_of_text(value)
    for pattern in known:
        if pattern.startswith("@") and pattern not in _HINTS:
            raise ValueError(f"supports only the hints {' and '.join(map(repr, _HINTS))}")
    return known


class Policy(Settings):
    """Rules for calls: globs of tools. The strictest list that matches applies. In the host's policy a glob
    with a slash is `server/tool`; others match the server's own tool names. `@destructive` matches tools with
    `destructiveHint`, `@read-only` those with `readOnlyHint` of servers with `trust_hints`.

    The first of `rules` that applies decides instead of `ask`, `allow` and `otherwise`."""

    deny: tuple[str, ...] = setting(_patterns, default=())
    """Neither listed nor called."""
    ask: tuple[str, ...] = setting(_patterns, default=())
    """Called only after approval."""
    allow: tuple[str, ...] = setting(_patterns, default=())
    """Called without approval."""
    otherwise: Verdict = setting(one_of("allow", "ask", "deny"), default="allow")
    """For tools that match no list."""
    rules: tuple[Rule, ...] = setting(_rules, default=())
    """Expressions over the arguments, the caller and the time."""
    timezone: str = setting(_timezone, default="UTC")
    """Time zone of `now` in the rules of all policies. Of the host's policy only."""
    decide: DecideSettings | None = setting(_decide, default=None)
    """A service that decides about calls. Of the host's policy only."""


_NO_RULES: Sequence[Sequence[Decision | None]] = ((None,), (None,), (None,))


class OwnPolicy(Value):
    """Policy settings of one server."""

    policy: Policy = Policy()
    approve: tuple[str, ...] = ()
    """Globs of tools that need approval."""
    trust_hints: bool = False


class JointPolicy(Value):
    """The host's policy, made stricter by the project file and by each server."""

    host: Policy
    own: OwnPolicy
    project: Policy = Policy()

    def decide(self, tool: Tool, ruled: Sequence[Sequence[Decision | None]] = _NO_RULES) -> Decision:
        """Return the decision for a tool, with the rule.

        Args:
            tool: The tool.
            ruled: For each of `policies`: the possible decisions of its rules; None: they may leave it to the
            lists. Of several possible decisions the most permissive counts.
        """
        own, server = self.own, tool.server
        decisions = list[Decision]()
        scopes = (server, server, None)  # a server's own policy has no globs of other servers
        for (whose, policy), scope, possible in zip(self.policies(server), scopes, ruled, strict=True):
            each = [_decided(tool, policy, own.trust_hints, one, scope, whose) for one in possible]
            decisions.append(min(each, key=lambda one: STRICTNESS[one.verdict]))
        if any(fnmatchcase(tool.remote_name, glob) for glob in own.approve):
            decisions.append(Decision(verdict="ask", reason=f"`approve` of {server!r}"))
        return strictest(decisions)

    def policies(self, server: str) -> tuple[tuple[str, Policy], ...]:
        """Return the policies that apply, each with its name."""
        return (
            ("the host's policy", self.host),
            ("the project's policy", self.project),
            (f"the policy of {server!r}", self.own.policy),
        )

    @property
    def uses_hints(self) -> bool:
        """Whether a list or rule looks at the annotations of tools."""
        policies = (self.host, self.project, self.own.policy)
        listed = (pattern for one in policies for pattern in (*one.deny, *one.ask, *one.allow))
        written = (rule.when for one in policies for rule in one.rules)
        return any(pattern in _HINTS for pattern in listed) or any("annotations" in text for text in written)

    def names(self, tool: Tool) -> bool:
        """Return whether an `allow` rule of the host or of the server names this tool."""
        rules = ((self.host, tool.server), (self.own.policy, None))
        return any(
            _fits(tool, pattern, self.own.trust_hints, server)
            for policy, server in rules
            for pattern in policy.allow
        )

    @property
    def may_deny(self) -> bool:
        """Whether any tool could be denied."""
        policies = (self.host, self.project, self.own.policy)
        return any(policy.deny or policy.otherwise == "deny" or policy.rules for policy in policies)


def _decided(
    tool: Tool, policy: Policy, trusted: bool, ruled: Decision | None, server: str | None, whose: str
) -> Decision:
    lists: tuple[tuple[Verdict, tuple[str, ...]], ...] = (
        ("deny", policy.deny),
        ("ask", policy.ask),
        ("allow", policy.allow),
    )
    for verdict, patterns in lists:
        if verdict != "deny" and ruled is not None:
            return ruled
        for pattern in patterns:
            if _fits(tool, pattern, trusted, server):
                return Decision(verdict=verdict, reason=f"`{verdict}: {pattern}` in {whose}")
    return Decision(verdict=policy.otherwise, reason=f"`otherwise: {policy.otherwise}` in {whose}")


def _fits(tool: Tool, pattern: str, trusted: bool, server: str | None) -> bool:
    if pattern == "@destructive":
        return tool.annotations.get("destructiveHint") is True
    if pattern == "@read-only":
        return trusted and tool.annotations.get("readOnlyHint") is True
    # A tool named `github/read` must not match rules for the server `github`.
    whole = server is not None and "/" in pattern
    return fnmatchcase(f"{server}/{tool.remote_name}" if whole else tool.remote_name, pattern)


SAFE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric signature algorithms. Shared secrets and `none` are not allowed."""

_duration = within(seconds, above=0)
_name_letters = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def _offered(value: object) -> Literal[False, True, "only"]:
    if value == "only":
        return "only"
    try:
        return flag(value)
    except ValueError:
        raise ValueError("must be true, false or 'only'") from None


class ScriptSettings(Settings):
    """Programs that a model writes to call several tools at once."""

    enabled: Literal[False, True, "only"] = setting(_offered, default=False)
    """Whether models get `script_api` and `script_run`; `only`: instead of the other tools."""
    time: float = setting(_duration, default=60.0)
    """Seconds for a script; the wait for an approval does not count."""
    memory: int = setting(within(size, least=2**20), default=100 * 2**20)
    """Bytes that a script may use."""
    calls: int = setting(within(whole, least=1), default=200)
    """Calls that a script may make."""
    writes: Literal["ask", "deny"] = setting(one_of("ask", "deny"), default="ask")
    """What happens at the first call that may change something: ask for approval of a plan, or end."""


class ProfileSettings(Settings):
    """A named part of the catalog, served at `/mcp/<name>`."""

    servers: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of server names."""
    allow: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of `server/tool`, by the servers' own names of their tools."""
    deny: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of `server/tool` that are left out."""
    style: Style | None = setting(optional(one_of(*STYLES)), default=None)
    """How tools and prompts are named; as the host's when left out."""
    discovery: Literal["auto", "always", "never"] = setting(
        one_of("auto", "always", "never"), default="never"
    )
    """Whether clients get the discovery tools instead of every tool."""
    resources: bool = setting(flag, default=True)
    """Whether resources are served."""
    prompts: bool = setting(flag, default=True)
    """Whether prompts are served."""
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """Scopes that a token must have."""
    call_timeout: float | None = setting(optional(_duration), default=None)
    """Seconds for a call; as the server's when left out."""
    transforms: Mapping[str, Transform] = setting(_transforms, default=EMPTY)
    """Changes of tools, by `server/tool`, over those of the servers."""
    scripts: ScriptSettings = setting(section(ScriptSettings), default=ScriptSettings())
    """Scripts of the clients' models; not the host's setting."""


class TokenSettings(Settings):
    """A fixed token and its owner's name. The token itself is one reference, such as `${GATEWAY_TOKEN}`."""

    name: str = setting(some_text)
    """The principal: the name of the client in logs, limits and the audit log."""
    token: str = setting(some_text)
    """The token, as one reference without a default."""
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """Scopes of the token."""

    def _check(self) -> None:
        if not is_reference(self.token):
            raise ValueError(
                f"the token of {shown(self.name)} must be one reference without a default, such as ${{VAR}}"
            )

    def __repr__(self) -> str:
        return f"TokenSettings(name={self.name!r}, scopes={self.scopes!r})"


class OAuthSettings(Settings):
    """Validation of signed tokens. The gateway is a protected resource and issues no tokens."""

    issuer: str = setting(some_text)
    """The issuer (`iss`) that a token must have."""
    audience: tuple[str, ...] = setting(list_of_text, default=())
    """Audiences that a token may have; the gateway's `url` when left out."""
    jwks_url: str | None = setting(optional(some_text), default=None)
    """Address of the issuer's key set; this or `key_file` is required."""
    key_file: str | None = setting(optional(some_text), default=None)
    """A public key (PEM) or a key set (JSON)."""
    algorithms: tuple[str, ...] = setting(list_of_text, default=("RS256", "ES256"))
    """Signature algorithms that are accepted; asymmetric ones only."""

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
            raise ValueError(f"{shown(text)} cannot be part of a path; use letters, digits, '-' and '_'")
        try:
            found[text] = read({} if item is None else item)
        except InvalidEntryError as error:
            raise InvalidEntryError(
                tuple(
                    Problem(field=f"{text}.{one.field}" if one.field else text, message=one.message)
                    for one in error.problems
                )
            ) from None
    return MappingProxyType(found)


def _rate(value: object) -> float:
    rate = number(value)
    if rate is None or rate <= 0:
        raise ValueError("must be a number of requests per second, such as 5 or 0.5")
    return rate


def _base_path(value: object) -> str:
    path = some_text(value).rstrip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", path) or "/.." in path or "/." in path:
        raise ValueError("must be a path such as /tools")
    return path


def _web_address(value: object) -> str:
    text = some_text(value)
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", text):
        raise ValueError("must be an address such as https://tools.example.com")
    return text


def _file_name(value: object) -> str:
    if not (text := some_text(value)).strip():
        raise ValueError("must be the path of a file")
    return text


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


def _keys(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    known = (some_text(value),) if isinstance(value, str) else list_of_text(value)
    if len(known) > 2 or not all(map(is_reference, known)):
        raise ValueError("must be one reference without a default, such as ${VAR}, or a list of two")
    return known


def _node_name(value: object) -> str:
    name = some_text(value)
    if len(name) > 64 or not _name_letters.union(".").issuperset(name):
        raise ValueError(f"{shown(name)} is no name of a node; use letters, digits, '-', '_' and '.'")
    return name


def _nodes(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to URLs, not {kind(value)}")
    found: dict[str, str] = {}
    for name, url in cast("Mapping[object, object]", value).items():
        parts = urlsplit(some_text(url))
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{shown(str(name))} must have a URL such as https://a.example:8080")
        found[_node_name(str(name))] = f"{parts.scheme}://{parts.netloc}"
    return MappingProxyType(found)


class GatewaySettings(Settings):
    """Settings of `mooring serve`."""

    profiles: Mapping[str, ProfileSettings] = setting(_profiles, default=EMPTY)
    """Parts of the catalog, each served at `/mcp/NAME`."""
    scopes: tuple[str, ...] = setting(list_of_text, default=())
    """Scopes that a token must have at `/mcp`."""
    tokens: tuple[TokenSettings, ...] = setting(_tokens, default=())
    """Fixed tokens of clients."""
    oauth: OAuthSettings | None = setting(optional(section(OAuthSettings)), default=None)
    """Signed tokens (JWT) of an authorization server."""
    url: str | None = setting(optional(_web_address), default=None)
    """Public address of the gateway, if it differs from the one it listens on."""
    public_url: str | None = setting(optional(_web_address), default=None)
    """Address at which browsers of users reach the gateway, for logins to servers; `url` when left out."""
    key: tuple[str, ...] = setting(_keys, default=())
    """One reference to a secret of at least 32 characters that encrypts stored logins of clients and seals
    ids between nodes; or a list of two, of which the first seals and both open. With it and `public_url`,
    users log in to servers through the gateway."""
    node: str | None = setting(optional(_node_name), default=None)
    """Name of this node in `nodes`; `--node` replaces it."""
    nodes: Mapping[str, str] = setting(_nodes, default=EMPTY)
    """All nodes that serve the same configuration, by name, each with the URL at which the others reach
    it."""
    cluster: ClusterSettings | None = setting(read_cluster, default=None)
    """Engine through which nodes find each other and agree; a text is its address, such as
    `nats://10.0.0.5:4222`. `--cluster` replaces it. Instead of `nodes`."""
    plain_nodes: bool = setting(flag, default=False)
    """Whether nodes on other machines may be reached over plain HTTP, for example in an encrypted network."""
    allowed_hosts: tuple[str, ...] = setting(list_of_text, default=())
    """Allowed names in the `Host` header beside addresses and `localhost`."""
    allowed_origins: tuple[str, ...] = setting(list_of_text, default=())
    """Origins of web pages that may call the gateway."""
    max_body: int = setting(within(size, least=1024), default=4 * 2**20)
    """Largest request in bytes."""
    body_timeout: float = setting(_duration, default=10.0)
    """Seconds to receive a whole request."""
    rate: float | None = setting(optional(_rate), default=None)
    """Requests per second of one client; None for no limit."""
    burst: int = setting(within(whole, least=1), default=64)
    """Requests of one client that `rate` lets through at once."""
    concurrency: int = setting(within(whole, least=1), default=256)
    """Concurrent requests of one client."""
    max_sessions: int = setting(within(whole, least=1), default=10_000)
    """Sessions of all clients together."""
    client_sessions: int = setting(within(whole, least=1), default=2_000)
    """Sessions of one client: one principal, or one address if no token is required. At the limit a new
    session ends the session of the client that was idle for longest."""
    max_connections: int = setting(within(whole, least=1), default=20_000)
    """Open connections."""
    audit: AuditSettings | None = setting(_audit, default=None)
    """Audit log of the gateway, instead of the host's."""
    drain: float = setting(seconds, default=10.0)
    """Seconds that running calls may take when the gateway shuts down."""
    tls: GatewayTls | None = setting(optional(section(GatewayTls)), default=None)
    """Certificate of the gateway; without it the gateway serves plain HTTP."""
    forwarded: ForwardedSettings | None = setting(optional(section(ForwardedSettings)), default=None)
    """Proxies in front of the gateway."""
    base_path: str = setting(_base_path, default="")
    """Prefix of all paths, such as `/tools`, if a proxy does not remove it."""
    access_log: AccessLogSettings | None = setting(read_access_log, default=None)
    """Log with one line for each request; a text is its path, `true` means standard error."""
    log: LogSettings | None = setting(optional(section(LogSettings)), default=None)
    """The application log."""
    metrics: MetricsSettings = setting(section(MetricsSettings), default=MetricsSettings())
    """What `/metrics` reports beyond the usual."""
    token_file: str | None = setting(optional(_file_name), default=None)
    """File of the tokens that `mooring token` creates. Default: in the state directory of the user."""


def read_extensions(value: object) -> Mapping[str, Mapping[str, Any]]:
    """Return the extensions that a host declares, each with its settings."""
    from mooring.config.validate import as_json
    from mooring.core.extensions import check_identifier

    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of extensions to their settings, not {kind(value)}")
    found: dict[str, Mapping[str, Any]] = {}
    for name, settings in cast("Mapping[object, object]", value).items():
        if settings is not None and not isinstance(settings, Mapping):
            raise ValueError(f"{shown(str(name))} must have a mapping of settings, not {kind(settings)}")
        found[check_identifier(str(name))] = as_json(cast("object", settings or {}))
    return MappingProxyType(found)
