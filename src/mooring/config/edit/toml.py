"""TOML edited in place: tables are added and removed as blocks of lines; `tomlkit` edits inline values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import tomlkit
from tomlkit.items import InlineTable

from mooring.config.edit.text import KeyPath, is_mapping, wrapped

__all__ = ["Statement", "drop", "left_out", "put", "statements"]

# Multi-line strings may contain anything, so they are skipped as a whole.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|\n|[\[\]{}]',
    re.DOTALL,
)
_BEFORE_VALUE = re.compile(r"""((?:"[^"]*"|'[^']*'|[^="'])*)=""")
_HEADER = re.compile(r"[ \t]*(\[.*\])[ \t]*(?:#.*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The lines of one `[table]`, without the comments and blank lines before the next one."""

    start: int
    end: int
    key: KeyPath


def put(text: str, path: KeyPath, value: object) -> str:
    """Return `text` with `value` at `path`: replaced, or added after its last sibling."""
    tables = tables_in(text)
    own = [table for table in tables if table.key[: len(path)] == path]
    home = next((table for table in tables if table.key == path[:-1]), None)
    if home is not None and not is_mapping(value) and not _stands(text, path):
        return _appended(text, home, path[-1], value)
    if not is_mapping(value) or (not own and _stands_inline(text, path)):
        return _put_inline(text, path, value)
    block = tomlkit.dumps({str(path[0]): wrapped(value, path[1:])})
    lines = lines_of(text)
    if own:
        kept = _cut(lines, own[1:])
        return "".join([*kept[: own[0].start], block, *kept[own[0].end :]])
    siblings = [table for table in tables if table.key[: len(path) - 1] == path[:-1]]
    end = siblings[-1].end if siblings and len(path) > 1 else len(lines)
    before = "".join(lines[:end])
    joint = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    return f"{before}{joint}{block}{''.join(lines[end:])}"


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends, as TOML counts them: texts may hold other separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _appended(text: str, table: _Table, key: str | int, value: object) -> str:
    """Return `text` with one more line at the end of a table. `tomlkit` would add it after the comments that
    belong to the next table."""
    lines = lines_of(text)
    before = "".join(lines[: table.end])
    joint = "" if before.endswith("\n") else "\n"
    return f"{before}{joint}{tomlkit.dumps({str(key): value})}{''.join(lines[table.end :])}"


def _stands(text: str, path: KeyPath) -> bool:
    node: Any = tomllib.loads(text)
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]  # pyright: ignore[reportUnknownVariableType]
    return True


def drop(text: str, path: KeyPath) -> str:
    """Return `text` without the value at `path`. Raises KeyError when there is none."""
    own = [table for table in tables_in(text) if table.key[: len(path)] == path]
    if own:
        rest = "".join(_cut(lines_of(text), own))
        # An empty file would look like an accident.
        return rest if rest.strip() else tomlkit.dumps({str(path[0]): wrapped({}, path[1:-1])})
    document: Any = tomlkit.parse(text)
    container = document
    for key in path[:-1]:
        container = container[key]
    del container[path[-1]]
    return tomlkit.dumps(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A table header, or a key with its value, with its lines from 0."""

    start: int
    end: int
    key: KeyPath
    """From the top of the document, with positions in arrays of tables."""
    is_table: bool


def statements(text: str) -> list[Statement]:
    """Return the statements of a document that may be wrong, in order."""
    found: list[Statement] = []
    home: KeyPath = ()
    arrays: dict[KeyPath, int] = {}
    for start, end, line in _logical_lines(text):
        header = _HEADER.match(line)
        key = None if header else _BEFORE_VALUE.match(line)
        try:
            path = _key(header[1]) if header else _key(f"[{key[1]}]") if key else ()
        except tomllib.TOMLDecodeError:
            continue
        if header and header[1].startswith("[["):
            arrays[path] = arrays.get(path, -1) + 1
            home = (*path, arrays[path])
        elif header:
            array = max((one for one in arrays if path[: len(one)] == one), key=len, default=None)
            home = path = path if array is None else (*array, arrays[array], *path[len(array) :])
        elif path:
            path = (*home, *path)
        if path:
            found.append(Statement(start=start, end=end, key=path, is_table=header is not None))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a document, where a value of several lines is one: first and last number, text."""
    depth, number, first, start = 0, 0, 0, 0
    for token in _TOKEN.finditer(f"{text}\n"):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] != "\n":
            number += token[0].count("\n")
        else:
            number += 1
            if depth <= 0:
                yield first, number, text[start : token.start()]
                depth, first, start = 0, number, token.end()


def left_out(text: str, found: list[Statement], at: int) -> tuple[Statement, int | None, str]:
    """Leave out the statement at line `at`, which clashes with an earlier one, also from `found`.

    Returns:
        The statement, the line of the earlier one (None if there is none), and the text, in which every other
        line keeps its number.

    Raises:
        KeyError: there is no statement at this line.
    """
    index = next((n for n, one in enumerate(found) if one.start <= at < one.end), None)
    if index is None:
        raise KeyError(at)
    own, last = found[index], index + 1
    depth = len(own.key)
    if own.is_table:  # with its keys and tables; a second [servers] without those of single servers
        others = (
            n for n in range(last, len(found)) if found[n].key[:depth] != own.key or _alone(own, found[n])
        )
        last = next(others, len(found))
    same = (one for one in found[:index] if one.key == own.key)
    inner = (one for one in found[:index] if one.key[:depth] == own.key)
    outer = (one for one in found[:index] if not one.is_table and own.key[: len(one.key)] == one.key)
    first = next((one.start for one in (*same, *inner, *outer)), None)
    lines, end = text.split("\n"), found[last - 1].end
    del found[index:last]
    return own, first, "\n".join([*lines[: own.start], *[""] * (end - own.start), *lines[end:]])


def _alone(own: Statement, other: Statement) -> bool:
    return len(own.key) == 1 and other.is_table and len(other.key) > 1


def _cut(lines: list[str], tables: list[_Table]) -> list[str]:
    """Return the lines without these tables; two adjacent blank lines become one."""
    for table in reversed(tables):
        before, after = lines[: table.start], lines[table.end :]
        if before and not before[-1].strip() and not (after and after[0].strip()):
            before = before[:-1]
        lines = [*before, *after]
    return lines


def tables_in(text: str) -> list[_Table]:
    """Return the tables in order, without arrays of tables."""
    lines = lines_of(text)
    headers = list(_headers(text))
    ends = [*(line for line, _ in headers), len(lines)][1:]
    tables: list[_Table] = []
    for (start, header), end in zip(headers, ends, strict=True):
        if not header.startswith("[["):
            while end > start + 1 and lines[end - 1].strip()[:1] in ("", "#"):
                end -= 1
            tables.append(_Table(start=start, end=end, key=_key(header)))
    return tables


def _headers(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the header of each line that begins a table."""
    for number, _, line in _logical_lines(text):
        if (found := _HEADER.match(line)) is not None:
            yield number, found[1]


def _key(header: str) -> KeyPath:
    keys: list[str | int] = []
    inner: Any = tomllib.loads(header)
    while inner and isinstance(inner, dict):
        key, inner = next(iter(cast("dict[str, Any]", inner).items()))
        keys.append(key)
    return tuple(keys)


def _stands_inline(text: str, path: KeyPath) -> bool:
    """Whether the value at `path`, or the table that would contain it, is written inline."""
    node: Any = tomlkit.parse(text)
    for key in path:
        if isinstance(node, list) or key not in node:
            return isinstance(node, InlineTable | list)
        node = node[key]
    return True


def _put_inline(text: str, path: KeyPath, value: object) -> str:
    document: Any = tomlkit.parse(text)
    container = document
    for key in path[:-1]:
        if not isinstance(key, int) and key not in container:
            container[key] = tomlkit.table()
        container = container[key]
    if isinstance(path[-1], int) and path[-1] == len(container):
        container.append(value)
    else:
        container[path[-1]] = value
    return tomlkit.dumps(document)
