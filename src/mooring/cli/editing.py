"""A configuration file that a command changes: which one it is, what changes in it, and how that is shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mooring.cli.options import Options
from mooring.cli.output import Output, Style
from mooring.config.documents import parse_document, read_text
from mooring.config.edit import Drop, Put, edited
from mooring.config.entries import Place, find
from mooring.config.files import save
from mooring.config.load import FoundFile, file_for, found_files
from mooring.core.near import nearest
from mooring.core.suspect import masked, masked_text
from mooring.core.text import clean, clean_line
from mooring.errors import UnknownServer

__all__ = [
    "Target",
    "diff_lines",
    "entry_document",
    "holder",
    "open_file",
    "open_target",
    "painted",
    "short",
    "wrote",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
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


def open_target(options: Options, scope: Literal["project", "user"] | None, *, own: bool = False) -> Target:
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


def holder(options: Options, scope: Literal["project", "user"] | None, name: str) -> tuple[Target, Place]:
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


def diff_lines(target: Target, after: str, data: Sequence[Any]) -> list[str]:
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


def entry_document(name: str, entry: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """An entry as the JSON form shows it."""
    return {"name": name, **masked(dict(entry)), "file": str(target.path), "scope": target.found.scope}


def wrote(what: str, target: Target, backup: Path | None, out: Output) -> None:
    """Say on standard error what was done to which file, and where the text before is."""
    kept = f" The text before: {short(backup)}" if backup else " The file is new."
    out.note(f"{what} {short(target.path)}.{kept}")


def short(path: Path) -> str:
    """A path as people write it, from their home on."""
    home, text = str(Path.home()), clean_line(str(path))
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text


def open_file(path: Path) -> Target:
    """Any other file, of whoever it is."""
    return _opened(FoundFile(path=path, scope="explicit"))


def _opened(found: FoundFile) -> Target:
    if not found.path.exists():
        return Target(found=found, before=None)
    text = read_text(found.path)
    data = parse_document(text, found.path) if text.strip() else {}
    return Target(found=found, before=text, data=data)


def _names(data: Mapping[str, Any]) -> list[str]:
    from mooring.config.formats import read_shape

    return list(read_shape(data, own=False).servers)
