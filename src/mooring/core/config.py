"""Configuration as values: what may be reached and how, validated, with secrets still references."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from mooring.core import checks
from mooring.core.checks import shown
from mooring.core.durations import seconds, size
from mooring.core.problems import InvalidEntryError, problems_of

__all__ = [
    "ConfigWarning",
    "HostConfig",
    "Plan",
    "Scope",
    "ServerConfig",
    "Source",
    "Style",
    "Target",
    "Transport",
    "fingerprint",
    "plan",
]

Transport = Literal["stdio", "http", "streamable-http", "sse"]
"""`http` tries streamable HTTP and falls back to SSE; `streamable-http` does not fall back."""
Scope = Literal["explicit", "project", "user", "python"]
Style = Literal["mcp", "double", "server", "raw"]

Texts = Annotated[tuple[str, ...], BeforeValidator(checks.list_of_text)]
TextMap = Annotated[
    Mapping[str, str],
    BeforeValidator(checks.map_of_text),
    AfterValidator(MappingProxyType),
    PlainSerializer(dict),
]
Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0)]
SILENCE = 60.0
"""Seconds of silence after which a call is given up, unless the configuration says otherwise."""


def _as_dict(data: object) -> dict[str, Any]:
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _read_only(value: Mapping[str, Any] | str | None) -> Mapping[str, Any] | str | None:
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


def _plain(value: object) -> object:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning:
    """Something in the configuration was set aside or ignored, and where it is written."""

    file: str | None = None
    server: str | None = None
    field: str | None = None
    message: str

    def __str__(self) -> str:
        place = ", ".join(
            f"{word} {shown(name)}"
            for word, name in (("server", self.server), ("field", self.field))
            if name is not None
        )
        return ": ".join(part for part in (self.file, place, self.message) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an entry was written. All sources are equal, so that moving an entry changes nothing else."""

    file: str | None = field(default=None, compare=False)
    scope: Scope = field(default="python", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to run or reach, with the secrets filled in: made for one connection attempt, then dropped."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    """Values that came from references, longest first, for redaction."""

    def __repr__(self) -> str:
        """Names only: any value may hold a secret by now."""
        way = "url" if self.command is None else "command"
        return f"Target({way}, env={sorted(self.env)}, headers={sorted(self.headers)})"


class _Model(BaseModel):
    # Input is hidden because pydantic's messages would repeat it, and it may be a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ServerConfig(_Model):
    """How to reach one server. Strings may hold references (`${VAR}`), resolved when connecting."""

    name: Annotated[str, AfterValidator(checks.check_name)]
    transport: Transport = "stdio"
    """Follows from `command` or `url` when left out."""
    command: str | None = None
    args: Texts = ()
    env: TextMap = Field(default_factory=_nothing)
    cwd: str | None = None
    url: Annotated[str, AfterValidator(checks.check_url_text)] | None = None
    headers: Annotated[TextMap, AfterValidator(checks.check_headers)] = Field(default_factory=_nothing)
    disabled: bool = False
    start: Literal["background", "lazy", "eager"] = "background"
    isolation: Literal["shared", "session"] = "shared"
    allow: Texts = ("*",)
    """Globs of the server's own tool names."""
    deny: Texts = ()
    connect_timeout: Annotated[Duration, Field(le=600)] = 30.0
    call_timeout: Duration = 600.0
    idle_timeout: Duration | None = None
    """Longest silence within a call; progress resets it. 60 s where neither this nor `call_timeout` is
    given, so that a silent call ends after a minute and one that reports progress after ten."""
    list_timeout: Duration = 30.0
    probe_timeout: Duration = 5.0
    sweep_interval: Duration = 300.0
    """How often the lists of a server that announces no changes are read again."""
    shutdown_grace: Annotated[float, BeforeValidator(seconds)] = 2.0
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    max_message: Annotated[int, BeforeValidator(size), Field(ge=1024)] = 16 * 2**20
    """Bytes of one message."""
    idempotent: Texts = ()
    """Globs of tools that may be sent again when the outcome is unknown."""
    approve: Texts = ()
    """Globs of tools that need a yes."""
    auth: Annotated[
        Mapping[str, Any] | str | None,
        BeforeValidator(checks.check_auth),
        AfterValidator(_read_only),
        PlainSerializer(_plain),
    ] = None
    """Kept as written for the code that signs in."""
    description: str | None = None
    inherit_env: Texts = ()
    """Names of variables that the child process gets from ours."""
    pins: Literal["block", "warn", "off"] | None = None
    """What happens to tools that are not what was pinned; by default `block` with a lock, else `warn`."""
    always: Texts = ()
    """Globs of tools that the model always sees."""
    source: SkipJsonSchema[InstanceOf[Source]] = Field(default=Source(), exclude=True)
    """Set by the loader, never by a file."""

    @model_validator(mode="before")
    @classmethod
    def _infer_transport(cls, data: Any) -> Any:
        given = _as_dict(data)
        if given.get("transport") is None and given.get("url") is not None:
            return {**given, "transport": "http"}
        return cast("object", data)

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.command is not None and self.url is not None:
            raise ValueError("has both 'command' and 'url'; keep the one that is meant")
        if self.command is None and self.url is None:
            raise ValueError("has neither 'command' (a program to run) nor 'url' (a server to reach)")
        if (self.transport == "stdio") != (self.command is not None):
            needed = "command" if self.transport == "stdio" else "url"
            raise ValueError(f"has transport {self.transport!r}, which needs {needed!r}")
        if self.command is not None:
            try:
                checks.check_command(self.command, has_args=bool(self.args))
            except ValueError as problem:
                raise ValueError(f"'command' {problem}") from None
        return self

    # Last, so that it stands around the other validators.
    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            name = _as_dict(data).get("name")
            place = f"server {shown(name)}" if isinstance(name, str) else None
            raise InvalidEntryError(problems_of(error, cls.model_fields), place=place) from None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Enough to know it by; of env, headers and url, nothing that could be a secret."""
        yield "name", self.name
        yield "transport", self.transport
        if self.command is not None:
            yield "command", self.command
        if self.url is not None:
            yield "url", self.url.split("?")[0]
        yield "env", sorted(self.env)
        yield "headers", sorted(self.headers)

    def call_limits(self, timeout: float | None) -> tuple[float, float | None]:
        """How long a call may take in all, and how long it may be silent; `timeout` is the caller's own."""
        if timeout is not None:
            return timeout, self.idle_timeout
        if self.idle_timeout is None and "call_timeout" not in self.model_fields_set:
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


class ResourceCache(_Model):
    enabled: bool = True
    ttl: Duration = 30.0
    max_entries: Annotated[int, Field(ge=1)] = 256


class Context(_Model):
    passthrough: bool = False
    """Calls carry `agent_id` and `session_id` in their `_meta`."""


class Watch(_Model):
    enabled: bool = False
    debounce: Duration = 0.2


class HostConfig(_Model):
    """All servers plus the host-wide settings, and the warnings met while loading."""

    servers: tuple[ServerConfig, ...] = ()
    enabled: bool = True
    enabled_servers: Texts | None = None
    """When given, only these are active."""
    style: Style = "mcp"
    description_prefix: bool = False
    discovery: Literal["auto", "always", "never"] = "auto"
    discovery_budget: Annotated[int, Field(ge=0)] = 8000
    """Tokens of tool definitions above which `auto` turns discovery on."""
    result_budget: Annotated[int, Field(ge=1)] = 25000
    session_ttl: Duration = 1800.0
    idle_reap_interval: Duration = 60.0
    resource_cache: ResourceCache = ResourceCache()
    resource_uri_allowlist: Texts = ()
    strict_root_paths: bool = False
    context: Context = Context()
    watch: Watch = Watch()
    warnings: tuple[InstanceOf[ConfigWarning], ...] = Field(default=(), exclude=True)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [server.name for server in self.servers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"has several servers named {shown(twice[0])}; give each its own name")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise InvalidEntryError(problems_of(error, cls.model_fields)) from None

    @property
    def active(self) -> tuple[ServerConfig, ...]:
        """The servers that shall run: not disabled, and among `enabled_servers` when that is given."""
        wanted = self.enabled_servers
        return tuple(
            server
            for server in self.servers
            if self.enabled and not server.disabled and (wanted is None or server.name in wanted)
        )


_SAFE = ("transport", "command", "args", "cwd", "inherit_env")
_SHAPE = ("env", "headers", "auth")


def fingerprint(server: ServerConfig) -> str:
    """A hash of what decides what is run or reached: it may be stored and shown.

    Literal values of `env`, `headers`, `auth` and of the URL's query are left out, since a short
    secret could be found again by hashing guesses; their names and the references in them are in.
    `command`, `args` and the rest of the URL are in as written: they *are* what is run or reached,
    and any process may see them anyway. So two servers that differ only in a literal value share a
    fingerprint: to notice such an edit, compare the values themselves, as `plan` does.
    """
    launch: dict[str, Any] = {name: getattr(server, name) for name in _SAFE}
    launch |= {name: checks.reference_names(getattr(server, name)) for name in _SHAPE}
    if server.url is not None:
        parts = urlsplit(server.url)
        query = [
            (name, checks.reference_names(value))
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ]
        launch["url"] = [parts._replace(query="", fragment="").geturl(), query]
    return hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What turns the running servers into the wanted ones. Entries are the new ones; `stop` holds names."""

    start: tuple[ServerConfig, ...] = ()
    stop: tuple[str, ...] = ()
    restart: tuple[ServerConfig, ...] = ()
    """The connection itself is another one."""
    keep: tuple[ServerConfig, ...] = ()
    """The connection stays; what governs its use (filters, time-outs) may have changed."""


_CONNECTION = (*_SAFE, *_SHAPE, "url", "isolation", "max_message")


def plan(old: HostConfig, new: HostConfig) -> Plan:
    """The steps from the active servers of `old` to those of `new`; only what changed reconnects."""
    before = {server.name: server for server in old.active}
    after = {server.name: server for server in new.active}
    both = [(before[name], server) for name, server in after.items() if name in before]

    def same(one: ServerConfig, two: ServerConfig) -> bool:
        return all(getattr(one, name) == getattr(two, name) for name in _CONNECTION)

    return Plan(
        start=tuple(server for name, server in after.items() if name not in before),
        stop=tuple(name for name in before if name not in after),
        restart=tuple(two for one, two in both if not same(one, two)),
        keep=tuple(two for one, two in both if same(one, two)),
    )
