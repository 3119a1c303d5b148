"""Configuration text with single values and server entries changed in place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from mooring.config.documents import BLANK, BadSyntaxError, JsoncParser, parse_document
from mooring.config.formats import SHAPES, at
from mooring.config.models import ServerConfig
from mooring.config.validate import text_of
from mooring.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""Keys of mappings and positions in lists, from the top."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One value in a text."""

    start: int
    end: int
    at: int
    """Start of its name; in a list, start of the value."""
    inner: dict[str, Node] | list[Node] | None = None
    """Its members or items; None for a scalar."""
    flow: bool = True
    """Whether it is written with brackets; False for YAML blocks."""
    name_end: int = 0
    null: bool = False


def children(node: Node) -> list[Node]:
    """Return the members of a mapping or the items of a list, in order."""
    if node.inner is None:
        return []
    return list(node.inner.values()) if isinstance(node.inner, dict) else node.inner


def descend(root: Node, path: KeyPath) -> tuple[list[Node], KeyPath]:
    """Return the nodes from `root` along `path` as far as they exist, and the rest of the path."""
    way = [root]
    for depth, key in enumerate(path):
        inner, following = way[-1].inner, None
        if isinstance(inner, dict) and isinstance(key, str):
            following = inner.get(key)
        elif isinstance(inner, list) and isinstance(key, int) and key < len(inner):
            following = inner[key]
        if following is None:
            return way, path[depth:]
        way.append(following)
    return way, ()


def wrapped(value: object, path: KeyPath) -> object:
    """Return `value` inside new mappings and lists, at `path` of the result."""
    for key in reversed(path):
        value = {key: value} if isinstance(key, str) else [value]
    return value


def is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def end_of_line(text: str, at: int) -> int:
    """Return the end of the line that contains `at`, before its line break."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def indent_of(text: str, at: int) -> str:
    """Return the indentation of the line that contains `at`."""
    start = line_start(text, at)
    line = text[start:at]
    return line[: len(line) - len(line.lstrip())]


def spliced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return `text` with each range `start:end` replaced. The ranges must not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# Modules with `put` and `drop`: JSON is edited here; the others are loaded with the library that they need.
_EDITORS = {
    ".json": "mooring.config.edit.text",
    ".jsonc": "mooring.config.edit.text",
    ".yaml": "mooring.config.edit.yaml",
    ".yml": "mooring.config.edit.yaml",
    ".toml": "mooring.config.edit.toml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Set the value at `path`; missing mappings are created."""

    path: KeyPath
    value: Any

    def __repr__(self) -> str:
        """Without the value, which may contain a secret."""
        return f"Put({self.path!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Delete the value at `path`."""

    path: KeyPath


def edited(text: str, changes: Sequence[Put | Drop], *, file: Path) -> str:
    """Return `text` with the changes; the suffix of `file` is the format. An empty text is a new file.

    Raises:
        ConfigError: It cannot be parsed, or the changes would also change something else.
    """
    kind = file.suffix.lower()
    if kind not in _EDITORS:
        raise ConfigError("has no known format; name it .yaml, .toml or .json", file=str(file))
    editor: Any = import_module(_EDITORS[kind])
    is_yaml = kind in (".yaml", ".yml")
    blank = all(not line.strip() or (is_yaml and line.lstrip().startswith("#")) for line in text.splitlines())
    meant: Any = {} if blank else _copied(parse_document(text, file))
    dos = "\r\n" in text and text.count("\r\n") == text.count("\n")
    new = text.replace("\r\n", "\n") if dos else text
    if blank and kind in (".json", ".jsonc"):
        new = "{}\n"
    for change in changes:
        new = _one(editor, new, change, file)
        _apply_to_data(meant, change, _as_yaml if is_yaml else lambda value: value)
    found = {} if not new.strip() else parse_document(new, file)
    if _pruned(found) != _pruned(meant):
        raise _refusal(file)
    return new.replace("\n", "\r\n") if dos else new


def _one(editor: Any, text: str, change: Put | Drop, file: Path) -> str:
    try:
        if isinstance(change, Put):
            return editor.put(text, change.path, change.value)
        return editor.drop(text, change.path)
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        # The libraries raise various exceptions for a layout that they do not expect.
        if isinstance(problem, BadSyntaxError):
            raise ConfigError(problem.problem, file=str(file), place=problem.place) from None
        raise _refusal(file) from problem


def _refusal(file: Path) -> ConfigError:
    return ConfigError(
        "cannot be changed without changing other parts of the file; nothing was written: edit it by hand",
        file=str(file),
    )


