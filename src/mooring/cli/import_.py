"""`mooring import`: import servers from the files of other programs."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, add_scope
from mooring.cli.output import Output, plural

if TYPE_CHECKING:
    from mooring.config.programs.convert import Move
    from mooring.config.programs.importing import ImportSource

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
    from mooring.cli.editing import finish, painted, short
    from mooring.config import found_files
    from mooring.config.edit.target import diff_lines, open_target
    from mooring.config.programs.importing import import_sources, imported_text, planned_imports
    from mooring.config.trust_review import approve_entries

    target = open_target(options.files, args.scope, own=True)
    sources = import_sources(target, name=args.program, source=args.source)
    moves = planned_imports(
        sources, target, options.files, servers=args.server, rename=args.rename, force=args.force
    )
    text = imported_text(target, moves)
    imported = [move for move in moves if move.action != "skip"]
    diff = diff_lines(target, text, [move.candidate.entry for move in imported]) if imported else []
    if not options.json:
        out.lines([*_found_lines(sources, out), *_move_lines(moves, out), *painted(diff, out)])
    question = f"Write {plural(len(imported), 'server')} into {short(target.path)}?"
    hidden = next((file.path for file in found_files(env={}) if file.scope == "project"), None)
    if sources:
        code, written = await finish(target, text if imported else None, question, args, out)
    else:
        code, written = 0, False
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
