"""JSON values: whether they can be sent, how large they are, and equal values shared."""

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
"""Values within it: looking at so many takes a few milliseconds."""
CHARACTERS = 100
"""So many characters of a text count as one value."""


def heavy(value: Any, most: int = MOST) -> bool:
    """Whether `value` holds more than `most` values. Stops looking when it is certain."""
    waiting: list[Any] = [value]
    while waiting:
        one: Any = waiting.pop()
        if isinstance(one, str):
            most -= len(one) // CHARACTERS
        elif isinstance(one, dict | list | tuple):
            items = cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
            most -= len(items)
            if most >= 0:
                waiting.extend(items)
        if most < 0:
            return True
    return False


_kept: dict[tuple[Callable[[Any], Any], int], tuple[ref[Any], tuple[Any]]] = {}
"""Answers by question and object, for as long as the object lives."""


def remember(ask: Callable[[T], object], value: T) -> None:
    """Answer now, so that `ask`, which looks with `recalled` first, answers at once later."""
    key = (ask, id(value))
    answer = (ask(value),)
    _kept[key] = (ref(value, lambda _: _kept.pop(key, None)), answer)


def recalled(ask: Callable[[T], R], value: T) -> tuple[R] | None:
    """What `remember` found out, if it was asked about this very object."""
    found = _kept.get((ask, id(value)))
    return cast("tuple[R]", found[1]) if found is not None and found[0]() is value else None


def shared(known: Snapshot, listed: Snapshot) -> Snapshot:
    """Return what was listed, with the known tools wherever they say the same to the letter.

    Where all of them do, they come in the known order: that of listing means nothing.
    """
    if not known.tools or not listed.tools:
        return listed
    by_name = {tool.remote_name: tool for tool in known.tools}
    tools = tuple(_shared(by_name.get(tool.remote_name), tool) for tool in listed.tools)
    if len(tools) == len(known.tools) and set(map(id, tools)) == set(map(id, known.tools)):
        tools = known.tools
    return replace(listed, tools=tools)


def _shared(known: Tool | None, tool: Tool) -> Tool:
    # Equality tells most apart quickly, but to it `1` and `true` are the same: letters are the last word.
    if known is None or not same(known, tool):
        return tool
    try:
        return known if _letters(known) == _letters(tool) else tool
    except ValueError:  # no plain JSON, or nested too deep
        return tool


def _letters(tool: Tool) -> bytes:
    """All that a definition holds beside its name, by value alone (version 2 does that)."""
    hints: list[Json] = [dict(tool.annotations), dict(tool.meta), dict(tool.extra)]
    return marshal.dumps([tool.title, tool.description, tool.input_schema, tool.output_schema, hints], 2)


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_LARGEST = 10**18
"""Integers above it are left to the encoder: Python refuses to write very long ones."""


def not_json(arguments: Mapping[str, Any]) -> str | None:
    """Return why `arguments` is not JSON; None when it is.

    Arguments without nesting, which most are, cost a fraction of encoding them.
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