def _apply_to_data(data: Any, change: Put | Drop, reads: Callable[[Any], Any]) -> None:
    """Apply the change to the data."""
    for key, following in zip(change.path[:-1], change.path[1:], strict=True):
        if isinstance(key, str) and data.get(key) is None:
            data[key] = {} if isinstance(following, str) else []
        data = data[key]
    last = change.path[-1]
    if isinstance(change, Drop):
        del data[last]
    elif isinstance(last, int) and last == len(data):
        data.append(reads(change.value))
    else:
        data[last] = reads(change.value)


def _copied(data: Any) -> Any:
    """Return a deep copy, in which aliases of YAML are separate values."""
    match data:
        case dict():
            return {key: _copied(item) for key, item in cast("dict[str, Any]", data).items()}
        case list():
            return [_copied(item) for item in cast("list[Any]", data)]
        case _:
            return data


def _as_yaml(value: Any) -> Any:
    """Return a value as our YAML parser reads it: every scalar is text."""
    match value:
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            return {str(key): _as_yaml(item) for key, item in pairs}
        case list() | tuple():
            return [_as_yaml(item) for item in cast("Sequence[Any]", value)]
        case None:
            return None
        case _:
            return text_of(value)


def _pruned(data: Any) -> Any:
    """Return the data without empty mappings: a TOML table is removed with its last entry."""
    if not isinstance(data, dict):
        return data
    items = {key: _pruned(item) for key, item in cast("dict[str, Any]", data).items()}
    return {key: item for key, item in items.items() if item is not None and item != {}}


