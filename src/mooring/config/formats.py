"""The shapes a configuration file may have, reduced to one: named server entries and host-wide settings.

mcpServers: {name: {…}}            most programs; also a list of entries with `name`
servers: {name: {…}}               VS Code, and our own
mcp: {servers: {name: {…}}, …}     settings stand beside `servers`
config: {servers: [{alias: …}]}    an extension's manifest
mcp_servers: {name: {…}}           Codex
context_servers: {name: {…}}       Zed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mooring.config.fields import canonical, snake
from mooring.core.checks import shown
from mooring.core.config import HostConfig
from mooring.core.durations import kind
from mooring.core.problems import Problem, did_you_mean, misspelled

__all__ = ["DEFAULTS", "SHAPES", "Shape", "at", "read_shape"]

DEFAULTS = frozenset(
    (
        *("start", "isolation", "connect_timeout", "call_timeout", "idle_timeout", "list_timeout"),
        *("probe_timeout", "shutdown_grace", "max_concurrency", "max_queue", "max_message"),
    )
)
"""Fields of a server that may also stand among the host-wide settings, for all that leave them out."""
_SETTINGS = HostConfig.field_names() - {"servers", "warnings", "project_policy", "withheld"} | DEFAULTS
GUARDED = frozenset(("gateway", "policy", "audit"))
"""Settings that protect something: a misspelled one is never taken for another program's."""
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
"""Keys of other programs that may stand beside servers and settings: VS Code asks for these values."""


class Shape:
    """What one file says, before any of it is validated."""

    def __init__(self) -> None:
        self.servers: dict[str, Mapping[str, Any]] = {}
        self.aliased: set[str] = set()
        """Servers whose name stands under `alias`."""
        self.settings: dict[str, Any] = {}
        """By the names of `HostConfig`, and of `ServerConfig` for the defaults."""
        self.doubtful: set[str] = set()
        """Settings from the top of another program's file: the name may mean something else there."""
        self.problems: list[tuple[str | None, Problem]] = []
        """Each with the server it concerns."""
        self.notes: list[Problem] = []

    def wrong(
        self, message: str, *, server: str | None = None, place: str | None = None, serious: bool = False
    ) -> None:
        self.problems.append((server, Problem(field=place, message=message, serious=serious)))


def read_shape(data: Mapping[str, Any], *, own: bool) -> Shape:
    """Return the servers and settings of a file. In our own files every unknown key is reported; in others
    those that look like a misspelling of ours."""
    shape = Shape()
    found = [path for path in SHAPES if at(data, path) is not None]
    for path in found:
        _servers(shape, ".".join(path), at(data, path))
    # A file that names no servers, and has no section of ours, may be one with settings alone.
    alone = not found and "mcp" not in data
    at_top = own or alone or ("mcpServers",) in found or ("servers",) in found
    if at_top:
        _settings(
            shape, {key: value for key, value in data.items() if key not in _TOP}, own=own, doubtful=not own
        )
    else:
        _misplaced(shape, data)
        if ("config", "servers") in found and "enabled" in data:
            _settings(shape, {"enabled": data["enabled"]}, own=own, doubtful=True)
    for section in ("mcp", "config"):
        inner = data.get(section)
        if isinstance(inner, Mapping) and (section == "mcp" or (section, "servers") in found):
            rest = dict(cast("Mapping[str, Any]", inner))
            rest.pop("servers", None)
            _settings(shape, rest, own=own, doubtful=False)
    if not found and not own and not shape.settings:
        shape.notes.append(
            Problem(
                field=None, message="names no servers: there is none of " + ", ".join(map(".".join, SHAPES))
            )
        )
    return shape


def at(data: Mapping[str, Any], path: tuple[str, ...]) -> object:
    """What stands at `path`; None when nothing does."""
    value: object = data
    for key in path:
        value = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    return value


def _servers(shape: Shape, place: str, given: object) -> None:
    if isinstance(given, Mapping):
        entries = list(cast("Mapping[str, object]", given).items())
    elif isinstance(given, list) and all(isinstance(item, Mapping) for item in cast("list[object]", given)):
        entries = _named(shape, place, cast("list[Mapping[str, Any]]", given))
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
            shape.wrong("stands twice in this file; keep one", server=name)
        elif isinstance(entry, Mapping):
            own_names = {"name", "alias"}
            fields = cast("Mapping[str, Any]", entry)
            shape.servers[name] = {key: value for key, value in fields.items() if key not in own_names}
        else:
            shape.wrong(f"must be a mapping with 'command' or 'url', not {kind(entry)}", server=name)


def _named(shape: Shape, place: str, items: list[Mapping[str, Any]]) -> list[tuple[str, object]]:
    entries: list[tuple[str, object]] = []
    for position, item in enumerate(items, 1):
        name = item.get("name") or item.get("alias")
        word = "alias" if place == "config.servers" else "name"
        if isinstance(name, str) and name:
            entries.append((name, item))
            if not item.get("name"):
                shape.aliased.add(name)
        elif name is not None and not isinstance(name, str):
            shape.wrong(f"entry {position}: its {word} must be text, not {kind(name)}", place=place)
        else:
            shape.wrong(f"entry {position} has no {word}; add '{word}: …'", place=place)
    return entries


def _misplaced(shape: Shape, data: Mapping[str, Any]) -> None:
    """Report settings that protect something where no settings are read."""
    for key in data:
        name = snake(key)
        if name in GUARDED or misspelled(name, GUARDED):
            where = "inside 'mcp'" if "mcp" in data else "into a file of mooring's own, such as mooring.yaml"
            message = f"{shown(key)} has no effect here: at the top of this file no settings are read"
            shape.wrong(f"{message}; write it {where}", place=key, serious=True)


def _settings(shape: Shape, given: Mapping[str, Any], *, own: bool, doubtful: bool) -> None:
    # Next to a setting that protects something, an unknown key may be another one.
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
                if isinstance(setting, Mapping):
                    setting = _inner(cast("Mapping[str, Any]", setting))
                shape.settings[name] = setting
                shape.doubtful.discard(name)
                if doubtful and name not in GUARDED:
                    shape.doubtful.add(name)
            elif key not in foreign and not key.startswith(("$", "x-", "x_")):
                _unknown(shape, key, own=strict)
        except ValueError as problem:
            if doubtful:
                shape.notes.append(Problem(field=key, message=f"{problem}; it is ignored"))
            else:
                shape.wrong(str(problem), place=key)


def _unknown(shape: Shape, key: str, *, own: bool) -> None:
    """Report a key that is not known, unless it is another program's."""
    name = snake(key)
    if own:
        near = did_you_mean(name, _SETTINGS | _TOP)
    else:
        near = misspelled(name, GUARDED) or misspelled(name, (one for one in _SETTINGS if one[0] == name[:1]))
        if near is None:
            return
    hint = f"did you mean {near!r}?" if near else "remove it"
    shape.wrong(f"{shown(key)} is not a known setting; {hint}", place=key, serious=own or near in GUARDED)


def _inner(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section of settings with its durations in seconds; unknown keys stay, to be reported."""
    known = frozenset({"debounce", "ttl"})
    pairs = (
        canonical(key, value, known=known, aliases={}) or (key, value)
        for key, value in section.items()
        if value is not None
    )
    return dict(pairs)


def _sampling(shape: Shape, value: object) -> None:
    enabled = cast("Mapping[str, object]", value).get("enabled") if isinstance(value, Mapping) else value
    if enabled not in (None, False, "false"):
        shape.notes.append(
            Problem(field="sampling", message="is not supported: servers get no access to a model")
        )
