"""Configuration as values: what may be reached and how, validated, with secrets still references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from mooring.config import validate
from mooring.config.sections import GatewaySettings, Policy
from mooring.config.units import kind, seconds, size
from mooring.config.validate import (
    Settings,
    flag,
    instance,
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
from mooring.core.names import OWNER, look_alikes
from mooring.core.types import EMPTY
from mooring.core.value import Value, field

if TYPE_CHECKING:
    from mooring.config.audit import AuditSettings

__all__ = [
    "ConfigSource",
    "ConfigWarning",
    "Conformance",
    "HostConfig",
    "Scope",
    "ServerConfig",
    "Style",
    "Target",
    "Transport",
    "Withheld",
    "look_alike_warnings",
]

Transport = Literal["stdio", "http", "streamable-http", "sse"]
"""`http` tries streamable HTTP and falls back to SSE; `streamable-http` does not fall back."""
Scope = Literal["explicit", "project", "user", "python"]
Style = Literal["mcp", "double", "server", "raw"]
Conformance = Literal["warn", "strict", "off"]
"""What happens to a result that breaks its output schema: a line in the log, an error, or nothing."""
T = TypeVar("T")

SILENCE = 60.0
"""Seconds of silence after which a call is given up, unless the configuration says otherwise."""
SMALLEST_BUDGET = 100
"""Estimated tokens: what is shown of a result has to say where the rest is."""
CALL = 600.0
"""Seconds that a call may take, unless the configuration says otherwise."""

_duration = within(seconds, above=0)


def _budget(value: object) -> int:
    tokens = within(whole, least=0)(value)
    if 0 < tokens < SMALLEST_BUDGET:
        raise ValueError(f"must be at least {SMALLEST_BUDGET}, or 0 for no limit")
    return tokens


def _texts_by_name(value: object) -> Mapping[str, str]:
    return MappingProxyType(validate.map_of_text(value))


def _headers(value: object) -> Mapping[str, str]:
    return validate.check_headers(_texts_by_name(value))


def _auth(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    from mooring.config.network import read_auth

    return read_auth(value)


def _tls(value: object) -> Mapping[str, str] | None:
    if value is None:
        return None
    from mooring.config.network import read_tls

    return read_tls(value)


def _proxy(value: object) -> str | None:
    if value is None:
        return None
    from mooring.config.network import read_proxy

    return read_proxy(value)


def _audit(value: object) -> AuditSettings | None:
    if value is None:
        return None
    from mooring.config.audit import read_audit

    return read_audit(value)


def _all_of(of: type[T]) -> Callable[[object], tuple[T, ...]]:
    one = instance(of)

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list, not {kind(value)}")
        return tuple(one(item) for item in cast("list[object]", value))

    return read


class ConfigWarning(Value):
    """Something in the configuration was set aside or ignored, and where it is written."""

    file: str | None = None
    server: str | None = None
    field: str | None = None
    message: str
    serious: bool = False
    """Whether a setting that protects something may be missing: `mooring serve` does not start."""

    def __str__(self) -> str:
        place = ", ".join(
            f"{word} {shown(name)}"
            for word, name in (("server", self.server), ("field", self.field))
            if name is not None
        )
        return ": ".join(part for part in (self.file, place, self.message) if part)


class ConfigSource(Value):
    """Where an entry was written. All sources are equal, so that moving an entry changes nothing else."""

    file: str | None = field(default=None, compare=False)
    scope: Scope = field(default="python", compare=False)


class Target(Value):
    """What to run or reach, with the secrets filled in: made for one connection attempt, then dropped."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = EMPTY
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = EMPTY
    auth: Mapping[str, Any] = EMPTY
    tls: Mapping[str, str] = EMPTY
    proxy: str | None = None
    secrets: tuple[str, ...] = ()
    """Values that came from references, longest first, for redaction."""

    def __repr__(self) -> str:
        """Names only: any value may hold a secret by now."""
        way = "url" if self.command is None else "command"
        return f"Target({way}, env={sorted(self.env)}, headers={sorted(self.headers)})"


class Context(Settings):
    """What servers are told of who calls."""

    passthrough: bool = setting(flag, default=False)
    """Calls carry `agent_id` and `session_id` in their `_meta`."""


