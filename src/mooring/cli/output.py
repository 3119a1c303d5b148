"""Output: results to standard output, messages to standard error, columns, colours."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, TextIO

from mooring.cli.options import Options
from mooring.core.text import clean, clean_json, without_controls

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


Style = Literal["plain", "bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Output:
    """The two streams of one command, and what may be done to each."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wrote: Literal["nothing", "document", "lines"] = "nothing"
        """What standard output holds so far: with `--json` one document, or many on lines of their own."""
        self.reported = ""
        """The last error on standard error."""
        for stream in (sys.stdout, sys.stderr):
            # An old locale must not turn a symbol into a crash.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    @property
    def width(self) -> int | None:
        """Columns that standard output has; None when it is no terminal, and nothing should be cut."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def interactive(self) -> bool:
        """Whether somebody watches standard error and wants to see progress there."""
        return sys.stderr.isatty() and not self.options.quiet and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Write one line of the result. A pipe or file gets no control characters but newline and tab."""
        sys.stdout.write(f"{text if sys.stdout.isatty() else without_controls(text)}\n")

    def lines(self, lines: Iterable[str]) -> None:
        for text in lines:
            self.line(text)

    def document(self, value: Any) -> None:
        """The one JSON document of `--json`."""
        self.line(clean_json(json.dumps(value, ensure_ascii=False, indent=2)))
        self.wrote = "document"

    def json_line(self, value: Any) -> None:
        """One of many JSON documents, on a line of its own: for what has no end."""
        self.line(clean_json(json.dumps(value, ensure_ascii=False)))
        self.wrote = "lines"

    def flush(self) -> None:
        """Let whoever reads the result have it now."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark beside the result; silent with `--quiet`."""
        if not self.options.quiet:
            self._paragraph(text, "note:", "cyan")

    def warning(self, text: str) -> None:
        """Something was set aside; silent with `--quiet`."""
        if not self.options.quiet:
            self._paragraph(text, "warning:", "yellow")

    def error(self, text: str, *, label: str = "error:") -> None:
        """Why the command failed, and what to try next."""
        self.reported = text
        self._paragraph(text, label, "red")

    def paint(self, text: str, style: Style, stream: TextIO | None = None) -> str:
        """The text in a style, where the stream (standard output) shows styles."""
        target = sys.stdout if stream is None else stream
        plain = style == "plain" or not target.isatty()
        if plain or not text or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"

    def _paragraph(self, text: str, label: str, style: Style) -> None:
        text = f"{label} {clean(text)}".strip()
        if sys.stderr.isatty():
            text = "\n".join(wrap(text, shutil.get_terminal_size().columns))
        if label:
            text = self.paint(label, style, sys.stderr) + text.removeprefix(label)
        sys.stdout.flush()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
