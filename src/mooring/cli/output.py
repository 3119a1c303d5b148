"""Where text goes: results to standard output, all else to standard error, colour to terminals only."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any, Literal, TextIO

from mooring.cli.layout import wrap
from mooring.cli.options import Options
from mooring.core.text import clean, clean_json, without_controls

__all__ = ["Output", "Style"]

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
