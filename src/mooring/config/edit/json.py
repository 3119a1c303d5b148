"""JSON edited in place: a member put or dropped, with all comments, commas and indentation kept.

The same code edits what YAML writes in brackets, since JSON is YAML there.
"""

from __future__ import annotations

import json
import re
from typing import cast

from mooring.config.documents import BLANK, JsoncParser
from mooring.config.edit.text import (
    KeyPath,
    Node,
    children,
    descend,
    end_of_line,
    indent_of,
    line_start,
    spliced,
    wrapped,
)

__all__ = ["drop", "flow_drop", "flow_insert", "put", "unit_of"]

_SAME_LINE = re.compile(r"(?:[ \t]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
Edits = list[tuple[int, int, str]]


def put(text: str, path: KeyPath, value: object) -> str:
    """`text` with `value` at `path`: in place of what stands there, or after its last sibling."""
    root = _Spans(text).document()
    way, rest = descend(root, path)
    unit = unit_of(text, root)
    if not rest:
        node = way[-1]
        fresh = _render(value, indent_of(text, node.at), unit) if "\n" in text.strip() else _compact(value)
        return spliced(text, [(node.start, node.end, fresh)])
    return spliced(text, flow_insert(text, way[-1], rest[0], wrapped(value, rest[1:]), unit))


def drop(text: str, path: KeyPath) -> str:
    """`text` without what stands at `path`. KeyError when nothing does."""
    way, rest = descend(_Spans(text).document(), path)
    if rest:
        raise KeyError(path)
    return spliced(text, flow_drop(text, way[-2], way[-1]))


class _Spans(JsoncParser):
    """Reads nodes where its base reads values."""

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
    """What one more level is indented by."""
    first = next(iter(children(root)), None)
    return (indent_of(text, first.at) if first else "") or "  "


def flow_insert(text: str, node: Node, key: str | int, value: object, unit: str) -> Edits:
    """The edits that put a new last member into brackets, laid out like its siblings."""
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
    """The edits that put a first member between empty brackets, which may hold comments."""
    inside = text[node.start + 1 : node.end - 1]
    if "\n" not in text.strip() and text.strip() != text[node.start : node.end]:
        return [(node.start + 1, node.end - 1, f"{inside}{label}{_compact(value)}")]
    indent = outer + unit
    member = f"\n{indent}{label}{_render(value, indent, unit)}\n{outer}"
    return [(node.start + 1, node.end - 1, inside.rstrip() + member)]


def flow_drop(text: str, parent: Node, node: Node) -> Edits:
    """The edits that take one member out of its brackets, with its own lines and no others."""
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
    """Where the comma after a value stands, if there is one, and where its line's own text ends."""
    blank = BLANK.match(text, end)
    after = blank.end() if blank else end
    comma = after if text.startswith(",", after) else None
    start = end if comma is None else comma + 1
    same = _SAME_LINE.match(text, start)
    tail = same.end() if same else start
    if tail < len(text) and text[tail] != "\n":
        return comma, start  # more stands on this line: what is between belongs to that
    return comma, start + len(text[start:tail].rstrip())


def _render(value: object, indent: str, unit: str) -> str:
    """JSON over several lines, with lists of scalars on one."""
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
    """Whether it fits one line: a scalar, nothing, or a list of scalars."""
    if isinstance(value, list):
        return not any(isinstance(item, dict | list) for item in cast("list[object]", value))
    return not isinstance(value, dict) or not value


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
