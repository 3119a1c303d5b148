"""Change configuration files: show the diff, confirm, write."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.output import Output, Style, wrap
from mooring.config.edit.target import EditTarget
from mooring.config.secret_scan import masked
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.config.programs.convert import Action


def painted(diff: Sequence[str], out: Output) -> list[str]:
    """Colour the lines of a diff."""
    styles: dict[str, Style] = {"+": "green", "-": "red", "@": "cyan"}
    heads = [out.paint(line, "bold") for line in diff[:2]]
    return [*heads, *(out.paint(line, styles.get(line[:1], "plain")) for line in diff[2:])]


def entry_document(name: str, entry: Mapping[str, Any], target: EditTarget) -> dict[str, Any]:
    """The JSON form of an entry, with secrets masked."""
    return {"name": name, **masked(dict(entry)), "file": str(target.path), "scope": target.found.scope}


def wrote(what: str, target: EditTarget, backup: Path | None, out: Output) -> None:
    """Report the change of a file and its backup."""
    before = f" Backup: {short(backup)}" if backup else " The file is new."
    out.note(f"{what} {short(target.path)}.{before}")


def short(path: Path) -> str:
    """The path with `~` for the home directory."""
    home, text = str(Path.home()), clean_line(str(path))
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text


_SYMBOLS: dict[Action, tuple[str, Style]] = {
    "add": ("+", "green"),
    "replace": ("~", "yellow"),
    "skip": ("·", "dim"),
}


def server_lines(
    action: Action, name: str, origin: str, reason: str, notes: Sequence[str], out: Output
) -> list[str]:
    """One server of an import or export: the action, its reason, and what cannot be transferred."""
    symbol, style = _SYMBOLS[action]
    lines = [f"{out.paint(symbol, style)} {clean_line(name)}  {out.paint(origin, 'dim')}"]
    for text in [*([reason] if reason else []), *(notes if action != "skip" else ())]:
        lines += wrap(clean(text), out.width, indent="    ")
    return lines


async def finish(
    target: EditTarget, text: str | None, question: str, args: Namespace, out: Output
) -> tuple[int, bool]:
    """Confirm unless `--yes`, then write. Return the exit code and whether the file was written.

    `text`: the new text of the file; None if nothing changes.
    """
    from mooring.cli.app import DONE, NEEDS_LOGIN
    from mooring.cli.ask import confirm

    if text is None:
        out.note("Nothing to write.")
        return DONE, False
    if args.dry_run:
        out.note(f"Dry run: {short(target.path)} was not changed.")
        return DONE, False
    if not args.yes and not await confirm(question, "Nothing was written.", out):
        return NEEDS_LOGIN, False
    wrote("Wrote", target, target.save(text), out)
    return DONE, True
