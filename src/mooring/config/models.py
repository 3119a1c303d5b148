"""Validated configuration of servers and of the host. Secrets are still references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from mooring.config import validate
from mooring.config.sections import GatewaySettings, Policy, ScriptSettings, read_extensions
from mooring.config.validate import (
    Settings,
    flag,
    instance,
    kind,
    list_of_text,
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
from mooring.core.names import OWNER, look_alikes
from mooring.core.types import EMPTY
from mooring.core.value import Value, field

if TYPE_CHECKING:
    from mooring.config.audit import AuditSettings
    from mooring.config.shaping import GuardSettings, Transform

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
"""What happens to a result that breaks its output schema: a log line, an error, or nothing."""
T = TypeVar("T")

SILENCE = 60.0
"""Default of `idle_timeout` when `call_timeout` is the default too, in seconds."""
SMALLEST_BUDGET = 100
"""Least `result_budget` in tokens: the shortened result must say where the rest is."""
CALL = 600.0
"""Default of `call_timeout` in seconds."""

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


def _needs_caller(auth: object) -> bool:
    """Whether `auth` holds the settings of a token service, and callers have their own tokens there."""
    if not isinstance(auth, Mapping) or not {"idp", "exchange"} & set(cast("Mapping[str, Any]", auth)):
        return False
    from mooring.config.network import needs_caller

    return needs_caller(cast("Mapping[str, Any]", auth))


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


def _transforms(value: object) -> Mapping[str, Transform]:
    from mooring.config.shaping import transforms

    return transforms(value)


def _guards(value: object) -> GuardSettings | None:
    if value is None:
        return None
    from mooring.config.shaping import GuardSettings

    return section(GuardSettings)(value)


def _all_of(of: type[T]) -> Callable[[object], tuple[T, ...]]:
    one = instance(of)

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list, not {kind(value)}")
        return tuple(one(item) for item in cast("list[object]", value))

    return read


class ConfigWarning(Value):
    """A problem in the configuration that did not stop loading, and its place."""

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
    """Where an entry is written. Excluded from equality, so that moving an entry does not count as a
    change."""

    file: str | None = field(default=None, compare=False)
    scope: Scope = field(default="python", compare=False)


class Target(Value):
    """A server configuration with its secrets resolved, for one connection attempt."""

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
    sign: Callable[[str], Mapping[str, str]] | None = None
    """Returns further headers of one request with this method, for another node of a cluster."""

    def __repr__(self) -> str:
        """Names only, because any value may contain a secret."""
        kind = "url" if self.command is None else "command"
        return f"Target({kind}, env={sorted(self.env)}, headers={sorted(self.headers)})"


class CallerContext(Settings):
    """Information about the caller that servers receive."""

    passthrough: bool = setting(flag, default=False)
    """Calls carry `agent_id` and `session_id` in their `_meta`."""


class ServerConfig(Settings):
    """Configuration of one server. Strings may contain references (`${VAR}`), resolved when connecting."""

    name: str = setting(lambda value: validate.check_name(some_text(value)))
    """Name of the server: up to 128 printable characters without slashes."""
    transport: Transport = setting(one_of("stdio", "http", "streamable-http", "sse"), default="stdio")
    """Derived from `command` or `url` when left out."""
    command: str | None = setting(optional(some_text), default=None)
    """Program to run (stdio)."""
    args: tuple[str, ...] = setting(list_of_text, default=())
    """Arguments of the program, one item each."""
    env: Mapping[str, str] = setting(_texts_by_name, default=EMPTY)
    """Environment variables of the program, beside a small safe set."""
    cwd: str | None = setting(optional(some_text), default=None)
    """Working directory of the program."""
    url: str | None = setting(optional(lambda value: validate.check_url_text(some_text(value))), default=None)
    """Address of an HTTP server."""
    headers: Mapping[str, str] = setting(_headers, default=EMPTY)
    """HTTP headers of every request."""
    disabled: bool = setting(flag, default=False)
    """Whether the server is not started."""
    start: Literal["background", "lazy", "eager"] = setting(
        one_of("background", "lazy", "eager"), default="background"
    )
    """`background`: connect when the host starts, without waiting. `eager`: the host waits until connected.
    `lazy`: connect on first use."""
    isolation: Literal["shared", "session"] = setting(one_of("shared", "session"), default="shared")
    """`shared`: one connection for all sessions. `session`: one for each session."""
    placement: Literal["node", "cluster"] = setting(one_of("node", "cluster"), default="node")
    """`node`: each node of a gateway runs the server. `cluster`: one node runs it for all of them."""
    allow: tuple[str, ...] = setting(list_of_text, default=("*",))
    """Globs of the server's own tool names."""
    deny: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that are not listed, by the server's own names."""
    connect_timeout: float = setting(within(seconds, above=0, most=600), default=30.0)
    """Seconds for starting and the handshake, at most 600."""
    call_timeout: float = setting(_duration, default=CALL)
    """Seconds for a whole call."""
    idle_timeout: float | None = setting(optional(_duration), default=None)
    """Longest silence within a call, in seconds; progress resets it. None is 60 s if `call_timeout` has its
    default, otherwise no limit."""
    list_timeout: float = setting(_duration, default=30.0)
    """Seconds for reading each list."""
    probe_timeout: float = setting(_duration, default=5.0)
    """Seconds of silence after which the other protocol era is tried as well."""
    sweep_interval: float = setting(_duration, default=300.0)
    """Seconds between two listings of a connected server; a tenth of it, but at least 30 s, while the server
    is in use."""
    shutdown_grace: float = setting(seconds, default=2.0)
    """Seconds between closing the program's stdin and ending it."""
    max_concurrency: int | None = setting(optional(within(whole, least=1)), default=None)
    """Calls that run on the server at once; None for no limit. More calls wait in a queue."""
    max_queue: int = setting(within(whole, least=0), default=64)
    """Size of that queue. When it is full, a call fails at once (`Overloaded`)."""
    max_message: int = setting(within(size, least=1024), default=16 * 2**20)
    """Largest message in bytes."""
    idempotent: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools whose calls may be sent again when the outcome is unknown."""
    approve: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that need approval."""
    policy: Policy = setting(section(Policy), default=Policy())
    """Rules for the tools of this server. They can only make the host's policy stricter."""
    trust_hints: bool = setting(flag, default=False)
    """Whether policies trust the server's `readOnlyHint`."""
    min_protocol: str | None = setting(optional(validate.check_protocol), default=None)
    """The oldest protocol version that is accepted."""
    protocol: str = setting(validate.check_spoken, default="auto")
    """The only protocol version to use; `auto` negotiates one."""
    auth: Mapping[str, Any] | None = setting(_auth, default=None)
    """Login settings: fields of `AuthConfig`."""
    tls: Mapping[str, str] | None = setting(_tls, default=None)
    """Certificates for HTTP and logins: fields of `TlsSettings`."""
    proxy: str | None = setting(_proxy, default=None)
    """Proxy for this server and its login; `none` for no proxy; None uses the environment."""
    description: str | None = setting(optional(some_text), default=None)
    """Text for people and for tool search."""
    inherit_env: tuple[str, ...] = setting(list_of_text, default=())
    """Names of environment variables that the program inherits."""
    pins: Literal["block", "warn", "off"] | None = setting(
        optional(one_of("block", "warn", "off")), default=None
    )
    """What happens to tools that differ from the lock; None is `block` with a lock, else `warn`."""
    always: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of tools that the model always sees."""
    result_budget: int | None = setting(optional(_budget), default=None)
    """As the host's, for the results of this server."""
    output_schema: Conformance | None = setting(optional(one_of("warn", "strict", "off")), default=None)
    """As the host's, for the results of this server."""
    context: CallerContext | None = setting(optional(section(CallerContext)), default=None)
    """Caller information for this server; as the host's when left out."""
    transforms: Mapping[str, Transform] = setting(_transforms, default=EMPTY)
    """Changes of its tools, by the server's own names: names, descriptions, arguments, presets."""
    source: ConfigSource = setting(instance(ConfigSource), default=ConfigSource())
    """Where the entry is written. Set by the loader."""

    @classmethod
    def _completed(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        if given.get("transport") is None and given.get("url") is not None:
            given = {**given, "transport": "http"}
        if given.get("isolation") is None and _needs_caller(given.get("auth")):
            given = {**given, "isolation": "session"}
        return given

    def _check(self) -> None:
        if self.command is not None and self.url is not None:
            raise ValueError("has both 'command' and 'url'; keep the one that is meant")
        if self.command is None and self.url is None:
            raise ValueError("has neither 'command' (a program to run) nor 'url' (a server to reach)")
        if (self.transport == "stdio") != (self.command is not None):
            needed = "command" if self.transport == "stdio" else "url"
            raise ValueError(f"has transport {self.transport!r}, which needs {needed!r}")
        if self.isolation == "shared" and _needs_caller(self.auth):
            raise ValueError(
                "has 'auth' for each caller, which needs 'isolation: session'; remove 'isolation'"
            )
        if self.min_protocol is not None and self.protocol != "auto" and self.protocol < self.min_protocol:
            raise ValueError(
                f"has 'protocol' {self.protocol}, which is older than its 'min_protocol' {self.min_protocol}"
            )
        if self.policy.decide is not None or self.policy.timezone != "UTC":
            raise ValueError(
                "has 'decide' or 'timezone' in its 'policy'; only the policy of the host has them"
            )
        if self.scope == "project" and self.transforms:
            from mooring.config.shaping import asks_for_caller

            if asks_for_caller(self.transforms):
                raise ValueError(
                    "passes the principal, session or a header to the server with its 'transforms'; "
                    "project files found automatically may not do that"
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
        """The name and the target, without values of env, headers and query."""
        target = (
            f"command={self.command!r}"
            if self.url is None
            else f"url={self.url.split('?')[0].split('#')[0]!r}"
        )
        return (
            f"ServerConfig(name={self.name!r}, transport={self.transport!r}, {target}, "
            f"env={sorted(self.env)}, headers={sorted(self.headers)})"
        )

    def call_limits(self, timeout: float | None) -> tuple[float, float | None]:
        """Return the limits in seconds of a whole call and of silence within it; `timeout` is the caller's.

        A `call_timeout` with the default value counts as not given.
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
        """Yield every text that may contain references, with its field."""
        for place, text in (("command", self.command), ("cwd", self.cwd), ("url", self.url)):
            if text is not None:
                yield place, text
        yield from ((f"args[{i}]", text) for i, text in enumerate(self.args))
        yield from ((f"env.{name}", text) for name, text in self.env.items())
        yield from ((f"headers.{name}", text) for name, text in self.headers.items())
        yield from _texts_in("auth", self.auth or EMPTY)
        yield from ((f"tls.{name}", text) for name, text in (self.tls or {}).items())
        if self.proxy is not None:
            yield "proxy", self.proxy


def _texts_in(place: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, str):
            yield f"{place}.{name}", value
        elif isinstance(value, Mapping):
            yield from _texts_in(f"{place}.{name}", cast("Mapping[str, Any]", value))


class ResourceCache(Settings):
    """Settings of the cache of resource contents."""

    enabled: bool = setting(flag, default=True)
    """Whether contents are kept."""
    ttl: float = setting(_duration, default=30.0)
    """Seconds after which an entry is read again."""
    max_entries: int = setting(within(whole, least=1), default=256)
    """Entries that are kept; the least recently used one is dropped first."""


class HostContext(CallerContext):
    """Caller information for all servers, and resources for the model."""

    resources: tuple[str, ...] = setting(list_of_text, default=())
    """URIs or globs of resources that `ContextProvider` gives to the model."""
    budget: int = setting(within(whole, least=1), default=4000)
    """Tokens of these resources in one turn."""


class WatchSettings(Settings):
    """Settings for applying changed configuration files."""

    enabled: bool = setting(flag, default=False)
    """Whether changes of the files are applied while the host runs."""
    debounce: float = setting(_duration, default=0.2)
    """Seconds without a further change before the files are read."""


def look_alike_warnings(servers: Mapping[str, ServerConfig]) -> Iterator[ConfigWarning]:
    """Yield a warning for each server whose name looks like that of another, or of mooring's own tools."""
    for one, other in look_alikes((OWNER, *servers)):
        message = (
            f"looks like {shown(one)}: people and models may confuse them; consider renaming one of them"
        )
        yield ConfigWarning(file=servers[other].file, server=other, message=message)


class Withheld(Value):
    """Settings of a project file that do not apply because the file is not approved."""

    file: str
    settings: Mapping[str, Any] = EMPTY
    """Host-wide settings as written."""
    servers: tuple[ServerConfig, ...] = ()
    """Servers that would replace servers of the user with the same name."""


class HostConfig(Settings):
    """Configuration of all servers and of the host."""

    servers: tuple[ServerConfig, ...] = setting(_all_of(ServerConfig), default=())
    """The servers, with unique names."""
    enabled: bool = setting(flag, default=True)
    """Whether any server is active."""
    enabled_servers: tuple[str, ...] | None = setting(optional(list_of_text), default=None)
    """Names of the only servers that are active; None for all."""
    max_starting: int | None = setting(optional(within(whole, least=1)), default=None)
    """Programs that start at once; None for twice the CPUs. A start that a call waits for goes first. The
    time in the queue does not count toward `connect_timeout`."""
    style: Style = setting(one_of("mcp", "double", "server", "raw"), default="mcp")
    """How tools are named: `mcp_<server>_<tool>`, `mcp__<server>__<tool>` (`double`), `<server>_<tool>` or
    `<tool>` (`raw`)."""
    description_prefix: bool = setting(flag, default=False)
    """Whether tool descriptions begin with the name of the server."""
    discovery: Literal["auto", "always", "never"] = setting(one_of("auto", "always", "never"), default="auto")
    """Whether models search for tools instead of seeing all of them. `auto` decides by `discovery_budget`."""
    discovery_budget: int = setting(within(whole, least=0), default=8000)
    """Tokens of tool definitions above which `auto` turns discovery on."""
    extensions: Mapping[str, Mapping[str, Any]] = setting(read_extensions, default=EMPTY)
    """Extensions of the protocol that the application supports, by identifier, with their settings."""
    policy: Policy = setting(section(Policy), default=Policy())
    """Rules that allow, deny or ask for approval of calls."""
    result_budget: int = setting(_budget, default=25000)
    """Tokens of a result that a model sees (estimated); `result_read` returns the rest. 0 for no limit."""
    output_schema: Conformance = setting(one_of("warn", "strict", "off"), default="warn")
    """For a result that breaks its output schema: `warn` logs it, `strict` makes it an error."""
    artifacts: str | None = setting(optional(some_text), default=None)
    """Directory for a record of every call."""
    audit: AuditSettings | None = setting(_audit, default=None)
    """Audit log with a line for every call."""
    guards: GuardSettings | None = setting(_guards, default=None)
    """Checks before and after each call: `secrets`, `budget`."""
    session_ttl: float = setting(_duration, default=1800.0)
    """Seconds after which an idle session ends."""
    idle_reap_interval: float = setting(_duration, default=60.0)
    """Seconds between two searches for idle sessions."""
    resource_cache: ResourceCache = setting(section(ResourceCache), default=ResourceCache())
    """Cache of resource contents."""
    resource_uri_allowlist: tuple[str, ...] = setting(list_of_text, default=())
    """URI schemes of resources that may be read; empty for all."""
    roots: tuple[str, ...] = setting(list_of_text, default=())
    """Directories for `strict_root_paths`."""
    strict_root_paths: bool = setting(flag, default=False)
    """Whether `file:` resources must lie inside `roots`."""
    tls: Mapping[str, str] | None = setting(_tls, default=None)
    """As a server's, for servers without their own."""
    proxy: str | None = setting(_proxy, default=None)
    """As a server's, for servers without their own that are not on this machine."""
    context: HostContext = setting(section(HostContext), default=HostContext())
    """Caller information for servers, and resources for the model."""
    scripts: ScriptSettings = setting(section(ScriptSettings), default=ScriptSettings())
    """Programs that a model writes to call several tools at once."""
    watch: WatchSettings = setting(section(WatchSettings), default=WatchSettings())
    """Whether changed configuration files are applied."""
    gateway: GatewaySettings = setting(section(GatewaySettings), default=GatewaySettings())
    """Settings of `mooring serve`."""
    warnings: tuple[ConfigWarning, ...] = setting(_all_of(ConfigWarning), default=())
    """Problems found while loading. Set by the loader."""
    project_policy: Policy = setting(instance(Policy), default=Policy())
    """Policy of an approved project file, which applies beside `policy`. Set by the loader."""
    withheld: Withheld | None = setting(optional(instance(Withheld)), default=None)
    """Settings of an unapproved project file. Set by the loader."""

    def _check(self) -> None:
        counts = Counter(server.name for server in self.servers)
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"has several servers named {shown(twice[0])}; give each its own name")

    @classmethod
    def of(cls, servers: Iterable[ServerConfig]) -> Self:
        """Return a configuration of these servers with a warning for each that cannot be used.

        If several have the same name, the first is used.
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
        """Without the values of `tls` and `proxy`, which may contain a password."""
        shown = {**self.__dict__, "tls": sorted(self.tls or ()), "proxy": self.proxy and "…"}
        return f"HostConfig({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def active(self) -> tuple[ServerConfig, ...]:
        """The servers to start: not disabled, and in `enabled_servers` if that is set."""
        wanted = self.enabled_servers
        return tuple(
            server
            for server in self.servers
            if self.enabled and not server.disabled and (wanted is None or server.name in wanted)
        )
