"""`mooring trust`: approve what a project's file would run, after it was shown."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mooring.core.config import HostConfig, ServerConfig

USAGE = "mooring trust [FILE] [--yes] [--revoke] [--list] [options]"
DETAILS = """

A file that was merely found (mooring.yaml, .mcp.json … of a project) starts
nothing before it was approved on this machine. Shows everything that it
would run or reach, whole, and asks. The approval holds for exactly that:
an entry in which one byte changes is asked for again. It is kept with your
own state, outside of the project. Files named with --config need none.

Exit code 3: nobody said yes. Without a terminal there is nobody to ask:
read what is shown, then give --yes."""
EXAMPLES = """\
  mooring trust
  mooring trust .mcp.json --yes
  mooring trust --revoke"""


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="which file; the one found here by default")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--revoke", action="store_true", help="forget the approval of the file")
    parser.add_argument("--list", action="store_true", help="the files that are approved on this machine")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.config import approvals

    if args.list:
        return _list(approvals.approved_files(), options, out)
    path = _path(args, options)
    if args.revoke:
        return _revoked(path, approvals.revoke(str(path)), options, out)
    servers = _servers(path, out)
    return await _trust(path, servers, args, options, out)


def _path(args: Namespace, options: Options) -> Path:
    from mooring.config import found_files
    from mooring.errors import ConfigError

    named = [args.file] if args.file else list(options.config)
    if named:
        return Path(named[-1]).expanduser().absolute()
    for file in found_files(env={}):
        if file.scope == "project":
            return file.path
    raise ConfigError("there is no project file here; name one, as in `mooring trust .mcp.json`")


def as_found(path: Path) -> HostConfig:
    """The configuration as a host reads it that finds the file: over the user's own."""
    from mooring.config import FoundFile, found_files, read_files

    user = [file for file in found_files(env={}) if file.scope == "user"]
    return read_files([*user, FoundFile(path=path, scope="project")])


def approve_entry(path: Path, name: str) -> None:
    """Approve one entry that the user has just written himself; the others stay as they are."""
    from mooring.config import approvals
    from mooring.core.trust import mark

    own = {server.name: mark(server) for server in as_found(path).servers if server.name == name}
    approvals.approve(str(path), {**approvals.approved(str(path)), **own})


def _servers(path: Path, out: Output) -> list[ServerConfig]:
    config = as_found(path)
    for warning in config.warnings:
        out.warning(str(warning))
    return [server for server in config.servers if server.scope == "project"]


async def _trust(
    path: Path, servers: Sequence[ServerConfig], args: Namespace, options: Options, out: Output
) -> int:
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.asking import asked
    from mooring.cli.progress import plural
    from mooring.config import approvals
    from mooring.core.trust import mark

    known, marks = approvals.approved(str(path)), {server.name: mark(server) for server in servers}
    same = known == marks
    if not options.json:
        out.lines(_shown(path, servers, known, marks))
    yes = same or args.yes
    if not yes:
        question = f"May a host that finds this file start {plural(len(servers), 'server')} from now on?"
        yes = await asked(question, "Nothing was approved.", out)
    if yes and not same:
        approvals.approve(str(path), marks)
    if options.json:
        entries = [_document(server, _status(server.name, known, marks)) for server in servers]
        out.document({"file": str(path), "approved": yes, "servers": entries})
    elif yes:
        out.note(f"{path} {'was approved already' if same else 'is approved on this machine'}.")
    return 0 if yes else NEEDS_LOGIN


def _status(name: str, known: Mapping[str, str], marks: Mapping[str, str]) -> str:
    return "approved" if known.get(name) == marks[name] else "changed" if name in known else "new"


def _shown(
    path: Path, servers: Sequence[ServerConfig], known: Mapping[str, str], marks: Mapping[str, str]
) -> list[str]:
    """Every entry, whole: what is cut or wrapped away is what an attacker would hide there."""
    from mooring.core.text import clean
    from mooring.core.trust import describe, forbidden

    lines = [clean(str(path))]
    for server in servers:
        first, *rest = describe(server)
        lines += ["", f"{first} ({_status(server.name, known, marks)})", *rest]
        if names := forbidden(server):
            lines.append(f"  REFUSED  a found file may not set {', '.join(map(clean, names))}: it stays off")
    return lines if servers else [*lines, "names no server"]


def _document(server: ServerConfig, status: str) -> dict[str, Any]:
    from mooring.core.trust import describe, forbidden, literal_secrets

    hide = literal_secrets(server)
    return {
        "name": server.name,
        "status": status,
        "transport": server.transport,
        "command": server.command,
        "args": hide.within(list(server.args)),
        "cwd": server.cwd,
        "env": hide.within(dict(server.env)),
        "inherit_env": list(server.inherit_env),
        "url": hide.within(server.url),
        "headers": hide.within(dict(server.headers)),
        "refused": list(forbidden(server)),
        "text": "\n".join(describe(server)),
    }


def _list(files: tuple[str, ...], options: Options, out: Output) -> int:
    from mooring.core.text import clean_line

    if options.json:
        out.document({"files": list(files)})
    else:
        out.lines(map(clean_line, files))
    return 0


def _revoked(path: Path, there: bool, options: Options, out: Output) -> int:
    if options.json:
        out.document({"file": str(path), "approved": False, "revoked": there})
    else:
        out.note(f"{path} {'is no longer approved' if there else 'was not approved'}.")
    return 0
