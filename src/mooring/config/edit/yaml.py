"""YAML edited in place. The parser reports positions; only the lines of one entry change.

Libraries that rewrite a whole document keep most comments but reformat untouched parts, and lose the comment
after a removed entry. So only lines are replaced here.
"""

from __future__ import annotations

import json
from typing import Any, cast

import yaml

from mooring.config.edit.text import (
    KeyPath,
    Node,
    children,
    descend,
    end_of_line,
    flow_drop,
    flow_insert,
    indent_of,
    is_mapping,
    line_start,
    spliced,
    wrapped,
)

__all__ = ["drop", "put"]

_YAML: Any = yaml
_UNIT = "  "


def put(text: str, path: KeyPath, value: object) -> str:
    """Return `text` with `value` at `path`: replaced, or added after its last sibling."""
    root = located(text)
    if root is None:  # comments at most
        head = text if not text or text.endswith("\n") else f"{text}\n"
        return head + "\n".join(_lines(wrapped(value, path))) + "\n"
    way, rest = descend(root, path)
    node = way[-1]
    if not rest:
        return _replace(text, way[-2], node, str(path[-1]), value)
    fresh = wrapped(value, rest[1:])
    if node.null or (node.flow and not children(node) and len(way) > 1 and not way[-2].flow):
        return _open(text, node, way[-2], rest[0], fresh)
    if node.flow:
        return spliced(text, flow_insert(text, node, rest[0], fresh, _UNIT))
    return _append(text, node, rest[0], fresh)


def drop(text: str, path: KeyPath) -> str:
    """Return `text` without the value at `path`. Raises KeyError when there is none."""
    root = located(text)
    way, rest = descend(root, path) if root else ([], path)
    if rest:
        raise KeyError(path)
    parent, node = way[-2], way[-1]
    if parent.flow:
        return spliced(text, flow_drop(text, parent, node))
    edits = [(*_own_lines(text, node), "")]
    if len(children(parent)) == 1 and len(way) > 2:
        colon = text.index(":", parent.name_end) + 1
        edits.append((colon, colon, " {}" if isinstance(parent.inner, dict) else " []"))
    return spliced(text, edits)


def located(text: str) -> Node | None:
    """Return the nodes of a text; None if it has none."""
    root = _YAML.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if root is None:
        return None
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return _Locator(text, starts).node(root, None)


class _Locator:
    """Converts the parser's nodes to `Node`. The depth of the text was checked before."""

    def __init__(self, text: str, starts: list[int]) -> None:
        self.text = text
        self.starts = starts

    def index(self, mark: yaml.Mark) -> int:
        return self.starts[mark.line] + mark.column

    def node(self, given: yaml.Node, name: yaml.Node | None) -> Node:
        start, end = self.index(given.start_mark), self.index(given.end_mark)
        name_end = self.index(name.end_mark) if name else 0
        at = self.index(name.start_mark) if name else start
        if start < name_end:  # an alias: its value is elsewhere in the text
            end = end_of_line(self.text, name_end)
            return Node(start=end, end=end, at=at, name_end=name_end)
        node = Node(start=start, end=end, at=at, name_end=name_end)
        if isinstance(given, yaml.MappingNode):
            pairs = cast("list[tuple[yaml.ScalarNode, yaml.Node]]", given.value)
            node.inner = {str(key.value): self.node(value, key) for key, value in pairs}
        elif isinstance(given, yaml.SequenceNode):
            node.inner = [self.node(item, None) for item in cast("list[yaml.Node]", given.value)]
        else:
            node.null = not given.value and self.text[start : start + 1] not in ("'", '"', "|", ">")
        if isinstance(given, yaml.CollectionNode):
            node.flow = bool(given.flow_style)
            if not node.flow and (members := children(node)):
                node.end = members[-1].end  # the mark is where the next token begins, after comments
        return node


def _append(text: str, node: Node, key: str | int, value: object) -> str:
    """Return `text` with a new last member in a block."""
    members = children(node)
    first, last = members[0], members[-1]
    if isinstance(key, str):
        indent = " " * (first.at - line_start(text, first.at))
        lines = _lines({key: value})
    else:
        indent = indent_of(text, _dash(text, first) + 1)
        lines = _lines([value])
    return _below(text, last.end, [indent + line if line else line for line in lines])


def _open(text: str, node: Node, parent: Node, key: str | int, value: object) -> str:
    """Return `text` with a first member in an empty value: a block replaces `{}`, `[]` or nothing."""
    indent = " " * (node.at - line_start(text, node.at)) + _UNIT
    lines = [
        indent + line if line else line for line in _lines({key: value} if isinstance(key, str) else [value])
    ]
    if isinstance(parent.inner, list):
        return spliced(text, flow_insert(text, node, key, value, _UNIT))
    colon = text.index(":", node.name_end) + 1
    emptied = text[:colon] + text[max(node.end, colon) :]
    return _below(emptied, colon, lines)


def _below(text: str, at: int, lines: list[str]) -> str:
    """Return `text` with these lines after the one that contains `at`."""
    block = "\n".join(lines)
    if at > 0 and text[at - 1] == "\n":  # a block scalar ends at the start of the next line
        return f"{text[:at]}{block}\n{text[at:]}"
    end = end_of_line(text, at)
    return f"{text[:end]}\n{block}{text[end:] or chr(10)}"


def _replace(text: str, parent: Node, node: Node, key: str, value: object) -> str:
    if not is_mapping(value) or (node.flow and node.inner is not None) or parent.flow:
        # JSON is valid YAML, and leaves the rest of the line unchanged
        return spliced(text, [(node.start, node.end, json.dumps(value, ensure_ascii=False))])
    start, end = _own_lines(text, node)
    if isinstance(parent.inner, list):
        lines = _lines([value])
        indent = indent_of(text, _dash(text, node) + 1)
    else:
        lines = _lines({key: value})
        indent = indent_of(text, node.at)
    return spliced(text, [(start, end, "".join(f"{indent}{line}\n" for line in lines))])


def _own_lines(text: str, node: Node) -> tuple[int, int]:
    """Return the range of the lines of one member of a block. Raises KeyError if other text is on them."""
    start = line_start(text, node.at)
    if text[start : node.at].strip(" -") or ("-" in text[start : node.at] and node.name_end):
        raise KeyError("it shares its line")
    end = node.end
    if text[end - 1] != "\n":
        end = min(end_of_line(text, end) + 1, len(text))
    return start, end


def _dash(text: str, item: Node) -> int:
    dash = text.rfind("-", line_start(text, item.at), item.at)
    if dash < 0:
        raise KeyError("its dash stands on another line")
    return dash


class _Dumper(yaml.SafeDumper):
    """Indents lists under their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _lines(value: object) -> list[str]:
    written: str = _YAML.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6, default_flow_style=False
    )
    return written.rstrip("\n").split("\n")
