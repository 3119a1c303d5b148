"""Conversion of server entries: from other programs to mooring, and from mooring to them."""

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
from mooring.config.programs.model import (
    ImportedEntry,
    InexpressibleError,
    Machine,
    Outbound,
    Program,
    SiteScope,
    UnfitError,
    Vault,
    inward,
    outward,
)
from mooring.config.references import references
from mooring.config.secret_scan import is_secret, masked
from mooring.config.validate import InvalidEntryError, number
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
    """The entry in mooring's format; None if it cannot be converted."""
    notes: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProgram:
    """An existing file of a program."""

    program: Program
    file: Path
    scope: SiteScope


def installed(programs: list[Program], machine: Machine) -> Iterator[FoundProgram]:
    """Yield the existing files of these programs, each once, in order of precedence."""
    seen: set[str] = set()
    for program in programs:
        for site in program.sites:
            path = site.path(machine)
            if path is not None and os.path.isfile(path) and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield FoundProgram(program=program, file=path, scope=site.scope)


def candidates(program: Program, file: Path, machine: Machine, vault: Vault) -> list[Candidate]:
    """Return the servers in a file.

    Raises:
    ConfigError: it cannot be read, or the section of servers is neither a mapping nor a list.
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
        return replace(blank, problem="is not a mapping with a command or a url, or has no name")
    imported = ImportedEntry(name=name, raw=dict(cast("Mapping[str, Any]", raw)), document=document)
    try:
        inward(imported, program, file)
        if program.adapt is not None:
            program.adapt(imported)
        _drop(imported, program)
        entry = _entry(imported, vault)
        return replace(blank, entry=entry, notes=tuple(dict.fromkeys(imported.notes)))
    except InvalidEntryError as error:
        problem = "; ".join(f"{p.field!r} {p.message}" if p.field else p.message for p in error.problems)
    except UnfitError as error:
        problem = str(error)
    except (TypeError, ValueError, AttributeError):
        problem = "has a value of another kind than this program documents"
    return replace(blank, problem=problem, notes=tuple(dict.fromkeys(imported.notes)))


def _drop(imported: ImportedEntry, program: Program) -> None:
    """Remove fields without a meaning in mooring, and give a bare `timeout` its unit."""
    known = {snake(key) for key in program.drops}
    lost = [
        key
        for key, value in imported.raw.items()
        if snake(key) in known or (snake(key) in IGNORED - _COSMETIC and value not in (None, False, [], {}))
    ]
    for key in lost:
        del imported.raw[key]
    if lost:
        imported.notes.append(f"not carried over: {', '.join(lost)}")
    amount = number(imported.raw.get("timeout"))
    if program.timeout is not None and amount is not None:
        name, unit = program.timeout
        del imported.raw["timeout"]
        imported.raw.setdefault(name, f"{amount:.3f}{unit}")


def _entry(imported: ImportedEntry, vault: Vault) -> dict[str, Any]:
    entry = server_fields(imported.raw, own=False)
    if entry.problems:
        raise InvalidEntryError(tuple(entry.problems))
    imported.notes += (f"{note.field!r} {note.message}" for note in entry.notes)
    fields, notes = vault.scrub(imported.name, entry.fields)
    imported.notes += notes
    ServerConfig(name=imported.name, **fields)
    return canonical_entry(fields)


_CONFIGURED = "configured already"
Action = Literal["add", "replace", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The planned import of one candidate."""

    candidate: Candidate
    action: Action
    name: str
    """Name under which it is written."""
    reason: str = ""
    """Why it is skipped, renamed or replaces another server; empty for a plain addition."""


