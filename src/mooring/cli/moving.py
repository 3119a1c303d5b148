"""Servers on their way between files: what `import` and `export` show, ask and write in common."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.cli.layout import wrap
from mooring.cli.output import Output, Style
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.cli.editing import Target
    from mooring.config.hosts.transfer import Action

__all__ = ["finish", "server_lines"]

_SYMBOLS: dict[Action, tuple[str, Style]] = {
    "add": ("+", "green"),
    "replace": ("~", "yellow"),
    "skip": ("·", "dim"),
}


def server_lines(
    action: Action, name: str, origin: str, reason: str, notes: Sequence[str], out: Output
) -> list[str]:
    """One server, what becomes of it, and what it loses on the way."""
    symbol, style = _SYMBOLS[action]
    lines = [f"{out.paint(symbol, style)} {clean_line(name)}  {out.paint(origin, 'dim')}"]
    for text in [*([reason] if reason else []), *(notes if action != "skip" else ())]:
        lines += wrap(clean(text), out.width, indent="    ")
    return lines


async def finish(
    target: Target, text: str | None, question: str, args: Namespace, out: Output
) -> tuple[int, bool]:
    """Ask, unless told not to, and write. The exit code, and whether it was written.

    `text` is what the file shall hold; None when nothing changes.
    """
    from mooring.cli.app import DONE, NEEDS_LOGIN
    from mooring.cli.asking import asked
    from mooring.cli.editing import short, wrote

    if text is None:
        out.note("There is nothing to write.")
        return DONE, False
    if args.dry_run:
        out.note(f"Nothing was written to {short(target.path)}: this was a dry run.")
        return DONE, False
    if not args.yes and not await asked(question, "Nothing was written.", out):
        return NEEDS_LOGIN, False
    wrote("Wrote", target, target.save(text), out)
    return DONE, True
