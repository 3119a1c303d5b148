"""Accepted formats of configuration files, reduced to server entries and host-wide settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import Any, cast, get_args

from mooring.config.audit import AuditSettings
from mooring.config.models import HostConfig, ServerConfig, Transport
from mooring.config.sections import GatewaySettings, Policy
from mooring.config.shaping import GuardSettings
from mooring.config.validate import Problem, flag, kind, misspelled, number, seconds, shown
from mooring.core.text import did_you_mean

_KNOWN = ServerConfig.field_names() - {"name", "source"}
_ALIASES = {
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "working_dir": "cwd",
    "working_directory": "cwd",
    "http_url": "url",
    "server_url": "url",
    "uri": "url",
    "type": "transport",
    "transport_type": "transport",
    "http_headers": "headers",
    "include_tools": "allow",
    "enabled_tools": "allow",
    "available_tools": "allow",
    "allowed_tools": "allow",
    "tool_filter": "allow",
    "tool_allowlist": "allow",
    "exclude_tools": "deny",
    "disabled_tools": "deny",
}
_DURATION_ALIASES = {
    "startup_timeout": "connect_timeout",
    "tool_timeout": "call_timeout",
    "tool_call_timeout": "call_timeout",
    "request_timeout": "call_timeout",
}
_TRANSPORTS = {"local": "stdio", "remote": "http", "auto": "http", "streamablehttp": "streamable-http"}
# Fields of other programs that have no effect on the server.
IGNORED = frozenset(
    (
        *("always_allow", "auto_approve", "bundled", "dev", "display_name", "gallery", "icon", "id"),
        *("environment_id", "log_level", "required", "source", "startup", "trust", "version"),
    )
)
# Fields of other programs whose absence may change the behaviour of the server.
_UNSUPPORTED = {
    "env_file": "write the variables under 'env', as ${VAR} where they are secret",
    "headers_helper": "write the headers under 'headers', as ${cmd:…} in the user's own file",
    "http_headers_helper": "write the headers under 'headers', as ${cmd:…} in the user's own file",
    "bearer_token": "write it under 'headers' as Authorization: \"Bearer ${VAR}\"",
    "exclude_tags": "name the tools under 'deny'",
    "include_tags": "name the tools under 'allow'",
    "init_timeout": "write 'connect_timeout' with a unit, such as '30s'",
    "http_timeout_seconds": "write 'connect_timeout' with a unit, such as '30s'",
    "read_timeout_seconds": "write 'call_timeout' with a unit, such as '60s'",
    "sandbox": "mooring does not confine servers; put the confinement into 'command'",
    "sandbox_enabled": "mooring does not confine servers; put the confinement into 'command'",
}


class Entry:
    """A server entry under the names of `ServerConfig`, not yet validated."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.written: dict[str, str] = {}
        """Spelling of each field in the file."""
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        """Notes about ignored fields."""

    def put(self, key: str, name: str, value: object) -> None:
        if name == "headers" and isinstance(value, Mapping) and isinstance(self.fields.get(name), Mapping):
            value = {**self.fields[name], **cast("Mapping[str, object]", value)}
        elif name in self.fields and self.fields[name] != value:
            raise ValueError(f"differs from {self.written[name]!r}; keep one of them")
        self.fields[name] = value
        self.written[name] = key


def server_fields(raw: Mapping[str, Any], *, own: bool) -> Entry:
    """Return the entry `raw` with our field names.

    An unknown field is an error in mooring's own files and if it looks like a misspelling, because it may
    have been a restriction; otherwise it belongs to another program and is ignored.
    """
    entry = Entry()
    for key, value in _flattened(raw).items():
        name = snake(key)
        if value is None or name in IGNORED:
            continue
        try:
            if name in _UNSUPPORTED:
                entry.notes.append(Problem(field=key, message=f"is ignored; {_UNSUPPORTED[name]}"))
            elif name in _SPECIAL:
                for known, part in _SPECIAL[name](value).items():
                    entry.put(key, known, part)
            elif found := canonical(name, value, known=_KNOWN, aliases=_ALIASES):
                entry.put(key, *found)
            else:
                _unknown_field(entry, key, name, own=own)
        except ValueError as problem:
            entry.problems.append(Problem(field=key, message=str(problem)))
    return entry


