"""A lock as text that reads well in a review, and back.

JSON, one field or schema property a line where it is short, in a fixed order, long texts line by line,
nothing that depends on when or where it was written, and no character that cannot be seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from mooring.core.definitions import Entry, definition, digest, visible_text
from mooring.core.pin import Lock, LockError, NewerLockError, Pin
from mooring.core.types import EMPTY, Json, Prompt, ResourceTemplate, ServerInfo, Snapshot, Tool

__all__ = ["FORMAT", "parse", "render"]

FORMAT = 1
"""Raised when an older mooring could misread the file."""

_ABOUT = (
    "What each MCP server was approved to offer. `mooring lock` writes it, `mooring check` compares, "
    "`mooring approve` accepts a change. Commit it; do not edit it."
)
_AGAIN = "restore it from version control, or write it anew with `mooring lock --force`"
_WIDTH = 100
_TEXTS = frozenset(("title", "description", "instructions"))

E = TypeVar("E", Tool, ResourceTemplate, Prompt)


def render(lock: Lock) -> str:
    """Return the text of a lock: the same for the same lock, whatever made it."""
    servers = [_server(name, lock.servers[name]) for name in sorted(lock.servers)]
    return _layout({"about": _ABOUT, "version": FORMAT, "servers": servers}) + "\n"


def parse(text: str) -> Lock:
    """Return the lock that a text stands for.

    Raises:
        NewerLockError: a newer mooring wrote it.
        LockError: it is damaged; the error says where.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise LockError(f"is damaged: nested too deep; {_AGAIN}") from None
    except json.JSONDecodeError as error:
        raise _broken(text, error) from None
    if not isinstance(document, dict):
        raise LockError(f"is no lock; {_AGAIN}", place="line 1")
    fields = cast("dict[str, Any]", document)
    _check_version(fields.get("version"))
    try:
        pins = _pins(fields.get("servers"))
    except _Damage as damage:
        raise damage.error(text) from None
    return Lock(servers=MappingProxyType(pins))


# --- writing


def _server(name: str, pin: Pin) -> dict[str, Json]:
    snapshot, info = pin.snapshot, pin.snapshot.info
    fields: dict[str, Json] = {
        "server": name,
        "fingerprint": pin.fingerprint,
        "protocol": info.protocol,
        "name": info.name,
        "title": _lines(info.title),
        "version": info.version,
        "description": _lines(info.description),
        "capabilities": list(info.capabilities),
        "instructions": _lines(snapshot.instructions),
        "tools": [_entry(tool) for tool in snapshot.tools],
        "templates": [_entry(template) for template in snapshot.templates],
        "prompts": [_entry(prompt) for prompt in snapshot.prompts],
    }
    return {field: value for field, value in fields.items() if value is not None and value != []}


def _entry(entry: Entry) -> dict[str, Json]:
    counted = definition(entry)
    key = next(iter(counted))
    fields = {
        field: _lines(value) if field in _TEXTS else value
        for field, value in counted.items()
        if value is not None and not (field in _EMPTY and value == _EMPTY[field])
    }
    return {key: counted[key], "hash": digest(counted), **fields}


_EMPTY: Mapping[str, Json] = {"description": "", "annotations": {}, "arguments": ()}


def _lines(text: str | None) -> Json:
    """A text of several lines as the list of them, so that a changed line is one changed line."""
    return text.split("\n") if text is not None and "\n" in text else text


_ONE_LINE = json.JSONEncoder(ensure_ascii=False, default=dict).encode


_OUTER = 5
"""Levels that are always spread: the lock, its servers, each server, its entries, each entry."""


def _layout(value: Json, indent: str = "", level: int = 0) -> str:
    """The value on one line if that is short and holds no properties; the lock's own levels never are."""
    deeper = indent + "  "
    if isinstance(value, Mapping) and value:
        fields = cast("Mapping[str, Json]", value)
        line = "" if level < _OUTER else _fitting(value, indent)
        items = (
            []
            if line
            else [
                f"{deeper}{visible_text(_ONE_LINE(key))}: {_layout(inner, deeper, level + 1)}"
                for key, inner in fields.items()
            ]
        )
        return line or "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and value:
        members = cast("list[Json]", value)
        line = "" if level < _OUTER and isinstance(members[0], Mapping) else _fitting(value, indent)
        items = [] if line else [deeper + _layout(inner, deeper, level + 1) for inner in members]
        return line or "[\n" + ",\n".join(items) + f"\n{indent}]"
    return visible_text(_ONE_LINE(value))


def _fitting(value: Json, indent: str) -> str:
    """The value as one line; empty when it does not fit on one."""
    line = visible_text(_ONE_LINE(value))
    return line if len(line) + len(indent) <= _WIDTH and '"properties": {"' not in line else ""


# --- reading


def _check_version(version: Json) -> None:
    if type(version) is not int or version < 1:
        raise LockError(f"has no valid 'version'; {_AGAIN}")
    if version > FORMAT:
        raise NewerLockError(
            f"was written by a newer mooring (format {version}; this one reads up to {FORMAT}): "
            "upgrade mooring"
        )


def _broken(text: str, error: json.JSONDecodeError) -> LockError:
    place = f"line {error.lineno}"
    if not text.strip():
        return LockError(f"is empty; {_AGAIN}", place="line 1")
    line = text.splitlines()[error.lineno - 1 : error.lineno]
    if line and line[0].startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return LockError("holds an unresolved merge conflict: resolve it, keeping whole entries", place=place)
    if not text[error.pos :].strip():
        return LockError(f"is cut short; {_AGAIN}", place=place)
    return LockError(f"is damaged ({error.msg}); {_AGAIN}", place=place)