def identity(server: ServerConfig) -> tuple[object, ...]:
    """Return what is run or reached. Entries with the same identity are one server, whatever their names."""
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
    """Return one move for each candidate, in order. The first candidate gets a contested name.

    Args:
        found: The servers of other programs.
        present: The configured servers, by name.
        taken: Names in the file, including those of invalid entries.
        rename: Import a server whose name is taken under another name.
        force: Replace a configured server of the same name.
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
        return Move(candidate=candidate, action="skip", name=name, reason=f"is already configured{called}")
    if name not in origin:
        return Move(candidate=candidate, action="add", name=name)
    if force and origin[name] == _CONFIGURED:
        return Move(candidate=candidate, action="replace", name=name, reason="replaces the configured server")
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


_OURS_ALONE = (
    *("start", "isolation", "idle_timeout", "max_concurrency", "idempotent", "approve", "auth", "pins"),
    *("always", "max_queue", "transforms"),
)


def written(server: ServerConfig, program: Program) -> tuple[dict[str, Any], list[str]]:
    """Return the entry for `program`, and notes on what it cannot express.

    Raises:
        UnfitError: the program cannot use this server; the text is the reason.
    """
    out = program.out
    if out is None:
        raise UnfitError(f"{program.title} has no documented file to write to")
    if server.disabled and out.switch is None:
        raise UnfitError(f"is disabled, which {program.title} cannot express")
    notes: list[str] = []
    entry = dict(_base(server, program, out))
    if out.named:
        entry["name"] = server.name
    entry |= _launch(server, program, out, notes) if server.command else _reach(server, program, out, notes)
    entry |= _limits(server, out, notes)
    if out.switch is not None and (server.disabled or out.switch in entry):
        entry[out.switch] = server.disabled == (out.switch == "disabled")
    return entry, notes


def _base(server: ServerConfig, program: Program, out: Outbound) -> Mapping[str, Any]:
    if server.command is not None:
        return out.stdio
    if out.http is None:
        raise UnfitError(f"{program.title} does not support URLs; export it with --gateway")
    if server.transport == "sse":
        if out.sse is None:
            raise UnfitError(f"{program.title} does not support SSE; export it with --gateway")
        return out.sse
    return out.http


def _launch(server: ServerConfig, program: Program, out: Outbound, notes: list[str]) -> dict[str, Any]:
    command = _whole(server.command or "", "command", program, out)
    args = [_whole(word, "args", program, out) for word in server.args]
    if masked(list(server.args)) != list(server.args):
        raise UnfitError("has a secret among its arguments; write it as ${NAME} first")
    name = out.names.get
    if out.joined:
        entry: dict[str, Any] = {name("command", "command"): [command, *args]}
    else:
        entry = {name("command", "command"): command, name("args", "args"): args}
    env, inherited = _env(server, program, out, notes)
    if env:
        entry[name("env", "env")] = env
    if inherited and "inherit_env" in out.names:
        entry[out.names["inherit_env"]] = inherited
    elif inherited:
        notes.append(f"not carried over: inherit_env ({', '.join(inherited)})")
    if server.cwd is not None and "cwd" in out.names:
        entry[out.names["cwd"]] = _whole(server.cwd, "cwd", program, out)
    elif server.cwd is not None:
        notes.append("not carried over: cwd, so it runs in the working directory of that program")
    return entry


def _env(
    server: ServerConfig, program: Program, out: Outbound, notes: list[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the variables, and the names of those that are inherited from the environment."""
    by_name = "inherit_env" in out.names
    inherited = [
        *server.inherit_env,
        *(name for name, value in server.env.items() if by_name and value == f"${{{name}}}"),
    ]
    rest = {name: value for name, value in server.env.items() if name not in inherited}
    return _texts(rest, "env", program, out, notes), inherited


def _reach(server: ServerConfig, program: Program, out: Outbound, notes: list[str]) -> dict[str, Any]:
    url = server.url or ""
    if masked(url) != url:
        raise UnfitError("has a secret in its address; write it as ${NAME} first")
    key = out.sse_url if server.transport == "sse" and out.sse_url else out.names.get("url", "url")
    entry: dict[str, Any] = {key: _whole(url, "url", program, out)}
    headers = dict(server.headers)
    by_variable: dict[str, str] = {}
    for name, value in server.headers.items() if out.variable_headers else ():
        found = references(value)
        if len(found) == 1 and found[0].kind == "env" and found[0].default is None:
            if name.lower() == "authorization" and value == f"Bearer {found[0]}":
                entry["bearer_token_env_var"] = found[0].name
                del headers[name]
            elif value == str(found[0]):
                by_variable[name] = found[0].name
                del headers[name]
    if texts := _texts(headers, "headers", program, out, notes):
        entry[out.names.get("headers", "headers")] = texts
    if by_variable:
        entry["env_http_headers"] = by_variable
    return entry


def _texts(
    given: Mapping[str, str], part: str, program: Program, out: Outbound, notes: list[str]
) -> dict[str, str]:
    """Return the values that the program can express; the others are left out, each with a note."""
    texts: dict[str, str] = {}
    for name, value in given.items():
        if is_secret(name, value):
            notes.append(f"{part}.{name} holds a secret, which is not copied: set it in {program.title}")
            continue
        try:
            texts[name] = outward(value, program.syntax if part in out.expands else "none")
        except InexpressibleError as reference:
            notes.append(
                f"{part}.{name} is {reference}, which {program.title} cannot look up: set it there yourself"
            )
            continue
        if program.syntax != "shell" and any(found.default is not None for found in references(value)):
            notes.append(f"{part}.{name} has lost its default")
    return texts


def _whole(text: str, part: str, program: Program, out: Outbound) -> str:
    try:
        return outward(text, program.syntax if part in out.expands else "none")
    except InexpressibleError as reference:
        raise UnfitError(f"has {reference} in '{part}', which {program.title} cannot look up") from None


def _limits(server: ServerConfig, out: Outbound, notes: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    defaults = ServerConfig(name="any", command="any")
    for name, key in (("call_timeout", out.call_timeout), ("connect_timeout", out.connect_timeout)):
        value: float = getattr(server, name)
        if value != getattr(defaults, name):
            if key is None:
                notes.append(f"not carried over: {name}")
            else:
                amount = value * 1000 if key[1] == "ms" else value
                entry[key[0]] = int(amount) if amount == int(amount) else amount
    for name in ("allow", "deny", "description"):
        value_given: Any = getattr(server, name)
        if value_given != getattr(defaults, name):
            if name in out.names:
                entry[out.names[name]] = value_given if isinstance(value_given, str) else list(value_given)
            elif name != "description":
                notes.append(f"not carried over: {name}, so more tools are seen there")
    lost = [name for name in _OURS_ALONE if getattr(server, name) != getattr(defaults, name)]
    if lost:
        notes.append(f"not carried over: {', '.join(lost)}")
    return entry
