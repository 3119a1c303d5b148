"""JSON values: checks, size limits and sharing of equal values."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast
from weakref import ref

from mooring.core.catalog import same
from mooring.core.types import Json, Snapshot, Tool

T = TypeVar("T")
R = TypeVar("R")

MOST = 20_000
"""Most nested values; checking as many takes a few milliseconds."""
CHARACTERS = 100
"""Characters of a text that count as one value."""


def heavy(value: Any, most: int = MOST) -> bool:
    """Whether `value` contains more than `most` values."""
    waiting: list[Any] = [value]
    for one in waiting:  # grows, up to the limit
        if isinstance(one, str):
            most -= len(one) // CHARACTERS
        elif isinstance(one, (dict, list, tuple)):
            items = cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
            most -= len(items)
            if most >= 0:
                waiting.extend(items)
        if most < 0:
            return True
    return False


_kept: dict[tuple[Callable[[Any], Any], int], tuple[ref[Any], tuple[Any]]] = {}
"""Cached results by function and object, for the lifetime of the object."""


def remember(ask: Callable[[T], object], value: T) -> None:
    """Cache `ask(value)`. `ask` reads the cache with `recalled`."""
    key = (ask, id(value))
    answer = (ask(value),)
    _kept[key] = (ref(value, lambda _: _kept.pop(key, None)), answer)


def recalled(ask: Callable[[T], R], value: T) -> tuple[R] | None:
    """Return the result that `remember` cached for this object, in a tuple; None without one."""
    found = _kept.get((ask, id(value)))
    return cast("tuple[R]", found[1]) if found is not None and found[0]() is value else None


def shared(known: Snapshot, listed: Snapshot) -> Snapshot:
    """Return the new listing with known tool objects where their definitions are identical.

    If all are, they keep the known order, because the order of a listing has no meaning.
    """
    if not known.tools or not listed.tools:
        return listed
    by_name = {tool.remote_name: tool for tool in known.tools}
    tools = tuple(_shared(by_name.get(tool.remote_name), tool) for tool in listed.tools)
    if len(tools) == len(known.tools) and set(map(id, tools)) == set(map(id, known.tools)):
        tools = known.tools
    return replace(listed, tools=tools)


def _shared(known: Tool | None, tool: Tool) -> Tool:
    # `==` is fast, but `1 == True`: compare the encoded values too.
    if known is None or not same(known, tool):
        return tool
    try:
        return known if _letters(known) == _letters(tool) else tool
    except ValueError:  # not plain JSON, or nested too deeply
        return tool


def _letters(tool: Tool) -> bytes:
    """Encode a definition without its name by value (marshal version 2)."""
    hints: list[Json] = [dict(tool.annotations), dict(tool.meta), dict(tool.extra)]
    return marshal.dumps([tool.title, tool.description, tool.input_schema, tool.output_schema, hints], 2)


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_LARGEST = 10**18
"""Larger integers are checked by the encoder, because Python rejects very long ones."""


def not_json(arguments: Mapping[str, Any]) -> str | None:
    """Return why `arguments` is not JSON; None when it is.

    Flat arguments, the usual case, are not encoded.
    """
    for key, value in arguments.items():
        kind = value.__class__
        if type(key) is not str:
            break
        if kind is str or kind is bool or value is None:
            continue
        if not (kind is int and -_LARGEST < value < _LARGEST):
            break
    else:
        return None
    try:
        _encode(dict(arguments))
    except (TypeError, ValueError) as problem:
        return str(problem)
    except RecursionError:
        return "it is nested too deeply"
    return None