def canonical(
    name: str, value: object, *, known: frozenset[str], aliases: Mapping[str, str]
) -> tuple[str, object] | None:
    """Return the field for `name` and its value (in seconds if the name has a unit); None if unknown."""
    name = snake(name)
    name = aliases.get(name, name)
    if name in known:
        return name, value
    found = re.fullmatch(r"(\w+?)(?:_(ms|seconds|secs|sec))?", name)
    base = _DURATION_ALIASES.get(found[1], found[1]) if found else name
    if found is None or base not in known:
        return None
    return base, _milliseconds(value) if found[2] == "ms" else seconds(value)


def _unknown_field(entry: Entry, key: str, name: str, *, own: bool) -> None:
    near = did_you_mean(name, _KNOWN | _ALIASES.keys() | _SPECIAL.keys() | _DURATION_ALIASES.keys())
    if near:
        raise ValueError(f"is not a known field; did you mean {near!r}?")
    if own:
        raise ValueError("is not a known field; remove it")
    entry.notes.append(Problem(field=key, message="is not a field that mooring knows, and is ignored"))


def snake(key: str) -> str:
    """Return a key in our spelling."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()


def _flattened(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return `raw` with the content of `transport: {…}` and `command: {…}` moved up one level."""
    flat: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping) and snake(key) in ("transport", "command", "type"):
            inner = dict(cast("Mapping[str, Any]", value))
            if "path" in inner:
                inner["command"] = inner.pop("path")
            mode = inner.pop("mode", None)
            if mode is not None and str(inner.get("type", "http")).lower() == "http":
                inner["type"] = mode
            if "type" in inner:
                inner["transport"] = inner.pop("type")
            flat |= inner
        else:
            flat[key] = value
    return flat


def _milliseconds(value: object) -> float:
    plain = number(value)
    if plain is None or plain < 0:
        raise ValueError("must be a number of milliseconds, not negative")
    return plain / 1000


def _bare_timeout(value: object) -> dict[str, Any]:
    plain = number(value)
    if plain is None or plain <= 600:
        return {"connect_timeout": seconds(value)}
    if plain >= 1000:
        return {"call_timeout": plain / 1000}
    raise ValueError(
        "is ambiguous: at most 600 means seconds, 1000 and more means milliseconds; "
        "write 'connect_timeout' or 'call_timeout' with a unit, such as '30s'"
    )


def _transport(value: object) -> dict[str, Any]:
    if not isinstance(value, str):
        raise ValueError(f"must be text such as 'stdio' or 'http', not {kind(value)}")
    text = value.strip().lower().replace("_", "-")
    return {"transport": _TRANSPORTS.get(text, text)}


def _protocol(value: object) -> dict[str, Any]:
    """A version of the protocol, or `auto`; in the files of some programs the transport."""
    version = _version(value)
    given = _transport(version) if isinstance(version, str) else {}
    if given.get("transport") in get_args(Transport) and version != "auto":
        return given
    return {"protocol": version}


def _version(value: object) -> object:
    # Without quotes a version is a date in YAML and TOML.
    return value.isoformat() if type(value) is date else value


def _command(value: object) -> dict[str, Any]:
    if not isinstance(value, list):
        return {"command": value}
    words = cast("list[object]", value)
    if not words:
        raise ValueError("must name a program")
    return {"command": words[0], **({"args": words[1:]} if words[1:] else {})}


def _enabled(value: object) -> dict[str, Any]:
    return {"disabled": not flag(value)}


def _always_load(value: object) -> dict[str, Any]:
    return {"always": ["*"]} if flag(value) else {}


def _tools(value: object) -> dict[str, Any]:
    # As a mapping it holds other programs' settings per tool.
    return {} if isinstance(value, Mapping) else {"allow": value}


def _tool_filters(value: object) -> dict[str, Any]:
    given = _mapping(value)
    names = {"allowed": "allow", "rejected": "deny"}
    return {ours: given[theirs] for theirs, ours in names.items() if theirs in given}


def _require_approval(value: object) -> dict[str, Any]:
    always = cast("object", value) if isinstance(value, list) else _mapping(value).get("always")
    return {} if always is None else {"approve": always}


