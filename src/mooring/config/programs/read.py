"""Server entries read from another program's file, and which of them are imported."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from mooring.config.documents import read_document
from mooring.config.edit.text import canonical_entry
from mooring.config.formats import IGNORED, SHAPES, at, server_fields, snake
from mooring.config.load import folders_up
from mooring.config.models import ServerConfig
from mooring.config.programs.model import Carried, Machine, Program, SiteScope, UnfitError
from mooring.config.programs.references import Vault, inward
from mooring.config.units import number
from mooring.config.validate import InvalidEntryError
from mooring.errors import ConfigError

_COSMETIC = frozenset(
    {"bundled", "dev", "display_name", "gallery", "icon", "id", "source", "startup", "version", "log_level"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One server of another program."""

    name: str
    program: Program
    file: Path
    entry: Mapping[str, Any] | None = None
    """In our words; None when it cannot be carried over."""
    notes: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProgram:
    """One file of a program that is there."""

    program: Program
    file: Path
    scope: SiteScope


def installed(programs: list[Program], machine: Machine) -> Iterator[FoundProgram]:
    """The files of these programs that exist here, each once, those that win first."""
    seen: set[str] = set()
    for program in programs:
        for site in program.sites:
            path = site.path(machine)
            if path is not None and os.path.isfile(path) and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield FoundProgram(program=program, file=path, scope=site.scope)


def candidates(program: Program, file: Path, machine: Machine, vault: Vault) -> list[Candidate]:
    """The servers in a file.

    Raises:
        ConfigError: it cannot be read, or what stands where this program keeps its servers are none.
    """
    document = read_document(file)
    return [
        _candidate(program, file, name, raw, document, vault)
        for name, raw in _raw(program, file, document, machine)
    ]


def _raw(program: Program, file: Path, document: dict[str, Any], machine: Machine) -> list[tuple[str, Any]]:
    roots = list(program.roots)
    if program.per_folder is not None:
        first, last = program.per_folder
        roots = [*((first, str(folder), last) for folder in folders_up(machine.cwd)), *roots]
    places = [place for root in roots if (place := at(document, root)) is not None]
    if not places:
        places = [place for shape in SHAPES if (place := at(document, shape)) is not None]
    if not places and program.bare and all(isinstance(value, Mapping) for value in document.values()):
        places = [document]
    entries: list[tuple[str, Any]] = []
    for place in places:
        entries += _named(place, file)
    return entries


def _named(place: object, file: Path) -> Iterator[tuple[str, Any]]:
    if isinstance(place, Mapping):
        yield from cast("Mapping[str, Any]", place).items()
    elif isinstance(place, list):
        for position, item in enumerate(cast("list[Any]", place), 1):
            entry = dict(cast("Mapping[str, Any]", item)) if isinstance(item, Mapping) else {}
            name = entry.pop("name", None) or entry.pop("alias", None)
            yield str(name or f"entry {position}"), entry if name else None
    else:
        raise ConfigError("holds neither a mapping nor a list of servers", file=str(file))


def _candidate(
    program: Program, file: Path, name: str, raw: Any, document: Mapping[str, Any], vault: Vault
) -> Candidate:
    blank = Candidate(name=name, program=program, file=file)
    if not isinstance(raw, Mapping):
        return replace(blank, problem="is no mapping with a command or a url, or has no name")
    carried = Carried(name=name, raw=dict(cast("Mapping[str, Any]", raw)), document=document)
    try:
        inward(carried, program, file)
        if program.adapt is not None:
            program.adapt(carried)
        _drop(carried, program)
        entry = _entry(carried, vault)
        return replace(blank, entry=entry, notes=tuple(dict.fromkeys(carried.notes)))
    except InvalidEntryError as error:
        problem = "; ".join(f"{p.field!r} {p.message}" if p.field else p.message for p in error.problems)
    except UnfitError as error:
        problem = str(error)
    except (TypeError, ValueError, AttributeError):
        problem = "has a value of another kind than this program documents"
    return replace(blank, problem=problem, notes=tuple(dict.fromkeys(carried.notes)))