_INFO_FIELDS = ("server", "fingerprint", "protocol", "name", "title", "version", "description")
_SERVER_FIELDS = frozenset((*_INFO_FIELDS, "capabilities", "instructions", "tools", "templates", "prompts"))
_TOOL_FIELDS = frozenset(("name", "hash", "title", "description", "input", "output", "annotations"))
_TEMPLATE_FIELDS = frozenset(("uri", "hash", "name", "title", "description", "mime_type"))
_PROMPT_FIELDS = frozenset(("name", "hash", "title", "description", "arguments"))

_Raw = dict[str, Any]


class _Damage(Exception):
    """Something is not as it was written; the place is added on the way out, so that it costs nothing."""

    def __init__(self, problem: str, *, near: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.places: list[str] = []
        self.near = near
        """A text that stands on the line in question."""

    def within(self, place: str) -> _Damage:
        self.places.insert(0, place)
        return self

    def error(self, text: str) -> LockError:
        found = -1 if self.near is None else text.find(self.near)
        lines = [] if found < 0 else [f"line {text.count(chr(10), 0, found) + 1}"]
        return LockError(f"{self.problem}; {_AGAIN}", place=", ".join([*lines, *self.places]) or None)


def _pins(servers: Json) -> dict[str, Pin]:
    pins: dict[str, Pin] = {}
    for raw in _objects(servers, "servers"):
        name = _needed(raw, "server")
        try:
            if name in pins:
                raise _Damage("stands twice")
            pins[name] = _pin(raw, name)
        except _Damage as damage:
            raise damage.within(f"server {_shown(name)}") from None
    return {name: pins[name] for name in sorted(pins)}


def _pin(raw: _Raw, server: str) -> Pin:
    _check_fields(raw, _SERVER_FIELDS)
    names = raw.get("capabilities", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[Json]", names)):
        raise _Damage("'capabilities' must be a list of names")
    info = ServerInfo(
        name=_text(raw, "name"),
        title=_text(raw, "title"),
        version=_text(raw, "version"),
        description=_text(raw, "description"),
        protocol=_text(raw, "protocol"),
        capabilities={name: {} for name in cast("list[str]", names)},
    )
    snapshot = Snapshot(
        server=server,
        info=info,
        instructions=_text(raw, "instructions"),
        tools=_entries(raw, "tools", server, _tool),
        templates=_entries(raw, "templates", server, _template),
        prompts=_entries(raw, "prompts", server, _prompt),
    )
    return Pin(fingerprint=_needed(raw, "fingerprint"), snapshot=snapshot)


def _entries(raw: _Raw, field: str, server: str, make: Callable[[_Raw, str], E]) -> tuple[E, ...]:
    found: dict[str, E] = {}
    key_field = "uri" if field == "templates" else "name"
    for item in _objects(raw.get(field, []), field):
        key = _needed(item, key_field)
        try:
            if key in found:
                raise _Damage("stands twice")
            entry = found[key] = make(item, server)
            _verify(entry, _needed(item, "hash"))
        except _Damage as damage:
            raise damage.within(f"{field[:-1]} {_shown(key)}") from None
    return tuple(found[key] for key in sorted(found))


def _verify(entry: Entry, stated: str) -> None:
    try:
        actual = digest(definition(entry))
    except ValueError as problem:
        raise _Damage(f"cannot be pinned ({problem})") from None
    if actual != stated:
        raise _Damage("was edited: its hash does not fit its definition", near=f'"{stated}"')


def _tool(raw: _Raw, server: str) -> Tool:
    _check_fields(raw, _TOOL_FIELDS)
    schema, output, annotations = raw.get("input"), raw.get("output"), raw.get("annotations", EMPTY)
    if not isinstance(schema, dict) or not (output is None or isinstance(output, dict)):
        raise _Damage("has no valid schema")
    if not isinstance(annotations, Mapping):
        raise _Damage("'annotations' must be an object")
    return Tool(
        name=raw["name"],
        server=server,
        remote_name=raw["name"],
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        input_schema=schema,
        output_schema=output,
        annotations=annotations,
    )


def _template(raw: _Raw, server: str) -> ResourceTemplate:
    _check_fields(raw, _TEMPLATE_FIELDS)
    return ResourceTemplate(
        uri_template=raw["uri"],
        server=server,
        name=_needed(raw, "name"),
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        mime_type=_text(raw, "mime_type"),
    )


def _prompt(raw: _Raw, server: str) -> Prompt:
    _check_fields(raw, _PROMPT_FIELDS)
    return Prompt(
        name=raw["name"],
        server=server,
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        arguments=tuple(_objects(raw.get("arguments", []), "arguments")),
    )


def _objects(value: Json, field: str) -> list[_Raw]:
    items = cast("list[Json]", value) if isinstance(value, list) else [None]
    if not all(isinstance(item, dict) for item in items):
        raise _Damage(f"{field!r} must be a list of objects")
    return cast("list[_Raw]", items)


def _check_fields(raw: _Raw, fields: frozenset[str]) -> None:
    if not raw.keys() <= fields:
        raise _Damage(f"has a field {_shown(min(raw.keys() - fields))} that does not belong there")


def _text(raw: _Raw, field: str) -> str | None:
    value = raw.get(field)
    if value is None or isinstance(value, str):
        return value
    if field in _TEXTS and isinstance(value, list):
        lines = cast("list[Json]", value)
        if len(lines) > 1 and all(isinstance(line, str) for line in lines):
            return "\n".join(lines)
    raise _Damage(f"{field!r} must be text")


def _needed(raw: _Raw, field: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str):
        raise _Damage(f"has no {field!r}")
    return value


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:79] + "…")
