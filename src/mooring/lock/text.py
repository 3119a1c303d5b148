"""Text of a lock file for reviews, and its parser.

JSON in a fixed order, one field or schema property a line, long texts line by line, without timestamps and
invisible characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from mooring.core.skills import DYNAMIC
from mooring.core.types import (
    EMPTY,
    Extension,
    Json,
    Page,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerInfo,
    Skill,
    SkillFile,
    Snapshot,
    Tool,
)
from mooring.lock import Lock, LockError, Mark, NewerLockError, Pin
from mooring.lock.definitions import Entry, definition, digest, visible_text

__all__ = ["FORMAT", "parse", "render"]

FORMAT = 3
"""Version of the format. Increase it when an older version could misread the file. Format 1 has no resources,
`_meta` or unknown fields; format 2 has no extensions, skills and pages."""

_ABOUT = (
    "What each MCP server was approved to offer. `mooring lock` writes it, `mooring check` compares, "
    "`mooring approve` accepts a change. Commit it; do not edit it."
)
_AGAIN = "restore it from version control, or write it again with `mooring lock --force`"
_WIDTH = 100
_TEXTS = frozenset(("title", "description", "instructions"))

E = TypeVar("E", Tool, Resource, ResourceTemplate, Prompt, Extension, Skill, Page)


def render(lock: Lock) -> str:
    """Return the text of a lock. Equal locks have equal texts."""
    servers = [_server(name, lock.servers[name]) for name in sorted(lock.servers)]
    return _layout({"about": _ABOUT, "version": FORMAT, "servers": servers}) + "\n"


def parse(text: str) -> Lock:
    """Return the lock in a text.

    Raises:
        NewerLockError: a newer version of mooring wrote it.
        LockError: it is invalid; the error says where.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise LockError(f"is damaged: nested too deep; {_AGAIN}") from None
    except json.JSONDecodeError as error:
        raise _broken(text, error) from None
    except ValueError:  # thousands of digits
        raise LockError(f"is damaged: it has a number that is too large; {_AGAIN}") from None
    if not isinstance(document, dict):
        raise LockError(f"is not a lock; {_AGAIN}", place="line 1")
    fields = cast("dict[str, Any]", document)
    _check_version(fields.get("version"))
    try:
        pins = _pins(fields.get("servers"), fields["version"])
    except _Damage as damage:
        raise damage.error(text) from None
    return Lock(servers=MappingProxyType(pins))


# --- writing


def _server(name: str, pin: Pin) -> dict[str, Json]:
    snapshot, info = pin.snapshot, pin.snapshot.info
    fields: dict[str, Json] = {
        "server": name,
        "fingerprint": pin.fingerprint,
        "partial": None if pin.whole else True,
        "protocol": info.protocol,
        "name": info.name,
        "title": _lines(info.title),
        "version": info.version,
        "description": _lines(info.description),
        "capabilities": list(info.capabilities),
        "instructions": _lines(snapshot.instructions),
        "volatile": _marks(pin, "server", "") or None,
        "tools": [_entry(tool, _marks(pin, "tool", tool.remote_name)) for tool in snapshot.tools],
        "resources": [_entry(one, _marks(pin, "resource", one.uri)) for one in snapshot.resources],
        "templates": [_entry(one, _marks(pin, "template", one.uri_template)) for one in snapshot.templates],
        "prompts": [_entry(one, _marks(pin, "prompt", one.name)) for one in snapshot.prompts],
        "extensions": [_entry(one, {}) for one in snapshot.extensions],
        "skills": [_entry(one, {}) for one in snapshot.skills],
        "pages": [_entry(one, {}) for one in snapshot.pages or ()],
        "pages_unread": True if snapshot.pages is None else None,
    }
    return {field: value for field, value in fields.items() if value is not None and value != []}


def _marks(pin: Pin, subject: str, name: str) -> dict[str, str]:
    """Return the volatile fields of an entry, and how they differ."""
    if not pin.volatile:
        return {}
    return {mark[2]: how for mark, how in sorted(pin.volatile.items()) if mark[:2] == (subject, name)}


