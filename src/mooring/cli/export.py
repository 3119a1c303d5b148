"""`mooring export`: our servers, or mooring itself, in another program's file."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.cli.editing import EditTarget
    from mooring.config.edit.text import Put
    from mooring.config.models import ServerConfig
    from mooring.config.programs.model import Outbound, Program
    from mooring.config.programs.read import Action

USAGE = "mooring export PROGRAM [--to FILE] [--gateway [URL]] [options]"
DETAILS = """

Shows what would change in the other program's file, asks, and writes it.
What else stands there stays, and the text before is kept. References are
rewritten into that program's own syntax. No secret is looked up or copied:
what a program cannot refer to is left out, and you are told.

--gateway writes one entry instead, which runs `mooring serve --stdio`; or
reaches URL, where `mooring serve --http` runs.

Programs: claude-code, claude-desktop, codex, vscode, copilot, cursor,
windsurf, zed, gemini, goose, opencode, librechat, cline, roo, lmstudio.

Exit code 3: nobody said yes. Without a terminal, give --yes."""
EXAMPLES = """\
  mooring export cursor --dry-run
  mooring export claude-code --gateway
  mooring export codex --server github --yes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What becomes of one server."""

    name: str
    action: Action
    reason: str | None = None
    entry: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def configure(parser: Parser) -> None:
    add = parser.add_argument
    add("program", metavar="PROGRAM", help="who gets the servers")
    add("--to", metavar="FILE", dest="target", help="write to this file of that program")
    add("--scope", choices=["project", "user"], help="which of its files; the user's, if it has one")
    add("--server", metavar="S", action="append", default=[], help="this server only; repeatable")
    add("--gateway", metavar="URL", nargs="?", const="", help="one entry that leads to mooring")
    add("--force", action="store_true", help="replace entries of the same name")
    add("--dry-run", action="store_true", help="show what would change, and end")
    add("-y", "--yes", action="store_true", help="do not ask")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import diff_lines, finish, painted, server_lines, short
    from mooring.config.programs.table import program
    from mooring.config.secret_scan import masked

    one = program(args.program)
    if one.out is None:
        raise ConfigError(f"{one.title} has no file that can be written; see `mooring export --help`")
    target = _target(args, one, one.out)
    steps = [_step(server, one, one.out, target, args) for server in _servers(args, options, out)]
    changes = [_put(step, one.out) for step in steps if step.action != "skip"]
    text = target.changed(changes) if changes else None
    diff = [] if text is None else diff_lines(target, text, [step.entry for step in steps])
    if not options.json:
        for step in steps:
            out.lines(server_lines(step.action, step.name, one.title, step.reason or "", step.notes, out))
        out.lines(["", *painted(diff, out)] if diff else [])
    code, written = await finish(target, text, f"Write to {short(target.path)}?", args, out)
    if options.json:
        keys = ("name", "action", "reason", "notes", "entry")
        servers = [{key: masked(getattr(step, key)) for key in keys} for step in steps]
        out.document(
            {
                "program": one.name,
                "file": str(target.path),
                "written": written,
                "servers": servers,
                "diff": "\n".join(diff),
            }
        )
    return code


def _target(args: Namespace, program: Program, out: Outbound) -> EditTarget:
    from mooring.cli.editing import open_file
    from mooring.config.programs.model import Machine

    if args.target:
        return open_file(Path(args.target).expanduser().absolute())
    scope = args.scope or ("user" if "user" in out.site else "project")
    if scope not in out.site:
        raise UsageError(
            f"{program.title} has no file of the {scope}. Leave out --scope, or name one with --to."
        )
    path = out.site[scope].path(Machine.this())
    if path is None:
        raise UsageError(f"It is not known where {program.title} keeps its file here. Name it with --to.")
    return open_file(path)


def _servers(args: Namespace, options: Options, out: Output) -> list[ServerConfig]:
    from mooring.config import found_files, load
    from mooring.config.models import ServerConfig
    from mooring.core.text import nearest
    from mooring.errors import UnknownServer

    named = [Path(file) for file in options.config]
    if args.gateway is None:
        config = load(named or None)
        for warning in config.warnings:
            out.warning(str(warning))
        known = {server.name: server for server in config.servers}
        for name in args.server:
            if name not in known:
                raise UnknownServer(name, nearest(name, list(known)), hint="See `mooring list`.")
        return [server for server in config.servers if not args.server or server.name in args.server]
    if args.gateway:
        return [ServerConfig(name="mooring", url=args.gateway)]
    files = [file.path for file in found_files(named or None) if file.scope == "explicit"]
    project = next((file.path for file in found_files(named or None) if file.scope == "project"), None)
    if project is not None:
        out.note(f"{project} is not seen from there; give --config {project} to have its servers.")
    program, *rest = _myself()
    words = [word for file in files for word in ("--config", str(file))]
    return [ServerConfig(name="mooring", command=program, args=(*rest, "serve", "--stdio", *words))]


def _myself() -> list[str]:
    """How to run this program from anywhere: other programs often have another search path."""
    import shutil

    found = shutil.which("mooring")
    return [found] if found else [sys.executable, "-m", "mooring"]


def _step(server: ServerConfig, program: Program, out: Outbound, target: EditTarget, args: Namespace) -> Step:
    from mooring.config.formats import at
    from mooring.config.programs.model import UnfitError
    from mooring.config.programs.write import written

    try:
        entry, notes = written(server, program)
    except UnfitError as reason:
        return Step(name=server.name, action="skip", reason=str(reason))
    there = at(target.data, (*out.root, server.name))
    made: dict[str, Any] = {"entry": entry, "notes": tuple(notes)}
    if there is None:
        return Step(name=server.name, action="add", **made)
    if there == entry:
        return Step(name=server.name, action="skip", reason="is there already")
    if args.force:
        return Step(name=server.name, action="replace", reason="replaces what is there", **made)
    reason = f"{program.title} has another entry of that name; --force replaces it"
    return Step(name=server.name, action="skip", reason=reason)


def _put(step: Step, out: Outbound) -> Put:
    from mooring.config.edit.text import Put

    return Put(path=(*out.root, step.name), value=step.entry)