class ServerConfig(Settings):
    """How to reach one server. Strings may hold references (`${VAR}`), resolved when connecting."""

    name: str = setting(lambda value: validate.check_name(some_text(value)))
    transport: Transport = setting(one_of("stdio", "http", "streamable-http", "sse"), default="stdio")
    """Follows from `command` or `url` when left out."""
    command: str | None = setting(optional(some_text), default=None)
    args: tuple[str, ...] = setting(list_of_text, default=())
    env: Mapping[str, str] = setting(_texts_by_name, default=EMPTY)
    cwd: str | None = setting(optional(some_text), default=None)
    url: str | None = setting(optional(lambda value: validate.check_url_text(some_text(value))), default=None)
    headers: Mapping[str, str] = setting(_headers, default=EMPTY)
    disabled: bool = setting(flag, default=False)
    start: Literal["background", "lazy", "eager"] = setting(
        one_of("background", "lazy", "eager"), default="background"
    )
    isolation: Literal["shared", "session"] = setting(one_of("shared", "session"), default="shared")
    allow: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of the server's own tool names."""
    deny: tuple[str, ...] = setting(list_of_text, default=())
    connect_timeout: float = setting(within(seconds, above=0, most=600), default=30.0)
    call_timeout: float = setting(_duration, default=CALL)
    idle_timeout: float | None = setting(optional(_duration), default=None)
    """Longest silence within a call; progress resets it. 60 s where neither this nor `call_timeout` is
    given, so that a silent call ends after a minute and one that reports progress after ten."""
    list_timeout: float = setting(_duration, default=30.0)
    probe_timeout: float = setting(_duration, default=5.0)
    sweep_interval: float = setting(_duration, default=300.0)
    """Longest time between two listings of a connected server; a tenth of it, but at least 30 s, while the
    server is in use."""
    shutdown_grace: float = setting(seconds, default=2.0)
    max_concurrency: int | None = setting(optional(within(whole, least=1)), default=None)
    """Calls that the server gets at once; no limit by default. More calls wait in a queue."""
    max_queue: int = setting(within(whole, least=0), default=64)
    """Calls that may wait in that queue. A call that finds it full fails at once (`Overloaded`)."""
    max_message: int = setting(within(size, least=1024), default=16 * 2**20)
    """Bytes of one message."""
    idempotent: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that may be sent again when the outcome is unknown."""
    approve: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that need a yes."""
    policy: Policy = setting(section(Policy), default=Policy())
    """Which tools are called, asked for or denied: only ever stricter than the host's own policy."""
    trust_hints: bool = setting(flag, default=False)
    """Whether the server's word that a tool is read-only counts."""
    min_protocol: str | None = setting(optional(validate.check_protocol), default=None)
    """An older protocol than this one is refused."""
    protocol: str = setting(validate.check_spoken, default="auto")
    """The one protocol version to speak; `auto` picks one that suits the server and its callers."""
    auth: Mapping[str, Any] | None = setting(_auth, default=None)
    """How to log in: the given fields of `AuthConfig`."""
    tls: Mapping[str, str] | None = setting(_tls, default=None)
    """Whom to trust and as whom to speak, over HTTP and in logins: the given fields of `TlsSettings`."""
    proxy: str | None = setting(_proxy, default=None)
    """The proxy for all that concerns this server; `none` goes without; left out, as the environment says."""
    description: str | None = setting(optional(some_text), default=None)
    inherit_env: tuple[str, ...] = setting(list_of_text, default=())
    """Names of variables that the child process gets from ours."""
    pins: Literal["block", "warn", "off"] | None = setting(
        optional(one_of("block", "warn", "off")), default=None
    )
    """What happens to tools that are not what was pinned; by default `block` with a lock, else `warn`."""
    always: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that the model always sees."""
    result_budget: int | None = setting(optional(_budget), default=None)
    """As the host's, for the results of this server."""
    output_schema: Conformance | None = setting(optional(one_of("warn", "strict", "off")), default=None)
    context: Context | None = setting(optional(section(Context)), default=None)
    source: ConfigSource = setting(instance(ConfigSource), default=ConfigSource())
    """Set by the loader, never by a file."""

    @classmethod
    def _completed(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        if given.get("transport") is None and given.get("url") is not None:
            return {**given, "transport": "http"}
        return given

    def _check(self) -> None:
        if self.command is not None and self.url is not None:
            raise ValueError("has both 'command' and 'url'; keep the one that is meant")
        if self.command is None and self.url is None:
            raise ValueError("has neither 'command' (a program to run) nor 'url' (a server to reach)")
        if (self.transport == "stdio") != (self.command is not None):
            needed = "command" if self.transport == "stdio" else "url"
            raise ValueError(f"has transport {self.transport!r}, which needs {needed!r}")
        if self.min_protocol is not None and self.protocol != "auto" and self.protocol < self.min_protocol:
            raise ValueError(
                f"has 'protocol' {self.protocol}, which is older than its 'min_protocol' {self.min_protocol}"
            )
        if self.command is not None:
            try:
                validate.check_command(self.command, has_args=bool(self.args))
            except ValueError as problem:
                raise ValueError(f"'command' {problem}") from None

    @classmethod
    def _place(cls, given: Mapping[str, object]) -> str | None:
        name = given.get("name")
        return f"server {shown(name)}" if isinstance(name, str) else None

    def __repr__(self) -> str:
        """Enough to know it by; of env, headers and url, nothing that could be a secret."""
        way = (
            f"command={self.command!r}"
            if self.url is None
            else f"url={self.url.split('?')[0].split('#')[0]!r}"
        )
        return (
            f"ServerConfig(name={self.name!r}, transport={self.transport!r}, {way}, "
            f"env={sorted(self.env)}, headers={sorted(self.headers)})"
        )

    def call_limits(self, timeout: float | None) -> tuple[float, float | None]:
        """How long a call may take in all, and how long it may be silent; `timeout` is the caller's own.

        A `call_timeout` that is the default counts as not given.
        """
        if timeout is not None:
            return timeout, self.idle_timeout
        if self.idle_timeout is None and self.call_timeout == CALL:
            return self.call_timeout, SILENCE
        return self.call_timeout, self.idle_timeout

    @property
    def file(self) -> str | None:
        return self.source.file

    @property
    def scope(self) -> Scope:
        return self.source.scope

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text that may hold references, with the field it stands in."""
        for place, text in (("command", self.command), ("cwd", self.cwd), ("url", self.url)):
            if text is not None:
                yield place, text
        yield from ((f"args[{i}]", text) for i, text in enumerate(self.args))
        yield from ((f"env.{name}", text) for name, text in self.env.items())
        yield from ((f"headers.{name}", text) for name, text in self.headers.items())
        for name, text in (self.auth or {}).items():
            if isinstance(text, str):
                yield f"auth.{name}", text
        yield from ((f"tls.{name}", text) for name, text in (self.tls or {}).items())
        if self.proxy is not None:
            yield "proxy", self.proxy


class ResourceCache(Settings):
    """What was read of resources is kept for a while."""

    enabled: bool = setting(flag, default=True)
    ttl: float = setting(_duration, default=30.0)
    max_entries: int = setting(within(whole, least=1), default=256)


class HostContext(Context):
    """The same for all servers, and what of theirs a model is given before a turn."""

    resources: tuple[str, ...] = setting(list_of_text, default=())
    """URIs, or globs of them, that `ContextProvider` hands to the model."""
    budget: int = setting(within(whole, least=1), default=4000)
    """Tokens that these may take in one turn."""


class WatchSettings(Settings):
    """Whether changed files are taken over."""

    enabled: bool = setting(flag, default=False)
    debounce: float = setting(_duration, default=0.2)


def look_alike_warnings(servers: Mapping[str, ServerConfig]) -> Iterator[ConfigWarning]:
    """Yield a warning for each server whose name looks like that of another, or of mooring's own tools."""
    for one, other in look_alikes((OWNER, *servers)):
        message = (
            f"looks like {shown(one)}: people and models may confuse them; consider renaming one of them"
        )
        yield ConfigWarning(file=servers[other].file, server=other, message=message)


class Withheld(Value):
    """What a project file that was found sets, and that is not in force because it is not approved."""

    file: str
    settings: Mapping[str, Any] = EMPTY
    """Host-wide settings, as they are written."""
    servers: tuple[ServerConfig, ...] = ()
    """Servers that would replace the user's own of the same name."""


class HostConfig(Settings):
    """All servers plus the host-wide settings, and the warnings met while loading."""

    servers: tuple[ServerConfig, ...] = setting(_all_of(ServerConfig), default=())
    enabled: bool = setting(flag, default=True)
    enabled_servers: tuple[str, ...] | None = setting(optional(list_of_text), default=None)
    """When given, only these are active."""
    max_starting: int | None = setting(optional(within(whole, least=1)), default=None)
    """Child processes that start at once; twice the number of CPUs by default. A start that a call waits for
    goes first. The time in the queue does not count toward `connect_timeout`."""
    style: Style = setting(one_of("mcp", "double", "server", "raw"), default="mcp")
    description_prefix: bool = setting(flag, default=False)
    discovery: Literal["auto", "always", "never"] = setting(one_of("auto", "always", "never"), default="auto")
    discovery_budget: int = setting(within(whole, least=0), default=8000)
    """Tokens of tool definitions above which `auto` turns discovery on."""
    policy: Policy = setting(section(Policy), default=Policy())
    """Which tools are called, asked for or denied."""
    result_budget: int = setting(_budget, default=25000)
    """Estimated tokens of a result that a model is shown; the rest is kept for `result_read`. 0: no limit."""
    output_schema: Conformance = setting(one_of("warn", "strict", "off"), default="warn")
    artifacts: str | None = setting(optional(some_text), default=None)
    """Directory that gets a record of every call."""
    audit: AuditSettings | None = setting(_audit, default=None)
    """A file that gets a line for every call: who, what, and how it ended."""
    session_ttl: float = setting(_duration, default=1800.0)
    idle_reap_interval: float = setting(_duration, default=60.0)
    resource_cache: ResourceCache = setting(section(ResourceCache), default=ResourceCache())
    resource_uri_allowlist: tuple[str, ...] = setting(list_of_text, default=())
    """Schemes of resources that may be read; empty allows all."""
    roots: tuple[str, ...] = setting(list_of_text, default=())
    """Folders, for `strict_root_paths`."""
    strict_root_paths: bool = setting(flag, default=False)
    """Whether `file:` resources must lie inside `roots`."""
    tls: Mapping[str, str] | None = setting(_tls, default=None)
    """As a server's, for those that have none of their own."""
    proxy: str | None = setting(_proxy, default=None)
    """As a server's, for those that have none of their own and are not on this machine."""
    context: HostContext = setting(section(HostContext), default=HostContext())
    watch: WatchSettings = setting(section(WatchSettings), default=WatchSettings())
    gateway: GatewaySettings = setting(section(GatewaySettings), default=GatewaySettings())
    warnings: tuple[ConfigWarning, ...] = setting(_all_of(ConfigWarning), default=())
    project_policy: Policy = setting(instance(Policy), default=Policy())
    """The policy of an approved project file, which applies beside `policy`. Set by the loader alone."""
    withheld: Withheld | None = setting(optional(instance(Withheld)), default=None)
    """Set by the loader alone."""

    def _check(self) -> None:
        counts = Counter(server.name for server in self.servers)
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"has several servers named {shown(twice[0])}; give each its own name")

    @classmethod
    def of(cls, servers: Iterable[ServerConfig]) -> Self:
        """Return a configuration of these servers with a warning for each that cannot be used as given.

        Of several with the same name, the first counts.
        """
        found: dict[str, ServerConfig] = {}
        warnings: list[ConfigWarning] = []
        for server in _all_of(ServerConfig)(tuple(servers)):
            if found.setdefault(server.name, server) is not server:
                message = "is ignored: an earlier server has the same name; give each its own name"
                warnings.append(ConfigWarning(file=server.file, server=server.name, message=message))
        warnings += look_alike_warnings(found)
        return cls(servers=tuple(found.values()), warnings=tuple(warnings))

    def __repr__(self) -> str:
        """Without the values of `tls` and `proxy`: they may hold a password."""
        shown = {**self.__dict__, "tls": sorted(self.tls or ()), "proxy": self.proxy and "…"}
        return f"HostConfig({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def active(self) -> tuple[ServerConfig, ...]:
        """The servers that shall run: not disabled, and among `enabled_servers` when that is given."""
        wanted = self.enabled_servers
        return tuple(
            server
            for server in self.servers
            if self.enabled and not server.disabled and (wanted is None or server.name in wanted)
        )
