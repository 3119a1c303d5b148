"""YAML as plain data: every scalar stays text, so that `no`, `1.10` and `22:22` mean what they look like.

Built from the parser's events without recursion. Aliases share what they name and count as a copy,
so that a file of a few lines cannot stand for a billion values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import yaml

from mooring.config.documents import DEPTH_LIMIT, BadSyntaxError, plain_scalar

__all__ = ["parse"]

_NODE_LIMIT = 200_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_YAML: Any = yaml  # the stubs leave `parse` untyped
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Open:
    """A mapping or sequence whose end has not been met yet."""

    def __init__(self, line: int, anchor: str | None, before: int, *, is_map: bool) -> None:
        self.line = line
        self.anchor = anchor
        self.before = before
        self.is_map = is_map
        self.items: list[object] = []
        self.lines: dict[str, int] = {}
        """Keys of a mapping, with where they stand."""
        self.key: str | None = None
        self.merged: int | None = None
        """Where `<<` stands, which in quotes is a name like any other."""

    def notice_merge(self, event: yaml.ScalarEvent) -> None:
        if self.is_map and self.key is None and not event.style and event.value == "<<":
            self.merged = event.start_mark.line + 1

    def add(self, value: object, line: int) -> None:
        if not self.is_map:
            self.items.append(value)
        elif self.key is None:
            self.key = _key(value, line)
            if self.key in self.lines:
                raise BadSyntaxError.twice(self.key, self.lines[self.key], line)
            self.lines[self.key] = line
        else:
            self.items.append((self.key, value))
            self.key = None

    def done(self) -> object:
        if not self.is_map:
            return self.items
        own = dict(cast("list[tuple[str, object]]", self.items))
        return own if self.merged is None else _merged(own, self.merged)


class _Builder:
    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[object, int]] = {}
        """What each anchor stands for, and of how many values that consists."""
        self.count = 0
        self.root: object = None

    def event(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        anchor = cast("str | None", getattr(event, "anchor", None))
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self.stack) >= DEPTH_LIMIT:
                    raise BadSyntaxError("is nested too deeply", line=line)
                is_map = isinstance(event, yaml.MappingStartEvent)
                self.stack.append(_Open(line, anchor, self.count, is_map=is_map))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node = self.stack.pop()
                self.put(node.done(), node.line, node.anchor, node.before)
            case yaml.ScalarEvent():
                if self.stack:
                    self.stack[-1].notice_merge(event)
                plain_null = not event.style and event.value in _NULLS
                text = event.value if event.style else plain_scalar(event.value)
                self.put(None if plain_null else text, line, anchor, self.count)
            case yaml.AliasEvent():
                if anchor not in self.anchors:
                    raise BadSyntaxError(
                        f"the alias '*{anchor}' stands before, or inside, what it names", line=line
                    )
                value, weight = self.anchors[anchor]
                self.count += weight
                self.put(value, line, None, self.count)
            case _:
                pass

    def put(self, value: object, line: int, anchor: str | None, before: int) -> None:
        self.count += 1
        if self.count > _NODE_LIMIT:
            raise BadSyntaxError("stands for too many values; use fewer aliases", line=line)
        if anchor is not None:
            self.anchors[anchor] = (value, self.count - before)
        if self.stack:
            self.stack[-1].add(value, line)
        else:
            self.root = value


def parse(text: str) -> object:
    """The value that `text` holds: mappings, lists, texts and None.

    Raises:
        BadSyntaxError: it is not YAML, too large, too deep, or a mapping has a key twice.
    """
    builder = _Builder()
    documents = 0
    try:
        for event in cast("Iterator[yaml.Event]", _YAML.parse(text, Loader=_LOADER)):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise BadSyntaxError("holds a second document; keep one", line=event.start_mark.line + 1)
            builder.event(event)
    except yaml.MarkedYAMLError as error:
        raise _problem(text, error) from None
    except yaml.YAMLError:
        raise BadSyntaxError("is not valid YAML: it holds a character that YAML does not allow") from None
    return builder.root


def _problem(text: str, error: yaml.MarkedYAMLError) -> BadSyntaxError:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return BadSyntaxError("is not valid YAML")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = f"is not valid YAML: {error.problem or 'it cannot be read'}"
    if "\t" in line[: mark.column + 1]:
        problem += "; indent with spaces, never with tabs"
    elif "${" in line:
        problem += '; put a text that holds ${…} in double quotes, as in ["${NAME}"]'
    else:
        problem += "; check the indentation, and put texts with special characters in quotes"
    return BadSyntaxError(problem, line=mark.line + 1, column=mark.column + 1)


def _key(value: object, line: int) -> str:
    if isinstance(value, str):
        return value
    raise BadSyntaxError("a name in a mapping must be text", line=line)


def _merged(own: dict[str, object], line: int) -> dict[str, object]:
    """`own` with what `<<` names beneath it."""
    given = own.pop("<<")
    bases = cast("list[object]", given) if isinstance(given, list) else [given]
    result: dict[str, object] = {}
    for base in reversed(bases):
        if not isinstance(base, dict):
            raise BadSyntaxError("'<<' must name a mapping", line=line)
        result |= cast("dict[str, object]", base)
    return result | own
