"""Server entries in files of any documented shape: where one is, where a new one goes, how it is spelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mooring.config.edit import Put
from mooring.config.formats import SHAPES, at
from mooring.config.spans import KeyPath
from mooring.core.config import ServerConfig

__all__ = ["Place", "canonical_entry", "find", "put_entry", "switch"]

_ORDER = ("transport", "command", "args", "cwd", "url", "env", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one entry stands."""

    path: KeyPath
    entry: Mapping[str, Any]


def find(data: Mapping[str, Any], name: str) -> Place | None:
    """Where the server `name` is written in a file; None when it is not."""
    for shape in SHAPES:
        servers = at(data, shape)
        if isinstance(servers, Mapping) and name in servers:
            item = cast("Mapping[str, Any]", servers)[name]
            entry = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else dict[str, Any]()
            return Place(path=(*shape, name), entry=entry)
        for index, item in enumerate(cast("list[Any]", servers) if isinstance(servers, list) else []):
            if isinstance(item, Mapping):
                entry = cast("Mapping[str, Any]", item)
                if (entry.get("name") or entry.get("alias")) == name:
                    return Place(path=(*shape, index), entry=entry)
    return None


def put_entry(data: Mapping[str, Any], name: str, entry: Mapping[str, Any], *, own: bool) -> Put:
    """The change that writes `entry` into a file, in the shape that the file has.

    Args:
        data: What stands in the file.
        name: Of the server. One of that name is replaced.
        entry: In our own words.
        own: Whether the file is mooring's alone.
    """
    there = find(data, name)
    written = [shape for shape in SHAPES if at(data, shape) is not None]
    named = [
        shape for shape in SHAPES if shape[-1] in _mapping(at(data, shape[:-1]))
    ]  # but with nothing in it
    shape = next(iter([*written, *named]), ("servers" if own else "mcpServers",))
    if there is not None:
        shape = tuple(str(key) for key in there.path[:-1])
    spelled = dict(entry) if own else _spelled(shape, entry)
    servers = at(data, shape)
    if not isinstance(servers, list):
        return Put(path=(*shape, name), value=spelled)
    items = cast("list[Any]", servers)
    label = "alias" if shape == ("config", "servers") else "name"
    path = there.path if there else (*shape, len(items))
    return Put(path=path, value={label: name, **spelled})


def switch(place: Place, *, on: bool) -> Put:
    """The change that turns an entry on or off, in the word that it already uses."""
    for word in ("enabled", "active"):
        if word in place.entry:
            return Put(path=(*place.path, word), value=on)
    word = "enabled" if place.path[0] in ("mcp_servers", "context_servers") else "disabled"
    return Put(path=(*place.path, word), value=on if word == "enabled" else not on)


def canonical_entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a server was given, as they would be written: without what goes without saying."""
    given = ServerConfig(name="any", **{name: fields[name] for name in fields if name != "name"})
    names = [*_ORDER, *(name for name in fields if name not in (*_ORDER, "name", "source"))]
    entry = {name: _plain(getattr(given, name)) for name in names if name in fields}
    if entry.get("transport") in ("stdio", "http"):
        del entry["transport"]  # follows from what stands beside it
    if entry.get("disabled") is False:
        del entry["disabled"]
    return {
        name: value
        for name, value in entry.items()
        if value not in (None, {}, [], "") or name in ("allow", "auth")
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
        case tuple() | list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _spelled(shape: tuple[str, ...], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as the other readers of such a file expect it; we read both."""
    spelled = dict(entry)
    transport = spelled.pop("transport", None)
    if shape[0] == "mcp_servers":
        if "headers" in spelled:
            spelled["http_headers"] = spelled.pop("headers")
    elif shape[0] in ("mcpServers", "servers"):
        # Without it some of them take an address for an error.
        spelled = {"type": transport or "http", **spelled} if "url" in spelled else spelled
        transport = None
    return {**({"transport": transport} if transport else {}), **spelled}
