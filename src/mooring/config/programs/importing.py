"""Servers of other programs that are imported into a configuration file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from mooring.config.documents import parse_document
from mooring.config.edit.target import EditTarget
from mooring.config.edit.text import edited, put_entry
from mooring.config.formats import read_shape
from mooring.config.load import load
from mooring.config.models import ServerConfig
from mooring.config.programs.convert import Candidate, Move, candidates, installed, plan_import
from mooring.config.programs.model import Machine, Program, Vault
from mooring.config.programs.table import ANY, PROGRAMS, program
from mooring.config.trust import approval_of, mark
from mooring.errors import ConfigError

__all__ = ["ImportSource", "import_sources", "imported_text", "planned_imports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """One file of another program, and the servers found in it."""

    program: Program
    file: Path
    found: tuple[Candidate, ...] = ()
    error: str | None = None


def import_sources(
    target: EditTarget, *, name: str | None = None, source: str | None = None
) -> list[ImportSource]:
    """Return the files of other programs that exist on this machine, with their servers.

    Args:
        target: The file to import into; it is no source.
        name: Only this program.
        source: Only this file.

    Raises:
        ConfigError: There is no such program, or the file has no servers.
    """
    machine, vault = Machine.this(), Vault()
    programs = [program(name)] if name else list(PROGRAMS.values())
    if source:
        one = programs[0] if name else ANY
        file = Path(source).expanduser().absolute()
        found = tuple(candidates(one, file, machine, vault))
        if not found:
            raise ConfigError(f"has no servers in the format of {one.title}", file=str(file))
        return [ImportSource(program=one, file=file, found=found)]
    sources: list[ImportSource] = []
    for place in installed(programs, machine):
        if place.file.resolve() == target.path.resolve():
            continue
        try:
            found = tuple(candidates(place.program, place.file, machine, vault))
            sources.append(ImportSource(program=place.program, file=place.file, found=found))
        except ConfigError as error:
            sources.append(ImportSource(program=place.program, file=place.file, error=str(error)))
    return sources


def planned_imports(
    sources: Sequence[ImportSource],
    target: EditTarget,
    files: Sequence[Path] | None,
    *,
    servers: Collection[str] = (),
    rename: bool = False,
    force: bool = False,
) -> list[Move]:
    """Return what an import does with each server.

    Args:
        sources: Where they come from.
        target: The file to import into.
        files: The configuration files that were named; None: the usual places.
        servers: Only these; empty: all.
        rename: Rename servers whose name is taken.
        force: Replace servers whose name is taken.
    """
    found = [one for source in sources for one in source.found if not servers or one.name in servers]
    named = [file for file in files or () if file.expanduser().exists()]
    loaded = load(named or None).servers if named or not files else ()
    present = {server.name: server for server in loaded if _counts(server, target)}
    taken = read_shape(target.data, own=False).servers
    return plan_import(found, present, tuple(taken), rename=rename, force=force)


def _counts(server: ServerConfig, target: EditTarget) -> bool:
    """Whether an import leaves out an equal server. It does not for one of an unapproved project file."""
    if server.scope != "project" or server.file is None or server.file == str(target.path):
        return True
    return approval_of(server.file).servers.get(server.name) == mark(server)


def imported_text(target: EditTarget, moves: Sequence[Move]) -> str:
    """Return the text of the file with the imported servers."""
    text, data = target.before or "", target.data
    for move in moves:
        if move.action != "skip":
            put = put_entry(data, move.name, move.candidate.entry or {}, own=target.found.own)
            text = edited(text, [put], file=target.path)
            data = parse_document(text, target.path)
    return text
