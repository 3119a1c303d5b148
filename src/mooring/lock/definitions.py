"""Canonical form and hash of a tool, resource, template, prompt, extension, skill or page for the lock.

It includes everything that can reach a model or a client of the gateway: `_meta`, icons and unknown fields
too. It excludes the listing order, the size of a resource, and the version and capability details of the
server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from math import isfinite
from typing import Any, TypeAlias, TypeVar, cast

from mooring.core.apps import apps_meta
from mooring.core.json_values import recalled
from mooring.core.skills import DYNAMIC
from mooring.core.types import Extension, Json, Page, Prompt, Resource, ResourceTemplate, Skill, Tool

__all__ = [
    "DEPTH_LIMIT",
    "HASH",
    "LONGEST_NAME",
    "Entry",
    "canonical",
    "condensed",
    "condensed_meta",
    "cut",
    "definition",
    "digest",
    "first_of_each",
    "is_pinnable",
    "key_of",
    "pinnable",
    "shown_name",
    "visible_text",
    "words",
]

Entry: TypeAlias = Tool | Resource | ResourceTemplate | Prompt | Extension | Skill | Page

E = TypeVar("E", Tool, Resource, ResourceTemplate, Prompt, Extension, Skill, Page)

LARGEST = 4096
"""Longest `_meta` or unknown field in a pin, in characters; longer ones are hashed."""
HASH = "mooring/sha256"

_MOST_BITS = 14_000
"""Python does not write integers of more than 4,300 digits."""

DEPTH_LIMIT = 64
"""Most levels of a definition that can be pinned. Real ones stay under 20."""


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def canonical(value: Json) -> str:
    """Return the canonical text of a JSON value; `1`, `true` and `1.0` differ.

    Raises:
        ValueError: it is not JSON (NaN, a Python object), or nested too deeply.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None


def definition(entry: Entry) -> dict[str, Json]:
    """Return the pinned fields of an entry by their names in the lock, the key first."""
    match entry:
        case Tool():
            counted: dict[str, Json] = {
                "name": entry.remote_name,
                "title": entry.title,
                "description": entry.description,
                "input": entry.input_schema,
                "output": entry.output_schema,
                "annotations": dict(entry.annotations),
            }
            if entry.meta:
                counted["meta"] = condensed_meta(entry.meta)
        case Resource() | ResourceTemplate():
            counted = {
                "uri": entry.uri if isinstance(entry, Resource) else entry.uri_template,
                "name": entry.name,
                "title": entry.title,
                "description": entry.description,
                "mime_type": entry.mime_type,
            }
        case Prompt():
            counted = {
                "name": entry.name,
                "title": entry.title,
                "description": entry.description,
                "arguments": entry.arguments,
            }
        case Extension():
            return {"name": entry.name, "settings": condensed(entry.settings)}
        case Skill():
            files = (
                None if entry.files is None else {one.uri: f"{one.digest} {one.size}" for one in entry.files}
            )
            counted = {
                "uri": entry.uri,
                "name": entry.name,
                "description": entry.description,
                "frontmatter": dict(entry.frontmatter),
                "files": DYNAMIC if files is None else files,
            }
        case Page():
            rules = {"csp": entry.csp, "permissions": list(entry.permissions)}
            return {"uri": entry.uri, "page": entry.digest, **rules}
    if entry.extra:
        counted["more"] = condensed(entry.extra)
    return counted


