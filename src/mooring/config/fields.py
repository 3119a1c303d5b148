"""One server entry in anybody's spelling -> the fields of `ServerConfig`. The only place that knows aliases.

Keys may be camelCase. `…_ms` is milliseconds; `…_seconds`, `…_secs` and `…_sec` are seconds.

A bare `timeout` means two things among the programs that write it, told apart by its size: at most
600 it is seconds to connect (evva), from 1000 on it is milliseconds for a call (Claude Code);
in between nobody can tell, and it is an error. With a unit (`30s`) or as `timeout_seconds` it is
the time to connect; as `timeout_ms` the time for a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, cast, get_args

from mooring.core.config import ServerConfig, Transport
from mooring.core.durations import kind, number, seconds
from mooring.core.problems import Problem, did_you_mean
from mooring.core.settings import flag

__all__ = ["IGNORED", "Entry", "canonical", "server_fields", "snake"]

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
# Other programs' own business: nothing is lost by not reading it.
IGNORED = frozenset(
    (
        *("always_allow", "auto_approve", "bundled", "dev", "display_name", "gallery", "icon", "id"),
        *("environment_id", "log_level", "required", "source", "startup", "trust", "version"),
    )
)
# Not ours either, but the server may behave otherwise than its author thinks.
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
        """How the file spells each field."""
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        """What was ignored."""

    def put(self, key: str, name: str, value: object) -> None:
        if name == "headers" and isinstance(value, Mapping) and isinstance(self.fields.get(name), Mapping):
            value = {**self.fields[name], **cast("Mapping[str, object]", value)}
        elif name in self.fields and self.fields[name] != value:
            raise ValueError(f"says something else than {self.written[name]!r}; keep one of them")
        self.fields[name] = value
        self.written[name] = key


def server_fields(raw: Mapping[str, Any], *, own: bool) -> Entry:
    """The entry `raw` in our words.

    An unknown field is an error in mooring's own files and wherever it looks like a misspelling,
    which may have been meant to forbid something; else it is another program's and is ignored.
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
                _unknown(entry, key, name, own=own)
        except ValueError as problem:
            entry.problems.append(Problem(field=key, message=str(problem)))
    return entry


def canonical(
    name: str, value: object, *, known: frozenset[str], aliases: Mapping[str, str]
) -> tuple[str, object] | None:
    """The field that `name` spells, and its value (in seconds if the name has a unit); None if unknown."""
    name = snake(name)
    name = aliases.get(name, name)
    if name in known:
        return name, value
    found = re.fullmatch(r"(\w+?)(?:_(ms|seconds|secs|sec))?", name)
    base = _DURATION_ALIASES.get(found[1], found[1]) if found else name
    if found is None or base not in known:
        return None
    return base, _milliseconds(value) if found[2] == "ms" else seconds(value)


def _unknown(entry: Entry, key: str, name: str, *, own: bool) -> None:
    near = did_you_mean(name, _KNOWN | _ALIASES.keys() | _SPECIAL.keys() | _DURATION_ALIASES.keys())
    if near:
        raise ValueError(f"is not a known field; did you mean {near!r}?")
    if own:
        raise ValueError("is not a known field; remove it")
    entry.notes.append(Problem(field=key, message="is not a field that mooring knows, and is ignored"))


def snake(key: str) -> str:
    """A key as we spell it, however it is written."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()


def _flattened(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with what stands inside `transport: {…}` or `command: {…}` brought up one level."""
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
    return {"command": words[0], "args": words[1:]}


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
