"""Output: results to standard output, messages to standard error, tables, colours."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Literal, TextIO, cast

from mooring.cli.options import Options
from mooring.core.text import clean, clean_json, without_controls

GAP = "  "
NARROW = 24
"""With fewer columns than this left for it, a description is printed below its name."""


def width_of(text: str) -> int:
    """Terminal columns of the text: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def fields(value: object, *names: str) -> dict[str, Any]:
    """These attributes of a value, for the JSON form."""
    return {name: getattr(value, name) for name in names}


def plural(count: int, noun: str) -> str:
    """The count and the noun: `1 tool`, `3 tools`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def crop(text: str, width: int) -> str:
    """The text, shortened with an ellipsis if it is wider than `width`."""
    if width_of(text) <= width:
        return text
    start = ""
    for character in text:
        if width_of(start) + width_of(character) > width - 1:
            break
        start += character
    return f"{start.rstrip()}…" if width > 0 else ""


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

    If they do not fit, the columns in `spare` are dropped in that order; then the last column is cropped,
    then the first. Cells are returned separately so that the caller can colour them.
    """
    shown = list(range(len(rows[0]))) if rows else []
    widths = [max(width_of(row[column]) for row in rows) for column in shown]
    for column in spare:
        if width is not None and _total(widths, shown) > width:
            shown.remove(column)
    if width is not None and shown:
        for column, least in ((shown[-1], 1), (shown[0], 8)):
            over = max(_total(widths, shown) - width, 0)
            widths[column] = max(widths[column] - over, min(widths[column], least))
    return [_padded(row, shown, widths, right) for row in rows]


def by_server(
    rows: Sequence[tuple[str, ...]], width: int | None, paint: Callable[[str, Any], str]
) -> list[str]:
    """Format rows of (server, name, text) under a heading for each server.

    Without a width, each line is name, server and text, separated by tabs.
    """
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
            # Users copy names: break a long one over lines, never crop it.
            lines += [paint(line, "cyan") for line in wrap(name, width, indent=GAP)]
            shown = wrap(text, width, indent=GAP * 2)
            rest = [crop(f"{shown[1]} {shown[2].lstrip()}", width)] if len(shown) > 2 else shown[1:]
            lines += [*shown[:1], *rest]
    return lines


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[column] for column in shown) + len(GAP) * (len(shown) - 1)


def _padded(
    row: Sequence[str], shown: Sequence[int], widths: Sequence[int], right: Sequence[int]
) -> list[str]:
    cells: list[str] = []
    for column in shown:
        text = crop(row[column], widths[column])
        fill = " " * (widths[column] - width_of(text))
        last = column == shown[-1]
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
    """Standard output and standard error of one command."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wrote: Literal["nothing", "document", "lines"] = "nothing"
        """What was written to standard output: with `--json` one document, or one document per line."""
        self.reported = ""
        """The last error on standard error."""
        for stream in (sys.stdout, sys.stderr):
            # A symbol must not raise an error in a locale without UTF-8. Programs that read a pipe expect
            # UTF-8, but on Windows a pipe has the encoding of the console.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding=_pipe_encoding(stream.isatty()), errors="backslashreplace")

    @property
    def width(self) -> int | None:
        """Columns of standard output; None if it is not a terminal, so that nothing is cropped."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def interactive(self) -> bool:
        """Whether to show progress on standard error."""
        return sys.stderr.isatty() and not self.options.quiet and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """Write one line of the result. Outside of a terminal, only newline and tab stay unescaped."""
        sys.stdout.write(f"{text if sys.stdout.isatty() else without_controls(text)}\n")

    def lines(self, lines: Iterable[str]) -> None:
        for text in lines:
            self.line(text)

    def document(self, value: Any, *, indent: int | None = 2) -> None:
        """Write the JSON document of `--json`. Without `indent` it is one line, for programs that read on."""
        self.line(_json(value, indent=indent))
        self.wrote = "document"

    def json_line(self, value: Any) -> None:
        """Write one JSON document on a line, for commands that stream."""
        self.line(_json(value))
        self.wrote = "lines"

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a note on standard error; silent with `--quiet`."""
        if not self.options.quiet:
            self._paragraph(text, "note:", "cyan")

    def warning(self, text: str) -> None:
        """Print a warning on standard error; silent with `--quiet`."""
        if not self.options.quiet:
            self._paragraph(text, "warning:", "yellow")

    def error(self, text: str, *, label: str = "error:") -> None:
        """Print why the command failed and what to do."""
        self.reported = text
        self._paragraph(text, label, "red")

    def paint(self, text: str, style: Style, stream: TextIO | None = None) -> str:
        """The text in a style, if the stream (default: standard output) is a terminal with colours."""
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


def _pipe_encoding(terminal: bool) -> str | None:
    """The encoding to set on a standard stream; None to keep the one it has."""
    chosen = terminal or "PYTHONIOENCODING" in os.environ
    return "utf-8" if sys.platform == "win32" and not chosen else None


def _json(value: Any, indent: int | None = None) -> str:
    """The value as JSON; in ASCII if standard output has another encoding than UTF-8, which JSON requires."""
    encoding = (sys.stdout.encoding or "utf-8").replace("-", "").lower()
    return clean_json(json.dumps(value, ensure_ascii=encoding != "utf8", indent=indent))


MAX_UNREAD = 2**20
"""Characters that wait for the reader of standard error; more are dropped."""
LAST_WAIT = 1.0
"""Seconds that the end of the program waits for the reader of standard error."""


class _UnblockedStderr(io.TextIOBase):
    """Standard error that never blocks: a thread writes, and what does not fit is dropped and counted."""

    def __init__(self, file: int) -> None:
        import threading

        self._file = file
        self._waiting: list[str] = []
        self._size = self._dropped = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._write_all, name="mooring-stderr", daemon=True).start()

    def write(self, text: str, /) -> int:
        with self._changed:
            if self._size + len(text) > MAX_UNREAD:
                self._dropped += text.count("\n")
            else:
                self._add(text)
        return len(text)

    def _add(self, text: str) -> None:
        if self._dropped:
            text = f"warning: {plural(self._dropped, 'line')} dropped: stderr was not read.\n{text}"
            self._dropped = 0
        self._waiting.append(text)
        self._size += len(text)
        self._changed.notify_all()

    def fileno(self) -> int:
        return self._file

    def finish(self) -> None:
        """Wait until everything is written, at most `LAST_WAIT` seconds."""
        with self._changed:
            if self._dropped:
                self._add("")
            self._changed.wait_for(lambda: not self._size, LAST_WAIT)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text, self._waiting = "".join(self._waiting), []
            data = text.encode(errors="backslashreplace")
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                pass  # closed: there is no reader
            with self._changed:
                self._size = sum(map(len, self._waiting))
                self._changed.notify_all()


def never_block_on_stderr() -> None:
    """Let a program that serves go on, and end, when the reader of its standard error reads no more."""
    import atexit

    with suppress(OSError, ValueError):
        mode = os.fstat(sys.stderr.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            unblocked = _UnblockedStderr(sys.stderr.fileno())
            sys.stderr = cast("TextIO", unblocked)
            atexit.register(unblocked.finish)