_ORDER = ("transport", "command", "args", "cwd", "url", "env", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one entry."""

    path: KeyPath
    entry: Mapping[str, Any]


def find(data: Mapping[str, Any], name: str) -> Place | None:
    """Return the place of the server `name` in a file; None if it is not there."""
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
    """Return the change that writes `entry` into a file, in the format of the file.

    Args:
        data: The content of the file.
        name: The name of the server. An entry with this name is replaced.
        entry: The fields, with mooring's names.
        own: Whether the file is mooring's alone.
    """
    there = find(data, name)
    written = [shape for shape in SHAPES if at(data, shape) is not None]
    named = [
        shape for shape in SHAPES if shape[-1] in _mapping(at(data, shape[:-1]))
    ]  # including keys with a null value
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
    """Return the change that turns an entry on or off, with the key that it already has."""
    for word in ("enabled", "active"):
        if word in place.entry:
            return Put(path=(*place.path, word), value=on)
    word = "enabled" if place.path[0] in ("mcp_servers", "context_servers") else "disabled"
    return Put(path=(*place.path, word), value=on if word == "enabled" else not on)


def canonical_entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a server as they are written, without defaults."""
    given = ServerConfig(name="any", **{name: fields[name] for name in fields if name != "name"})
    names = [*_ORDER, *(name for name in fields if name not in (*_ORDER, "name", "source"))]
    entry = {name: _plain(getattr(given, name)) for name in names if name in fields}
    if entry.get("transport") in ("stdio", "http"):
        del entry["transport"]  # follows from the other fields
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
    """Return the entry as other programs expect it in such a file; mooring reads both."""
    spelled = dict(entry)
    transport = spelled.pop("transport", None)
    if shape[0] == "mcp_servers":
        if "headers" in spelled:
            spelled["http_headers"] = spelled.pop("headers")
    elif shape[0] in ("mcpServers", "servers"):
        # Without `type`, some programs reject an entry with a URL.
        spelled = {"type": transport or "http", **spelled} if "url" in spelled else spelled
        transport = None
    return {**({"transport": transport} if transport else {}), **spelled}


_SAME_LINE = re.compile(r"(?:[ \t]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
Edits = list[tuple[int, int, str]]


def put(text: str, path: KeyPath, value: object) -> str:
    """Return `text` with `value` at `path`: replaced, or added after its last sibling."""
    root = located(text)
    way, rest = descend(root, path)
    unit = unit_of(text, root)
    if not rest:
        node = way[-1]
        fresh = _render(value, indent_of(text, node.at), unit) if "\n" in text.strip() else _compact(value)
        return spliced(text, [(node.start, node.end, fresh)])
    return spliced(text, flow_insert(text, way[-1], rest[0], wrapped(value, rest[1:]), unit))


def drop(text: str, path: KeyPath) -> str:
    """Return `text` without the value at `path`. Raises KeyError when there is none."""
    way, rest = descend(located(text), path)
    if rest:
        raise KeyError(path)
    return spliced(text, flow_drop(text, way[-2], way[-1]))


def located(text: str) -> Node:
    """Return the nodes of a text."""
    return _Spans(text).document()


class _Spans(JsoncParser):
    """A parser that returns nodes with positions instead of values."""

    def document(self) -> Node:
        return cast("Node", super().document())

    def value(self) -> Node:
        self.blank()
        start = self.at
        found = super().value()
        inner = cast("dict[str, Node] | list[Node]", found) if isinstance(found, dict | list) else None
        return Node(start=start, end=self.at, at=start, inner=inner)

    def member(self, place: int) -> Node:
        node = self.value()
        node.at = place
        return node


def unit_of(text: str, root: Node) -> str:
    """Return the indentation of one level."""
    first = next(iter(children(root)), None)
    return (indent_of(text, first.at) if first else "") or "  "


def flow_insert(text: str, node: Node, key: str | int, value: object, unit: str) -> Edits:
    """Return the edits that add a last member inside brackets, formatted like its siblings."""
    label = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(key, str) else ""
    outer = indent_of(text, node.start)
    if not (members := children(node)):
        return _fill(text, node, label, value, outer, unit)
    last = members[-1]
    comma, tail = _after(text, last.end)
    if "\n" not in text[node.start : members[0].at]:
        member = f"{label}{_compact(value)}"
        if comma is None:
            return [(last.end, last.end, f", {member}")]
        return [(comma + 1, comma + 1, f" {member},")]
    indent = indent_of(text, members[0].at)
    member = f"\n{indent}{label}{_render(value, indent, unit)}"
    if comma is not None:
        return [(tail, tail, f"{member},")]
    if tail == last.end:
        return [(tail, tail, f",{member}")]
    return [(last.end, last.end, ","), (tail, tail, member)]


def _fill(text: str, node: Node, label: str, value: object, outer: str, unit: str) -> Edits:
    """Return the edits that add a first member to empty brackets, which may contain comments."""
    inside = text[node.start + 1 : node.end - 1]
    if "\n" not in text.strip() and text.strip() != text[node.start : node.end]:
        return [(node.start + 1, node.end - 1, f"{inside}{label}{_compact(value)}")]
    indent = outer + unit
    member = f"\n{indent}{label}{_render(value, indent, unit)}\n{outer}"
    return [(node.start + 1, node.end - 1, inside.rstrip() + member)]


def flow_drop(text: str, parent: Node, node: Node) -> Edits:
    """Return the edits that remove one member from its brackets, with its own lines only."""
    members = children(parent)
    place = next(index for index, member in enumerate(members) if member is node)
    comma, tail = _after(text, node.end)
    if len(members) == 1:
        before, after = text[parent.start + 1 : node.at], text[tail : parent.end - 1]
        if not (before + after).strip():
            return [(parent.start + 1, parent.end - 1, "")]
    before_comma = None if place == 0 else _after(text, members[place - 1].end)[0]
    edits: Edits = []
    if place > 0 and comma is None and before_comma is not None:
        edits.append((before_comma, before_comma + 1, ""))
    start, end = line_start(text, node.at), end_of_line(text, tail)
    if not (text[start : node.at] + text[tail:end]).strip() and end < len(text):
        return [*edits, (start, end + 1, "")]
    begin, end = node.at, node.end if comma is None else comma + 1
    if place + 1 < len(members):
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    elif before_comma is not None and not text[before_comma + 1 : begin].strip():
        begin = before_comma + 1
    return [*edits, (begin, end, "")]


def _after(text: str, end: int) -> tuple[int | None, int]:
    """Return the position of the comma after a value, if any, and the end of the text on its line."""
    blank = BLANK.match(text, end)
    after = blank.end() if blank else end
    comma = after if text.startswith(",", after) else None
    start = end if comma is None else comma + 1
    same = _SAME_LINE.match(text, start)
    tail = same.end() if same else start
    if tail < len(text) and text[tail] != "\n":
        return comma, start  # another value follows on this line: comments in between belong to it
    return comma, start + len(text[start:tail].rstrip())


def _render(value: object, indent: str, unit: str) -> str:
    """Return JSON on several lines, with lists of scalars on one line."""
    if _is_flat(value):
        return _compact(value)
    deeper = indent + unit
    if isinstance(value, dict):
        items = [
            f"{_compact(key)}: {_render(item, deeper, unit)}"
            for key, item in cast("dict[str, object]", value).items()
        ]
        opening, closing = "{", "}"
    else:
        items = [_render(item, deeper, unit) for item in cast("list[object]", value)]
        opening, closing = "[", "]"
    lines = ",".join(f"\n{deeper}{item}" for item in items)
    return f"{opening}{lines}\n{indent}{closing}"


def _is_flat(value: object) -> bool:
    """Whether it fits on one line: a scalar, an empty value, or a list of scalars."""
    if isinstance(value, list):
        return not any(isinstance(item, dict | list) for item in cast("list[object]", value))
    return not isinstance(value, dict) or not value


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
