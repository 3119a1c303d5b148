"""Configuration files that a command changes: which one, the difference, and the confirmation."""

from __future__ import annotations

import difflib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mooring.cli.options import Options
from mooring.cli.output import Output, Style, wrap
from mooring.config.documents import parse_document, read_text
from mooring.config.edit.text import Drop, Place, Put, edited, find
from mooring.config.files import save
from mooring.config.load import FoundFile, file_for, found_files
from mooring.config.secret_scan import masked, masked_text
from mooring.core.text import clean, clean_line, nearest
from mooring.errors import UnknownServer

if TYPE_CHECKING:
    from mooring.config.programs.read import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTarget:
    """A file as it is now."""

    found: FoundFile
    before: str | None
    """Its text; None when there is no such file yet."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def path(self) -> Path:
        return self.found.path

    def changed(self, changes: Sequence[Put | Drop]) -> str:
        """Its text with the changes made."""
        return edited(self.before or "", changes, file=self.path)

    def save(self, text: str) -> Path | None:
        """Write it, and return where the text before is kept."""
        return save(self.path, text, before=self.before, private=self.found.scope == "user")


def open_target(
    options: Options, scope: Literal["project", "user"] | None, *, own: bool = False
) -> EditTarget:
    """Return the file that new entries go to: the last one named, else the project's, else the user's.

    With `own`, a project's file that other programs read too (`.mcp.json`) does not count.

    Raises:
        ConfigError: it is there, but cannot be read or parsed.
    """
    if scope is not None:
        return _opened(file_for(scope, own=own))
    found = found_files([Path(file) for file in options.config] or None)
    last = found[-1] if found else None
    if last is not None and last.scope == "project" and own and not last.own:
        last = None
    return _opened(last if last is not None and last.scope != "user" else file_for("user"))


def holder(options: Options, scope: Literal["project", "user"] | None, name: str) -> tuple[EditTarget, Place]:
    """The file in which the server `name` is written, and where: of several, the one that counts.

    Raises:
        UnknownServer: it stands in none of them.
    """
    files = [file_for(scope)] if scope else list(found_files([Path(file) for file in options.config] or None))
    known: list[str] = []
    for file in reversed(files):
        target = _opened(file)
        if (place := find(target.data, name)) is not None:
            return target, place
        known += _names(target.data)
    looked = ", ".join(str(file.path) for file in files)
    where = f"It is not in {looked}." if looked else "There is no configuration here."
    raise UnknownServer(name, nearest(name, known), hint=where)


def diff_lines(target: EditTarget, after: str, data: Sequence[Any]) -> list[str]:
    """What changes in a file, with everything masked that looks like a secret.

    `data` is what was written there now, besides what is there already.
    """
    values = [target.data, *data]
    old = masked_text(target.before or "", values).splitlines()
    new = masked_text(after, values).splitlines()
    source = "/dev/null" if target.before is None else str(target.path)
    return [
        clean(line) for line in difflib.unified_diff(old, new, source, str(target.path), n=2, lineterm="")
    ]


def painted(diff: Sequence[str], out: Output) -> list[str]:
    """The lines of a difference, in colour on terminals."""
    styles: dict[str, Style] = {"+": "green", "-": "red", "@": "cyan"}
    heads = [out.paint(line, "bold") for line in diff[:2]]
    return [*heads, *(out.paint(line, styles.get(line[:1], "plain")) for line in diff[2:])]


def entry_document(name: str, entry: Mapping[str, Any], target: EditTarget) -> dict[str, Any]:
    """An entry as the JSON form shows it."""
    return {"name": name, **masked(dict(entry)), "file": str(target.path), "scope": target.found.scope}


def wrote(what: str, target: EditTarget, backup: Path | None, out: Output) -> None:
    """Say on standard error what was done to which file, and where the text before is."""
    kept = f" The text before: {short(backup)}" if backup else " The file is new."
    out.note(f"{what} {short(target.path)}.{kept}")


def short(path: Path) -> str:
    """A path as people write it, from their home on."""
    home, text = str(Path.home()), clean_line(str(path))
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text


def open_file(path: Path) -> EditTarget:
    """Any other file, of whoever it is."""
    return _opened(FoundFile(path=path, scope="explicit"))


def _opened(found: FoundFile) -> EditTarget:
    if not found.path.exists():
        return EditTarget(found=found, before=None)
    text = read_text(found.path)
    data = parse_document(text, found.path) if text.strip() else {}
    return EditTarget(found=found, before=text, data=data)


def _names(data: Mapping[str, Any]) -> list[str]:
    from mooring.config.formats import read_shape

    return list(read_shape(data, own=False).servers)


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
    target: EditTarget, text: str | None, question: str, args: Namespace, out: Output
) -> tuple[int, bool]:
    """Ask, unless told not to, and write. The exit code, and whether it was written.

    `text` is what the file shall hold; None when nothing changes.
    """
    from mooring.cli.app import DONE, NEEDS_LOGIN
    from mooring.cli.ask import asked
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
