"""The arguments of one call: from words, files and standard input, and asked for where they are missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.arguments import missing, parse_arguments, typed_value
from mooring.cli.options import UsageError
from mooring.cli.output import Output
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Tool

__all__ = ["filled"]

SIZE_LIMIT = 16 * 2**20


async def filled(words: Sequence[str], document: str | None, tool: Tool, out: Output) -> dict[str, Any]:
    """What the tool is given.

    Raises:
        UsageError: it does not fit the tool, or something is missing and there is nobody to ask.
    """
    ask = sys.stdin.isatty() and out.interactive and not out.options.json
    schema = tool.input_schema
    arguments = parse_arguments(words, document, schema, read=_read, complete=not ask)
    for name in missing(arguments, schema):
        arguments[name] = await _asked(name, schema, out)
    return arguments


def _read(name: str) -> str:
    """The text of a file; `-` is standard input."""
    try:
        if name == "-":
            return sys.stdin.read()
        path = Path(name).expanduser()
        if path.stat().st_size > SIZE_LIMIT:
            raise UsageError(f"@{name}: it is larger than {SIZE_LIMIT >> 20} MiB.")
        return path.read_text("utf-8")
    except OSError as problem:
        raise UsageError(f"@{name}: {problem.strerror or problem}. Write @@ for an @ itself.") from None
    except UnicodeDecodeError:
        raise UsageError(f"@{name}: it is no text in UTF-8.") from None


async def _asked(name: str, schema: Mapping[str, Any], out: Output) -> Any:
    """What somebody at the terminal types; asked again while it does not fit."""
    from anyio import to_thread

    properties = schema.get("properties")
    about: Any = properties.get(name) if isinstance(properties, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    said = about.get("description") if isinstance(about, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    hint = f" ({clean_line(said)[:60]})" if isinstance(said, str) and said else ""
    while True:
        sys.stderr.write(f"{clean_line(name)}{hint}: ")
        sys.stderr.flush()
        # In a thread, so that Ctrl-C ends the wait; not by way of `sys.stdin`, whose lock would outlive it.
        typed = await to_thread.run_sync(os.read, sys.stdin.fileno(), 65536, abandon_on_cancel=True)
        if not typed:
            raise UsageError(f"Missing: {name}. The terminal was closed before it was typed.")
        try:
            return typed_value(typed.decode("utf-8", "replace").rstrip("\r\n"), name, schema)
        except UsageError as unfit:
            out.error(str(unfit))
