"""Where each value of a text stands, so that one of them can be edited and every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "KeyPath",
    "Node",
    "children",
    "descend",
    "end_of_line",
    "indent_of",
    "is_mapping",
    "line_start",
    "spliced",
    "wrapped",
]

KeyPath = tuple[str | int, ...]
"""Keys of mappings and positions in lists, from the top."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One value in a text."""

    start: int
    end: int
    at: int
    """Where its name begins; where it begins itself in a list."""
    inner: dict[str, Node] | list[Node] | None = None
    """What is in it; None for a scalar."""
    flow: bool = True
    """Written with brackets. False for what YAML writes with indentation."""
    name_end: int = 0
    null: bool = False


def children(node: Node) -> list[Node]:
    """The members of a mapping or the items of a list, in order."""
    if node.inner is None:
        return []
    return list(node.inner.values()) if isinstance(node.inner, dict) else node.inner


def descend(root: Node, path: KeyPath) -> tuple[list[Node], KeyPath]:
    """The nodes from `root` along `path` as far as it exists, and the rest of the path."""
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
    """`value` inside new mappings and lists, so that it stands at `path` of the result."""
    for key in reversed(path):
        value = {key: value} if isinstance(key, str) else [value]
    return value


def is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def end_of_line(text: str, at: int) -> int:
    """Where the line of `at` ends, before its line break."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def indent_of(text: str, at: int) -> str:
    """The blanks that the line of `at` begins with."""
    start = line_start(text, at)
    line = text[start:at]
    return line[: len(line) - len(line.lstrip())]


def spliced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """`text` with each stretch `start:end` replaced; the stretches do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