def condensed(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields, with large values replaced by their hash."""
    return {name: _condensed(value) for name, value in fields.items()}


def condensed_meta(meta: Mapping[str, Json]) -> dict[str, Json]:
    """Return `_meta` of a tool with large values replaced by their hash. Who may use the tool and the address
    of its page stay readable, because they count before the server runs."""
    found = condensed(meta)
    for key, value in apps_meta(meta).items():
        if isinstance(value, dict) and isinstance(hashed := found[key], dict) and HASH in hashed:
            found[key] = {**hashed, **condensed(cast("dict[str, Json]", value))}
    return found


def _condensed(value: Json) -> Json:
    if value is None or isinstance(value, bool | int | float):
        return value
    try:
        text = canonical(value)
    except ValueError:  # cannot be pinned
        return value
    return value if len(text) <= LARGEST else {HASH: sha256(text.encode("ascii")).hexdigest()}


def words(value: Json) -> list[str]:
    """Return the sorted words of a value, independent of their order."""
    return sorted(word for text in _texts(value) for word in re.findall(r"\w+", text))


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Json]", value).items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Json]", value):
            yield from _texts(inner)
    else:
        yield canonical(value)


def digest(counted: Mapping[str, Json]) -> str:
    """Return the content hash of a definition.

    The server's fingerprint is not part of it, so that a changed launch command changes one line of the lock
    and not every hash.

    Raises:
        ValueError: it cannot be pinned.
    """
    return sha256(pinnable(counted).encode("ascii")).hexdigest()


def pinnable(counted: Mapping[str, Json]) -> str:
    """Return the canonical text of a definition.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    text = canonical(counted)
    # Fast path: count brackets.
    if text.count("{") + text.count("[") > DEPTH_LIMIT and not _is_json(counted):
        raise ValueError(f"nests deeper than {DEPTH_LIMIT} levels")
    return text


def key_of(entry: Entry) -> str:
    """Return the key of an entry within its server."""
    match entry:
        case Tool():
            return entry.remote_name
        case Resource() | Skill() | Page():
            return entry.uri
        case ResourceTemplate():
            return entry.uri_template
        case Prompt() | Extension():
            return entry.name


def first_of_each(entries: Iterable[E]) -> dict[str, E]:
    """Return the entries by key, in order of key; the first one of each key."""
    found: dict[str, E] = {}
    for entry in entries:
        found.setdefault(key_of(entry), entry)
    return {key: found[key] for key in sorted(found)}


def is_pinnable(entry: Entry) -> bool:
    """Whether the definition of an entry can be pinned."""
    if (found := recalled(is_pinnable, entry)) is not None:
        return found[0]
    from pydantic_core import from_json, to_json  # lazy: not needed for comparing and reading

    counted = definition(entry)
    try:
        text = to_json(counted)
        # Fast path: nearly every definition is plain JSON with few brackets.
        few = text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT
        if few and from_json(text, allow_inf_nan=False) == counted:
            return True
    except ValueError:
        pass
    return _is_json(counted)


def _is_json(value: Json) -> bool:
    """Whether the value is JSON and not nested too deeply; faster than `canonical`."""
    level: list[Json] = [value]
    for _ in range(DEPTH_LIMIT + 1):
        inner: list[Json] = []
        for item in level:
            if item is None or isinstance(item, str | bool):
                continue
            if isinstance(item, int):
                if item.bit_length() > _MOST_BITS:
                    return False
                continue
            if isinstance(item, Mapping):
                fields = cast("Mapping[object, Json]", item)
                if not all(isinstance(key, str) for key in fields):
                    return False
                inner += fields.values()
            elif isinstance(item, list | tuple):
                inner += cast("list[Json]", item)
            elif not isinstance(item, float) or not isfinite(item):
                return False
        if not inner:
            return True
        level = inner
    return False


@cache
def _not_ascii() -> re.Pattern[str]:
    """Return the expression, compiled on first use because that takes milliseconds."""
    return re.compile(r"[\x00-\x1f\x7f-\U0010ffff]")


def visible_text(value: str) -> str:
    """Return text with every invisible or direction-changing character written as an escape, for reviews."""
    return _not_ascii().sub(_escape, value)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    varies = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    if char.isprintable() and not varies:
        return char
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)  # JSON uses a surrogate pair
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


LONGEST_NAME = 80


def shown_name(name: str) -> str:
    """Return a name quoted, shortened and with invisible characters escaped."""
    return "'" + cut(visible_text(name), LONGEST_NAME) + "'"


def cut(text: str, limit: int) -> str:
    """Return the text, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