def _entry(entry: Entry, volatile: Mapping[str, str]) -> dict[str, Json]:
    counted = definition(entry)
    key = next(iter(counted))
    fields = {
        field: _lines(value) if field in _TEXTS else value
        for field, value in counted.items()
        if value is not None and not (field in _EMPTY and value == _EMPTY[field])
    }
    marks: dict[str, Json] = {"volatile": volatile} if volatile else {}
    return {key: counted[key], "hash": digest(counted), **marks, **fields}


_EMPTY: Mapping[str, Json] = {
    "description": "",
    "annotations": {},
    "arguments": (),
    "settings": {},
    "permissions": [],
}


def _lines(text: str | None) -> Json:
    """Return a multi-line text as a list of lines, so that diffs show single lines."""
    return text.split("\n") if text is not None and "\n" in text else text


_ONE_LINE = json.JSONEncoder(ensure_ascii=False, default=dict).encode


_OUTER = 5
"""Levels with one item a line: the lock, its servers, each server, its entries, each entry."""


def _layout(value: Json, indent: str = "", level: int = 0) -> str:
    """Return the value as text, on one line if it is short and has no properties."""
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
    """Return the value as one line, or an empty text if it is too long."""
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
_LIST_FIELDS = ("tools", "resources", "templates", "prompts")
_FIRM_FIELDS = ("extensions", "skills", "pages", "pages_unread")
_SERVER_FIELDS = frozenset(
    (*_INFO_FIELDS, *_LIST_FIELDS, *_FIRM_FIELDS, "capabilities", "instructions", "partial", "volatile")
)
_ENTRY_FIELDS = ("name", "hash", "title", "description", "volatile", "more")
_TOOL_FIELDS = frozenset((*_ENTRY_FIELDS, "input", "output", "annotations", "meta"))
_RESOURCE_FIELDS = frozenset((*_ENTRY_FIELDS, "uri", "mime_type"))
_PROMPT_FIELDS = frozenset((*_ENTRY_FIELDS, "arguments"))
_SKILL_FIELDS = frozenset(("uri", "hash", "name", "description", "frontmatter", "files", "more"))

_BY_URI = ("resources", "templates", "skills", "pages")

_Raw = dict[str, Any]


class _Damage(Exception):
    """The text is invalid. Callers add the place."""

    def __init__(self, problem: str, *, near: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.places: list[str] = []
        self.near = near
        """A text on the line of the problem."""

    def within(self, place: str) -> _Damage:
        self.places.insert(0, place)
        return self

    def error(self, text: str) -> LockError:
        found = -1 if self.near is None else text.find(self.near)
        lines = [] if found < 0 else [f"line {text.count(chr(10), 0, found) + 1}"]
        return LockError(f"{self.problem}; {_AGAIN}", place=", ".join([*lines, *self.places]) or None)


def _pins(servers: Json, version: int) -> dict[str, Pin]:
    pins: dict[str, Pin] = {}
    for raw in _objects(servers, "servers"):
        name = _needed(raw, "server")
        try:
            if name in pins:
                raise _Damage("is defined twice")
            pins[name] = _pin(raw, name, version)
        except _Damage as damage:
            raise damage.within(f"server {_shown(name)}") from None
    return {name: pins[name] for name in sorted(pins)}


def _pin(raw: _Raw, server: str, version: int) -> Pin:
    _check_fields(raw, _SERVER_FIELDS)
    unread = version < 3 or raw.get("pages_unread") is True
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
        resources=_entries(raw, "resources", server, _resource),
        templates=_entries(raw, "templates", server, _template),
        prompts=_entries(raw, "prompts", server, _prompt),
        extensions=_entries(raw, "extensions", server, _extension),
        skills=_entries(raw, "skills", server, _skill),
        pages=None if unread else _entries(raw, "pages", server, _page),
    )
    return Pin(
        fingerprint=_needed(raw, "fingerprint"),
        snapshot=snapshot,
        whole=version > 1 and raw.get("partial") is not True,
        volatile=MappingProxyType(_volatile(raw)),
    )


def _volatile(raw: _Raw) -> dict[Mark, str]:
    """Return the volatile fields of a server and of its entries."""
    marks = {("server", "", field): how for field, how in _marked(raw).items()}
    for listed in _LIST_FIELDS:
        for item in raw.get(listed, ()):
            key = item["uri" if listed in _BY_URI else "name"]
            marks |= {(listed[:-1], key, field): how for field, how in _marked(item).items()}
    return marks


