"""`mooring import`: import servers from the files of other programs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, add_scope
from mooring.cli.output import Output, plural
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.cli.editing import EditTarget
    from mooring.config.programs.convert import Candidate, Move
    from mooring.config.programs.model import Program

USAGE = "mooring import [PROGRAM] [--from FILE] [options]"
DETAILS = """

Searches for the files of the programs below (or only of PROGRAM), shows the
changes of the configuration, asks for confirmation, and writes them: into
the file named with --config, else the project's mooring.yaml (.toml, .json),
else the user's. Confirmed servers are trusted. The files of other programs
are only read, and so is the .mcp.json of a project.

Secrets are never copied: mooring writes a reference ${NAME} instead and says
which NAME to set. What cannot be imported is reported for each server.

Programs: claude-code, claude-desktop, codex, vscode, copilot, cursor,
windsurf, zed, gemini, goose, opencode, librechat, cline, roo, lmstudio,
fastmcp, mcp-agent, mcpproxy, mcphub, continue, docker, evva, assistant4,
skill-agent, nexo, anda, strands, mcp-proxy, metamcp.

Exit code 3: not confirmed. Without a terminal, use --yes."""
EXAMPLES = """\
  mooring import --dry-run
  mooring import cursor
  mooring import goose --from ~/backup/config.yaml --yes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """One file of another program, and the servers found in it."""

    program: Program
    file: Path
    found: tuple[Candidate, ...] = ()
    error: str | None = None


def configure(parser: Parser) -> None:
    add = parser.add_argument
    add("program", metavar="PROGRAM", nargs="?", help="the program to import from; default: all")
    add("--from", metavar="FILE", dest="source", help="read this file")
    add("--server", metavar="S", action="append", default=[], help="only this server; repeatable")
    add("--rename", action="store_true", help="rename servers whose name is taken")
    add("--force", action="store_true", help="replace servers whose name is taken")
    add("--dry-run", action="store_true", help="show the changes without writing them")
    add("-y", "--yes", action="store_true", help="do not ask for confirmation")
    add_scope(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import diff_lines, finish, open_target, painted, short
    from mooring.cli.trust import approve_entries
    from mooring.config import found_files

    target = open_target(options, args.scope, own=True)
    sources = _sources(args, target)
    moves = _moves(args, options, target, sources)
    text = _text(target, moves)
    imported = [move for move in moves if move.action != "skip"]
    diff = diff_lines(target, text, [move.candidate.entry for move in imported]) if imported else []
    if not options.json:
        out.lines([*_found_lines(sources, out), *_move_lines(moves, out), *painted(diff, out)])
    question = f"Write {plural(len(imported), 'server')} into {short(target.path)}?"
    hidden = next((file.path for file in found_files(env={}) if file.scope == "project"), None)
    code, written = await finish(target, text if imported else None, question, args, out)
    if written and target.found.scope == "project":
        approve_entries(target.path, [move.name for move in imported])  # the user has just confirmed them
        if hidden is not None and hidden != target.path:
            out.warning(f"mooring now reads {target.path} in this project instead of {hidden}.")
    if options.json:
        out.document(
            {
                "file": str(target.path),
                "scope": target.found.scope,
                "written": written,
                "found": [_found_document(source) for source in sources],
                "servers": [_move_document(move) for move in moves],
                "diff": "\n".join(diff),
            }
        )
    return code


def _sources(args: Namespace, target: EditTarget) -> list[ImportSource]:
    from mooring.config.programs.convert import candidates, installed
    from mooring.config.programs.model import Machine, Vault
    from mooring.config.programs.table import ANY, PROGRAMS, program

    machine, vault = Machine.this(), Vault()
    programs = [program(args.program)] if args.program else list(PROGRAMS.values())
    if args.source:
        one = programs[0] if args.program else ANY
        file = Path(args.source).expanduser().absolute()
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


def _moves(args: Namespace, options: Options, target: EditTarget, sources: list[ImportSource]) -> list[Move]:
    from mooring.config import load
    from mooring.config.formats import read_shape
    from mooring.config.programs.convert import plan_import

    found = [one for source in sources for one in source.found if not args.server or one.name in args.server]
    files = [Path(file) for file in options.config if Path(file).expanduser().exists()]
    present = (
        {server.name: server for server in load(files or None).servers} if files or not options.config else {}
    )
    taken = read_shape(target.data, own=False).servers
    return plan_import(found, present, tuple(taken), rename=args.rename, force=args.force)


def _text(target: EditTarget, moves: list[Move]) -> str:
    from mooring.config.documents import parse_document
    from mooring.config.edit.text import edited, put_entry

    text, data = target.before or "", target.data
    for move in moves:
        if move.action != "skip":
            put = put_entry(data, move.name, move.candidate.entry or {}, own=target.found.own)
            text = edited(text, [put], file=target.path)
            data = parse_document(text, target.path)
    return text


def _found_lines(sources: list[ImportSource], out: Output) -> list[str]:
    from mooring.cli.editing import short
    from mooring.cli.output import GAP, table, wrap

    if not sources:
        return wrap("No file of a supported program was found.", out.width)
    rows = [
        [
            source.program.title,
            plural(len(source.found), "server") if not source.error else "?",
            short(source.file),
        ]
        for source in sources
    ]
    lines = [GAP.join(cells).rstrip() for cells in table(rows, width=out.width)]
    for source in sources:
        if source.error:
            lines += wrap(source.error, out.width, indent="    ")
    return [*lines, ""]


def _move_lines(moves: list[Move], out: Output) -> list[str]:
    from mooring.cli.editing import server_lines

    lines: list[str] = []
    for move in moves:
        title = move.candidate.program.title
        lines += server_lines(move.action, move.name, title, move.reason, move.candidate.notes, out)
    return [*lines, ""] if lines else []


def _found_document(source: ImportSource) -> dict[str, Any]:
    count, error = len(source.found), source.error
    return {"program": source.program.name, "file": str(source.file), "servers": count, "error": error}


def _move_document(move: Move) -> dict[str, Any]:
    from mooring.config.secret_scan import masked

    entry = move.candidate.entry
    return {
        "name": move.name,
        "program": move.candidate.program.name,
        "file": str(move.candidate.file),
        "action": move.action,
        "reason": move.reason or None,
        "notes": list(move.candidate.notes),
        "entry": None if entry is None else masked(dict(entry)),
    }
