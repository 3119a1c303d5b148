"""The lines on which the values of a configuration file stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mooring.config.edit.text import KeyPath, Node

__all__ = ["value_lines"]

_WORD = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = re.compile(rf"[ \t]*({_WORD}(?:[ \t]*\.[ \t]*{_WORD})*)[ \t]*=")


def value_lines(text: str, file: Path) -> dict[KeyPath, int]:
    """Return the line of each value, from 1; the suffix of `file` is the format.

    In TOML, values inside of inline tables stand on the line of the table.
    """
    kind = file.suffix.lower()
    if kind == ".toml":
        return dict(_toml(text))
    module: Any = import_module(f"mooring.config.edit.{'yaml' if kind in ('.yaml', '.yml') else 'text'}")
    root: Node | None = module.located(text)
    return {} if root is None else dict(_below(text, root, ()))


def _below(text: str, node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if path:
        yield path, text.count("\n", 0, node.at) + 1
    inner = node.inner
    pairs = inner.items() if isinstance(inner, dict) else enumerate(inner or ())
    for key, child in pairs:
        yield from _below(text, child, (*path, key))


def _toml(text: str) -> Iterator[tuple[KeyPath, int]]:
    from mooring.config.edit.toml import lines_of, tables_in

    heads = {table.start: table for table in tables_in(text)}
    home: KeyPath = ()
    for number, line in enumerate(lines_of(text)):
        if number in heads:
            home = heads[number].key
            yield home, number + 1
        elif (found := _KEY.match(line)) is not None:
            keys = [part.strip("\"'") for part in re.findall(_WORD, found[1])]
            yield (*home, *keys), number + 1