def _marked(raw: _Raw) -> dict[str, str]:
    marks = _object(raw, "volatile")
    if not all(how in ("order", "text") for how in marks.values()):
        raise _Damage("'volatile' must say 'order' or 'text' for each field")
    return {field: str(how) for field, how in marks.items()}


def _object(raw: _Raw, field: str) -> dict[str, Json]:
    value = raw.get(field, {})
    if not isinstance(value, dict):
        raise _Damage(f"{field!r} must be an object")
    return cast("dict[str, Json]", value)


def _entries(raw: _Raw, field: str, server: str, make: Callable[[_Raw, str], E]) -> tuple[E, ...]:
    found: dict[str, E] = {}
    key_field = "uri" if field in _BY_URI else "name"
    for item in _objects(raw.get(field, []), field):
        key = _needed(item, key_field)
        try:
            if key in found:
                raise _Damage("is defined twice")
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
    schema, output = raw.get("input"), raw.get("output")
    if not isinstance(schema, dict) or not (output is None or isinstance(output, dict)):
        raise _Damage("has no valid schema")
    return Tool(
        name=raw["name"],
        server=server,
        remote_name=raw["name"],
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        input_schema=cast("dict[str, Json]", schema),
        output_schema=cast("dict[str, Json] | None", output),
        annotations=_object(raw, "annotations") or EMPTY,
        meta=_object(raw, "meta") or EMPTY,
        extra=_object(raw, "more") or EMPTY,
    )


def _resource(raw: _Raw, server: str) -> Resource:
    _check_fields(raw, _RESOURCE_FIELDS)
    return Resource(
        uri=raw["uri"],
        server=server,
        name=_needed(raw, "name"),
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        mime_type=_text(raw, "mime_type"),
        extra=_object(raw, "more") or EMPTY,
    )


def _template(raw: _Raw, server: str) -> ResourceTemplate:
    same = _resource(raw, server)
    fields = ("server", "name", "title", "description", "mime_type", "extra")
    return ResourceTemplate(uri_template=same.uri, **{name: getattr(same, name) for name in fields})


def _prompt(raw: _Raw, server: str) -> Prompt:
    _check_fields(raw, _PROMPT_FIELDS)
    return Prompt(
        name=raw["name"],
        server=server,
        title=_text(raw, "title"),
        description=_text(raw, "description") or "",
        arguments=tuple(_objects(raw.get("arguments", []), "arguments")),
        extra=_object(raw, "more") or EMPTY,
    )


def _extension(raw: _Raw, server: str) -> Extension:
    _check_fields(raw, frozenset(("name", "hash", "settings")))
    return Extension(name=raw["name"], server=server, settings=_object(raw, "settings") or EMPTY)


def _skill(raw: _Raw, server: str) -> Skill:
    _check_fields(raw, _SKILL_FIELDS)
    files = raw.get("files")
    return Skill(
        name=_needed(raw, "name"),
        server=server,
        uri=raw["uri"],
        description=_text(raw, "description") or "",
        frontmatter=_object(raw, "frontmatter"),
        files=None if files == DYNAMIC else tuple(map(_file, _object(raw, "files").items())),
        extra=_object(raw, "more") or EMPTY,
    )


def _file(item: tuple[str, Json]) -> SkillFile:
    digest, _, size = str(item[1]).partition(" ")
    if not size.isdecimal() or len(size) > 15:
        raise _Damage(f"{_shown(item[0])} must have a digest and a size")
    return SkillFile(uri=item[0], digest=digest, size=int(size))


def _page(raw: _Raw, server: str) -> Page:
    _check_fields(raw, frozenset(("uri", "hash", "page", "csp", "permissions")))
    given = raw.get("permissions", [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in cast("list[Json]", given)):
        raise _Damage("'permissions' must be a list of names")
    asked = tuple(cast("list[str]", given))
    page, csp = _needed(raw, "page"), _text(raw, "csp") or ""
    return Page(uri=raw["uri"], server=server, digest=page, csp=csp, permissions=asked)


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
