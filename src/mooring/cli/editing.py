"""Change configuration files: find the file, show the diff, confirm, write."""

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
    from mooring.config.programs.convert import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTarget:
    """A configuration file to change, with its current content."""

    found: FoundFile
    before: str | None
    """The current text; None if the file does not exist."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def path(self) -> Path:
        return self.found.path

    def changed(self, changes: Sequence[Put | Drop]) -> str:
        """The text with the changes applied."""
        return edited(self.before or "", changes, file=self.path)

    def save(self, text: str) -> Path | None:
        """Write the text and return the path of the backup."""
        return save(self.path, text, before=self.before, private=self.found.scope == "user")


def open_target(
    options: Options, scope: Literal["project", "user"] | None, *, own: bool = False
) -> EditTarget:
    """Return the file for new entries: the last `--config`, else the project's, else the user's.

    With `own`, ignore a project file that other programs read too (`.mcp.json`).

    Raises:
        ConfigError: the file exists, but cannot be read or parsed.
    """
    if scope is not None:
        return _opened(file_for(scope, own=own))
    found = found_files(options.files)
    last = found[-1] if found else None
    if last is not None and last.scope == "project" and own and not last.own:
        last = None
    return _opened(last if last is not None and last.scope != "user" else file_for("user"))


def find_entry(
    options: Options, scope: Literal["project", "user"] | None, name: str
) -> tuple[EditTarget, Place]:
    """The file that defines the server `name`, and the place in it; of several, the one that takes effect.

    Raises:
        UnknownServer: no file defines it.
    """
    files = [file_for(scope)] if scope else list(found_files(options.files))
    names: list[str] = []
    for file in reversed(files):
        target = _opened(file)
        if (place := find(target.data, name)) is not None:
            return target, place
        names += _names(target.data)
    searched = ", ".join(str(file.path) for file in files)
    where = f"It is not in {searched}." if searched else "There is no configuration file."
    raise UnknownServer(name, nearest(name, names), hint=where)


def diff_lines(target: EditTarget, after: str, data: Sequence[Any]) -> list[str]:
    """A unified diff of the file, with everything masked that looks like a secret.

    `data`: the new entries.
    """
    values = [target.data, *data]
    old = masked_text(target.before or "", values).splitlines()
    new = masked_text(after, values).splitlines()
    source = "/dev/null" if target.before is None else str(target.path)
    return [
        clean(line) for line in difflib.unified_diff(old, new, source, str(target.path), n=2, lineterm="")
    ]


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


def open_file(path: Path) -> EditTarget:
    """Open a file of another program."""
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