def _drop(carried: Carried, program: Program) -> None:
    """Sets aside what has no meaning here, and gives a bare `timeout` its unit."""
    known = {snake(key) for key in program.drops}
    lost = [
        key
        for key, value in carried.raw.items()
        if snake(key) in known or (snake(key) in IGNORED - _COSMETIC and value not in (None, False, [], {}))
    ]
    for key in lost:
        del carried.raw[key]
    if lost:
        carried.notes.append(f"not carried over: {', '.join(lost)}")
    amount = number(carried.raw.get("timeout"))
    if program.timeout is not None and amount is not None:
        name, unit = program.timeout
        del carried.raw["timeout"]
        carried.raw.setdefault(name, f"{amount:.3f}{unit}")


def _entry(carried: Carried, vault: Vault) -> dict[str, Any]:
    entry = server_fields(carried.raw, own=False)
    if entry.problems:
        raise InvalidEntryError(tuple(entry.problems))
    carried.notes += (f"{note.field!r} {note.message}" for note in entry.notes)
    fields, notes = vault.scrub(carried.name, entry.fields)
    carried.notes += notes
    ServerConfig(name=carried.name, **fields)
    return canonical_entry(fields)


_CONFIGURED = "configured already"
Action = Literal["add", "replace", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of one candidate."""

    candidate: Candidate
    action: Action
    name: str
    """Under which it is written."""
    reason: str = ""
    """Why it is not, or not under its own name."""


def identity(server: ServerConfig) -> tuple[object, ...]:
    """What is run or reached: two entries with the same are one server, whatever they are called."""
    if server.command is not None:
        return server.command, server.args, server.cwd, tuple(sorted(server.env.items()))
    return server.url, tuple(sorted(server.headers.items()))


def plan_import(
    found: Sequence[Candidate],
    present: Mapping[str, ServerConfig],
    taken: Collection[str] = (),
    *,
    rename: bool,
    force: bool,
) -> list[Move]:
    """One move for each candidate, in order: what comes first wins a name.

    Args:
        found: The servers of other programs.
        present: What is configured already, by name.
        taken: Names that are written already, though perhaps not well.
        rename: Import a clash of names under another name.
        force: Let it replace what is there.
    """
    known = {identity(server): name for name, server in present.items()}
    origin = dict.fromkeys([*present, *taken], _CONFIGURED)
    moves: list[Move] = []
    for candidate in found:
        move = _move(candidate, known, origin, rename=rename, force=force)
        moves.append(move)
        if move.action != "skip":
            server = ServerConfig(name=move.name, **(candidate.entry or {}))
            known[identity(server)] = move.name
            origin[move.name] = f"of {candidate.program.title}"
    return moves


def _move(
    candidate: Candidate,
    known: Mapping[tuple[object, ...], str],
    origin: Mapping[str, str],
    *,
    rename: bool,
    force: bool,
) -> Move:
    name = candidate.name
    if candidate.entry is None:
        return Move(candidate=candidate, action="skip", name=name, reason=candidate.problem or "")
    same = known.get(identity(ServerConfig(name=name, **candidate.entry)))
    if same is not None:
        called = "" if same == name else f" as {same!r}"
        return Move(candidate=candidate, action="skip", name=name, reason=f"is there already{called}")
    if name not in origin:
        return Move(candidate=candidate, action="add", name=name)
    if force and origin[name] == _CONFIGURED:
        return Move(candidate=candidate, action="replace", name=name, reason="replaces what is there")
    other = _free(f"{name}-{candidate.program.name}", origin)
    if rename:
        return Move(candidate=candidate, action="add", name=other, reason=f"imported as {other!r}")
    way = f"--rename imports it as {other!r}"
    way += ", --force replaces the other" if origin[name] == _CONFIGURED else ""
    reason = f"another server of that name is {origin[name]}; {way}"
    return Move(candidate=candidate, action="skip", name=name, reason=reason)


def _free(name: str, taken: Mapping[str, str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
