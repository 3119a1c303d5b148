"""`mooring export`: write servers, or a gateway entry, into the file of another program."""

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
    from mooring.config.edit.target import EditTarget
    from mooring.config.edit.text import Put
    from mooring.config.models import ServerConfig
    from mooring.config.programs.convert import Action
    from mooring.config.programs.model import Outbound, Program

USAGE = "mooring export PROGRAM [--to FILE] [--gateway [URL]] [options]"
DETAILS = """

Shows the changes of the other program's file, asks for confirmation, and writes
it. The rest of the file stays, and a backup is written. References to
variables are rewritten into the syntax of that program. Secrets are never
copied: what the program cannot reference is left out and reported.

--gateway writes one entry instead, which runs `mooring serve --stdio`, or
connects to URL, the address of `mooring serve --http`.

Programs: claude-code, claude-desktop, codex, vscode, copilot, cursor,
windsurf, zed, gemini, goose, opencode, librechat, cline, roo, lmstudio.

Exit code 3: not confirmed. Without a terminal, use --yes."""
EXAMPLES = """\
  mooring export cursor --dry-run
  mooring export claude-code --gateway
  mooring export codex --server github --yes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The action for one server."""

    name: str
    action: Action
    reason: str | None = None
    entry: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def configure(parser: Parser) -> None:
    add = parser.add_argument
    add("program", metavar="PROGRAM", help="the program to export to")
    add("--to", metavar="FILE", dest="target", help="write to this file")
    add("--scope", choices=["project", "user"], help="which file of the program; default: user")
    add("--server", metavar="S", action="append", default=[], help="only this server; repeatable")
    add("--gateway", metavar="URL", nargs="?", const="", help="write one entry that connects to mooring")
    add("--force", action="store_true", help="replace entries with the same name")
    add("--dry-run", action="store_true", help="show the changes without writing them")
    add("-y", "--yes", action="store_true", help="do not ask for confirmation")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import finish, painted, server_lines, short
    from mooring.config.edit.target import diff_lines
    from mooring.config.programs.table import program
    from mooring.config.secret_scan import masked

    one = program(args.program)
    if one.out is None:
        raise ConfigError(f"{one.title} cannot be exported to; see `mooring export --help`")
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
    from mooring.config.edit.target import open_file
    from mooring.config.programs.model import Machine

    if args.target:
        return open_file(Path(args.target).expanduser().absolute())
    scope = args.scope or ("user" if "user" in out.site else "project")
    if scope not in out.site:
        raise UsageError(f"{program.title} has no {scope} file. Omit --scope, or name a file with --to.")
    path = out.site[scope].path(Machine.this())
    if path is None:
        raise UsageError(f"The file of {program.title} is not known on this system. Name it with --to.")
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
        out.note(f"The servers of {project} are not included. Use --config {project} to include them.")
    program, *rest = _own_command()
    words = [word for file in files for word in ("--config", str(file))]
    return [ServerConfig(name="mooring", command=program, args=(*rest, "serve", "--stdio", *words))]


def _own_command() -> list[str]:
    """The command that runs mooring, with its full path: other programs may have another PATH."""
    import shutil

    found = shutil.which("mooring")
    return [found] if found else [sys.executable, "-m", "mooring"]


def _step(server: ServerConfig, program: Program, out: Outbound, target: EditTarget, args: Namespace) -> Step:
    from mooring.config.formats import at
    from mooring.config.programs.convert import written
    from mooring.config.programs.model import UnfitError

    try:
        entry, notes = written(server, program)
    except UnfitError as reason:
        return Step(name=server.name, action="skip", reason=str(reason))
    existing = at(target.data, (*out.root, server.name))
    content: dict[str, Any] = {"entry": entry, "notes": tuple(notes)}
    if existing is None:
        return Step(name=server.name, action="add", **content)
    if existing == entry:
        return Step(name=server.name, action="skip", reason="already present")
    if args.force:
        return Step(name=server.name, action="replace", reason="replaces the existing entry", **content)
    reason = f"{program.title} has a different entry with this name; --force replaces it"
    return Step(name=server.name, action="skip", reason=reason)


def _put(step: Step, out: Outbound) -> Put:
    from mooring.config.edit.text import Put

    return Put(path=(*out.root, step.name), value=step.entry)
