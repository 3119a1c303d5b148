"""Configuration files to change: find the file and the entry, show the difference, write."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mooring.config.documents import parse_document, read_text
from mooring.config.edit.text import Drop, Place, Put, edited, find
from mooring.config.files import save
from mooring.config.load import FoundFile, file_for, found_files
from mooring.config.secret_scan import masked_text
from mooring.core.text import clean, nearest
from mooring.errors import UnknownServer

__all__ = ["EditTarget", "diff_lines", "find_entry", "open_file", "open_found", "open_target"]


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
    files: Sequence[Path] | None, scope: Literal["project", "user"] | None, *, own: bool = False
) -> EditTarget:
    """Return the file for new entries: the last of `files`, else the project's, else the user's.

    With `own`, ignore a project file that other programs read too (`.mcp.json`).

    Raises:
        ConfigError: the file exists, but cannot be read or parsed.
    """
    if scope is not None:
        return open_found(file_for(scope, own=own))
    found = found_files(files)
    last = found[-1] if found else None
    if last is not None and last.scope == "project" and own and not last.own:
        last = None
    return open_found(last if last is not None and last.scope != "user" else file_for("user"))


def find_entry(
    named: Sequence[Path] | None, scope: Literal["project", "user"] | None, name: str
) -> tuple[EditTarget, Place]:
    """The file that defines the server `name`, and the place in it; of several, the one that takes effect.

    Raises:
        UnknownServer: no file defines it.
    """
    files = [file_for(scope)] if scope else list(found_files(named))
    names: list[str] = []
    for file in reversed(files):
        target = open_found(file)
        if (place := find(target.data, name)) is not None:
            return target, place
        names += _names(target.data)
    searched = ", ".join(str(file.path) for file in files)
    where = f"Searched: {searched}." if searched else "There is no configuration file."
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


def open_file(path: Path) -> EditTarget:
    """Open a file of another program."""
    return open_found(FoundFile(path=path, scope="explicit"))


def open_found(found: FoundFile) -> EditTarget:
    """Open a configuration file, which need not exist.

    Raises:
        ConfigError: It cannot be read or parsed.
    """
    if not found.path.exists():
        return EditTarget(found=found, before=None)
    text = read_text(found.path)
    data = parse_document(text, found.path) if text.strip() else {}
    return EditTarget(found=found, before=text, data=data)


def _names(data: Mapping[str, Any]) -> list[str]:
    from mooring.config.formats import read_shape

    return list(read_shape(data, own=False).servers)
