"""Text measured and laid out in columns. Pure: a terminal's width comes in as a number."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

__all__ = ["by_server", "crop", "table", "width_of", "wrap"]

GAP = "  "
NARROW = 24
"""Columns below which a text goes under its name instead of beside it."""


def width_of(text: str) -> int:
    """Columns that the text takes on a terminal: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def crop(text: str, width: int) -> str:
    """The text, ended with an ellipsis where it is wider than `width`."""
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if width_of(kept) + width_of(character) > width - 1:
            break
        kept += character
    return f"{kept.rstrip()}…" if width > 0 else ""


def wrap(text: str, width: int | None, indent: str = "") -> list[str]:
    """The lines of the text, each indented and, given a width, broken to fit it."""
    if width is None:
        return [f"{indent}{line}" for line in text.splitlines()]
    room = max(width - width_of(indent), 8)
    return [f"{indent}{line}" for paragraph in text.splitlines() for line in _broken(paragraph, room)]


def table(
    rows: Sequence[Sequence[str]], *, width: int | None, spare: Sequence[int] = (), right: Sequence[int] = ()
) -> list[list[str]]:
    """The rows with their cells padded to columns, so that joined by `GAP` each line fits the width.

    Where they do not fit, the columns in `spare` are left out, first named first; then the last column
    is cropped, then the first. Cells stay apart so that a caller can colour them.
    """
    kept = list(range(len(rows[0]))) if rows else []
    widths = [max(width_of(row[column]) for row in rows) for column in kept]
    for column in spare:
        if width is not None and _total(widths, kept) > width:
            kept.remove(column)
    if width is not None and kept:
        for column, least in ((kept[-1], 1), (kept[0], 8)):
            over = max(_total(widths, kept) - width, 0)
            widths[column] = max(widths[column] - over, min(widths[column], least))
    return [_padded(row, kept, widths, right) for row in rows]


def by_server(
    rows: Sequence[tuple[str, ...]], width: int | None, paint: Callable[[str, Any], str]
) -> list[str]:
    """Lines of (server, name, text) under a heading for each server; without a width, tabbed lines of
    name, server and text."""
    if width is None:
        return ["\t".join((name, server, text)) for server, name, text in rows]
    lines: list[str] = []
    longest = max((width_of(name) for _, name, _ in rows), default=0)
    beside = width - longest - 2 * len(GAP) >= NARROW
    for server, group in groupby(sorted(rows), key=lambda row: row[0]):
        own = [[name, text] for _, name, text in group]
        lines.append(paint(server, "bold"))
        if beside:
            cells = table([[name.ljust(longest), text] for name, text in own], width=width - len(GAP))
            lines += [f"{GAP}{paint(name, 'cyan')}{GAP}{text}".rstrip() for name, text in cells]
            continue
        for name, text in own:
            # A name is copied and typed: it is broken over lines rather than cut.
            lines += [paint(line, "cyan") for line in wrap(name, width, indent=GAP)]
            lines += wrap(text, width, indent=GAP * 2)[:2]
    return lines


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[column] for column in kept) + len(GAP) * (len(kept) - 1)


def _padded(
    row: Sequence[str], kept: Sequence[int], widths: Sequence[int], right: Sequence[int]
) -> list[str]:
    cells: list[str] = []
    for column in kept:
        text = crop(row[column], widths[column])
        fill = " " * (widths[column] - width_of(text))
        last = column == kept[-1]
        cells.append(f"{fill}{text}" if column in right else text if last else f"{text}{fill}")
    return cells


def _broken(text: str, room: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        candidate = f"{line} {word}" if line else word
        if width_of(candidate) <= room:
            line = candidate
            continue
        if line:
            yield line
        while width_of(word) > room:
            head = word[: max(room // 2, 1)] if not word.isascii() else word[:room]
            yield head
            word = word[len(head) :]
        line = word
    yield line