def _oauth(value: object) -> dict[str, Any]:
    return {} if value in (False, "false") else {"auth": {} if value in (True, "true") else value}


def _bearer(value: object) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {_variable(value)}"}}


def _env_headers(value: object) -> dict[str, Any]:
    return {"headers": {header: _variable(name) for header, name in _mapping(value).items()}}


def _inherit(value: object) -> dict[str, Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of variable names, not {kind(value)}")
    items = cast("list[object]", value)
    return {"inherit_env": [item if isinstance(item, str) else _mapping(item).get("name") for item in items]}


def _variable(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return f"${{{value}}}"
    raise ValueError("must name an environment variable, not hold the value itself")


def _mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    raise ValueError(f"must be a mapping, not {kind(value)}")


_SPECIAL: dict[str, Callable[[object], dict[str, Any]]] = {
    "active": _enabled,
    "always_load": _always_load,
    "bearer_token_env_var": _bearer,
    "cmd": _command,
    "command": _command,
    "enabled": _enabled,
    "env_http_headers": _env_headers,
    "env_keys": _inherit,
    "env_vars": _inherit,
    "oauth": _oauth,
    "min_protocol": lambda value: {"min_protocol": _version(value)},
    "protocol": _protocol,
    "require_approval": _require_approval,
    "timeout": _bare_timeout,
    "timeout_ms": lambda value: {"call_timeout": _milliseconds(value)},
    "timeout_seconds": lambda value: {"connect_timeout": seconds(value)},
    "tool_filters": _tool_filters,
    "tools": _tools,
    "transport": _transport,
    "transport_type": _transport,
    "type": _transport,
}


UNITS_IN_SECTIONS = frozenset({"debounce", "ttl"})
"""Durations inside sections whose names may end with a unit, such as `debounce_ms`."""
FOREIGN_FIELDS = frozenset((*_ALIASES, *_SPECIAL, *_UNSUPPORTED, *_DURATION_ALIASES, *IGNORED)) - _KNOWN
"""Fields of a server entry that only other programs write."""


DEFAULTS = frozenset(
    (
        *("start", "isolation", "connect_timeout", "call_timeout", "idle_timeout", "list_timeout"),
        *("probe_timeout", "shutdown_grace", "max_concurrency", "max_queue", "max_message"),
    )
)
"""Fields of a server that may also be host-wide settings, as defaults."""
_SETTINGS = HostConfig.field_names() - {"servers", "warnings", "project_policy", "withheld"} | DEFAULTS
_GUARDED_FIELDS = {
    "gateway": GatewaySettings.field_names(),
    "policy": Policy.field_names(),
    "audit": AuditSettings.field_names(),
    "guards": GuardSettings.field_names(),
}
GUARDED = frozenset(_GUARDED_FIELDS)
"""Security settings: a misspelling of one is always reported."""
RESTRICTIONS = frozenset(("strict_root_paths", "resource_uri_allowlist", "enabled_servers"))
"""Restrictions whose names no other program uses."""
SHAPES = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("config", "servers"),
    ("mcp_servers",),
    ("context_servers",),
)
_TOP = frozenset(path[0] for path in SHAPES)
_FOREIGN = frozenset(("inputs",))
"""Keys of other programs beside servers and settings (VS Code's inputs)."""


class FileShape:
    """Content of one file before validation."""

    def __init__(self) -> None:
        self.servers: dict[str, Mapping[str, Any]] = {}
        self.aliased: set[str] = set()
        """Servers with an `alias`."""
        self.settings: dict[str, Any] = {}
        """By the names of `HostConfig`, and of `ServerConfig` for the defaults."""
        self.needs_approval: set[str] = set()
        """Settings at the top level of another program's file, where the name may mean something else."""
        self.problems: list[tuple[str | None, Problem]] = []
        """Each with its server."""
        self.notes: list[Problem] = []

    def wrong(
        self, message: str, *, server: str | None = None, place: str | None = None, serious: bool = False
    ) -> None:
        self.problems.append((server, Problem(field=place, message=message, serious=serious)))


def read_shape(data: Mapping[str, Any], *, own: bool) -> FileShape:
    """Return the servers and settings of a file. Unknown keys are reported in our own files; in others only
    if they look like a misspelling."""
    shape = FileShape()
    found = [path for path in SHAPES if at(data, path) is not None]
    for path in found:
        _servers(shape, ".".join(path), at(data, path))
    # A file without servers and without our section may have settings only.
    alone = not found and "mcp" not in data
    at_top = own or alone or ("mcpServers",) in found or ("servers",) in found
    if at_top:
        given = {key: value for key, value in data.items() if key not in _TOP}
        _settings(shape, given, own=own, needs_approval=not own)
    else:
        _misplaced(shape, data)
        if ("config", "servers") in found and "enabled" in data:
            _settings(shape, {"enabled": data["enabled"]}, own=own, needs_approval=True)
    read: set[tuple[str, ...]] = {()}
    for section in ("mcp", "config"):
        inner = data.get(section)
        if isinstance(inner, Mapping) and (section == "mcp" or (section, "servers") in found):
            read.add((section,))
            rest = dict(cast("Mapping[str, Any]", inner))
            rest.pop("servers", None)
            _settings(shape, rest, own=own, needs_approval=False)
    if not own:
        _unread_sections(shape, data, (), read)
    if not found and not own and not shape.settings:
        names = [".".join(path) for path in SHAPES]
        near = [near for key in data if key not in names and (near := did_you_mean(key, names))]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        message = f"names no servers: none of {', '.join(names)} has entries{hint}"
        shape.notes.append(Problem(field=None, message=message))
    return shape


def at(data: Mapping[str, Any], path: tuple[str, ...]) -> object:
    """Return the value at `path`, or None."""
    value: object = data
    for key in path:
        value = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    return value


def _servers(shape: FileShape, place: str, given: object) -> None:
    items = cast("list[object]", given) if isinstance(given, list) else []
    if isinstance(given, Mapping):
        entries = list(cast("Mapping[str, object]", given).items())
    elif any(isinstance(item, Mapping) for item in items):
        entries = _named(shape, place, items)
    else:
        shape.wrong(
            "must be a mapping of names to servers, or a list of servers each with "
            + ("an 'alias'" if place == "config.servers" else "a 'name'")
            + f"; it is {'a list of something else' if isinstance(given, list) else kind(given)}",
            place=place,
        )
        return
    for name, entry in entries:
        if name in shape.servers:
            shape.wrong("is defined twice in this file; keep one", server=name)
        elif isinstance(entry, Mapping):
            fields = cast("Mapping[str, Any]", entry)
            shape.servers[name] = {key: fields[key] for key in fields if key not in ("name", "alias")}
        else:
            shape.wrong(f"must be a mapping with 'command' or 'url', not {kind(entry)}", server=name)


def _named(shape: FileShape, place: str, items: list[object]) -> list[tuple[str, object]]:
    entries: list[tuple[str, object]] = []
    word = "alias" if place == "config.servers" else "name"
    for position, given in enumerate(items, 1):
        item = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
        name = item.get("name") or item.get("alias")
        if not isinstance(given, Mapping):
            shape.wrong(f"entry {position} must be a mapping, not {kind(given)}", place=place)
        elif isinstance(name, str) and name:
            entries.append((name, item))
            shape.aliased |= {name} - {item.get("name")}
        elif name is not None and not isinstance(name, str):
            shape.wrong(f"entry {position}: its {word} must be text, not {kind(name)}", place=place)
        else:
            shape.wrong(f"entry {position} has no {word}; add '{word}: …'", place=place)
    return entries


def _misplaced(shape: FileShape, data: Mapping[str, Any]) -> None:
    """Report security settings in places where settings are not read."""
    for key in data:
        name = snake(key)
        if name in GUARDED or misspelled(name, GUARDED):
            where = "inside 'mcp'" if "mcp" in data else "into a file of mooring's own, such as mooring.yaml"
            message = f"{shown(key)} has no effect here: at the top of this file no settings are read"
            shape.wrong(f"{message}; write it {where}", place=key, serious=True)


_NESTED = 4
_SETTINGS_SECTIONS = frozenset(("settings", "options", "mooring"))
"""Sections of other programs' files in which a security setting is meant for mooring, whatever its value."""


def _unread_sections(
    shape: FileShape, data: Mapping[str, Any], path: tuple[str, ...], read: Collection[tuple[str, ...]]
) -> None:
    """Report security settings in sections that are not `read`, if they look like ours."""
    for key, value in data.items():
        place, name = (*path, key), snake(key)
        if place in SHAPES or (path in read and name in _SETTINGS):
            continue
        inner = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
        meant = name if name in GUARDED else misspelled(name, GUARDED)
        if meant and path not in read:
            ours = _GUARDED_FIELDS[meant] & {snake(field) for field in inner}
            if ours or snake(path[-1]) in _SETTINGS_SECTIONS:
                where = "at the top of this file, or into a file of mooring's own, such as mooring.yaml"
                message = f"{shown('.'.join(place))} has no effect here: this section is not read"
                shape.wrong(f"{message}; write it {where}", place=".".join(place), serious=True)
        elif len(path) < _NESTED:
            _unread_sections(shape, inner, place, read)


def _settings(shape: FileShape, given: Mapping[str, Any], *, own: bool, needs_approval: bool) -> None:
    # Beside a security setting, an unknown key may be one too.
    strict = own or any(snake(key) in GUARDED for key in given)
    foreign = frozenset[str]() if own else _FOREIGN
    for key, value in given.items():
        if key == "sampling":
            _sampling(shape, value)
            continue
        try:
            found = canonical(key, value, known=_SETTINGS, aliases={})
            if found is not None:
                name, setting = found
                if name in GUARDED:
                    _report_nulls(shape, name, setting)
                if isinstance(setting, Mapping):
                    setting = _inner(cast("Mapping[str, Any]", setting))
                shape.settings[name] = setting
                shape.needs_approval.discard(name)
                if needs_approval and name not in GUARDED | RESTRICTIONS:
                    shape.needs_approval.add(name)
            elif key not in foreign and not key.startswith(("$", "x-", "x_")):
                _unknown(shape, key, own=strict)
        except ValueError as problem:
            if needs_approval:
                shape.notes.append(Problem(field=key, message=f"{problem}; it is ignored"))
            else:
                shape.wrong(str(problem), place=key)


def _guarded_like(name: str) -> str | None:
    """Return the security setting that an unknown name may mean: misspelled, or in another form, such as
    `policies` or `audit_log`."""
    return misspelled(name, GUARDED) or next(
        (one for one in sorted(GUARDED) if name.startswith(one[:5])), None
    )


_OF_GATEWAY = frozenset({"tokens", "allowed_hosts", "allowed_origins"})
"""Who may connect: settings of `gateway` that no other program has at the top level."""


def _unknown(shape: FileShape, key: str, *, own: bool) -> None:
    """Report an unknown key, unless it belongs to another program."""
    name = snake(key)
    if name in _OF_GATEWAY:
        near = f"gateway.{name}"
    elif own:
        near = did_you_mean(name, _SETTINGS | _TOP)
    else:
        near = _guarded_like(name) or misspelled(name, (one for one in _SETTINGS if one[0] == name[:1]))
        if near is None:
            return
    hint = f"did you mean {near!r}?" if near else "remove it"
    serious = own or near in GUARDED or name in _OF_GATEWAY
    shape.wrong(f"{shown(key)} is not a known setting; {hint}", place=key, serious=serious)


def _report_nulls(shape: FileShape, name: str, setting: object) -> None:
    """Report settings without a value, which would have their default: a security setting was meant."""
    inside = cast("Mapping[str, object]", setting).items() if isinstance(setting, Mapping) else ()
    for place in [name] if setting is None else [f"{name}.{key}" for key, item in inside if item is None]:
        shape.wrong("has no value; give it one, or remove it", place=place, serious=True)


def _inner(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with durations in seconds. Unknown keys stay and are reported later."""
    pairs = (
        canonical(key, value, known=UNITS_IN_SECTIONS, aliases={}) or (key, value)
        for key, value in section.items()
        if value is not None
    )
    return dict(pairs)


def _sampling(shape: FileShape, value: object) -> None:
    enabled = cast("Mapping[str, object]", value).get("enabled") if isinstance(value, Mapping) else value
    if enabled not in (None, False, "false"):
        shape.notes.append(
            Problem(field="sampling", message="is not supported: servers get no access to a model")
        )
