"""`mooring trust`: approve what a project's file would run, after it was shown."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mooring.config.approvals import Approval
    from mooring.config.models import ConfigWarning, ServerConfig

USAGE = "mooring trust [FILE] [--yes] [--revoke] [--list] [options]"
DETAILS = """

A project file that mooring finds by itself (mooring.yaml, .mcp.json …) may
define servers, and nothing else, before it is approved on this machine: its
servers do not start and its settings are ignored. This command shows what
it would run, reach and set, whole, and asks. The approval is for exactly
that: an entry or setting that changes needs another one. It is stored with
your own state, outside of the project. Files named with --config need none.

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
    content = _read(path)
    for warning in content.warnings:
        out.warning(str(warning))
    return await _trust(path, content, args, options, out)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a project file would run and set, if all of it were approved."""

    servers: tuple[ServerConfig, ...]
    settings: Mapping[str, Any]
    warnings: tuple[ConfigWarning, ...]

    @property
    def marks(self) -> dict[str, str]:
        from mooring.config.trust import mark

        return {server.name: mark(server) for server in self.servers}

    @property
    def settings_mark(self) -> str | None:
        from mooring.config.trust import settings_mark

        return settings_mark(self.settings) if self.settings else None


def _read(path: Path) -> Content:
    from mooring.config import FoundFile, found_files, read_files
    from mooring.config.approvals import Approval

    user = [file for file in found_files(env={}) if file.scope == "user"]
    files = [*user, FoundFile(path=path, scope="project")]
    whole = read_files(files, approval=lambda file: Approval(everything=True))
    withheld = read_files(files, approval=lambda file: Approval()).withheld
    refused = withheld.servers if withheld else ()  # a server with forbidden variables replaces nothing
    servers = {server.name: server for server in (*refused, *whole.servers) if server.scope == "project"}
    settings = withheld.settings if withheld else dict[str, Any]()
    return Content(servers=tuple(servers.values()), settings=settings, warnings=whole.warnings)


def approve_entries(path: Path, names: Collection[str]) -> None:
    """Approve entries that the user has just written; the rest of the file stays as it is."""
    from mooring.config import approvals

    known, content = approvals.approval_of(str(path)), _read(path)
    own = {name: mark for name, mark in content.marks.items() if name in names}
    approvals.approve(str(path), {**known.servers, **own}, settings=known.settings)


async def _trust(path: Path, content: Content, args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.ask import asked
    from mooring.config import approvals

    known = approvals.approval_of(str(path))
    same = (known.servers, known.settings) == (content.marks, content.settings_mark)
    if not options.json:
        out.lines(_shown(path, content, known))
    yes = same or args.yes
    if not yes:
        yes = await asked(_question(content), "Nothing was approved.", out)
    if yes and not same:
        approvals.approve(str(path), content.marks, settings=content.settings_mark)
    if options.json:
        out.document({"file": str(path), "approved": yes, **_documents(content, known)})
    elif yes:
        out.note(f"{path} {'was approved already' if same else 'is approved on this machine'}.")
    return 0 if yes else NEEDS_LOGIN


def _question(content: Content) -> str:
    from mooring.cli.progress import plural

    settings = f" and use {plural(len(content.settings), 'setting')}" if content.settings else ""
    count = plural(len(content.servers), "server")
    return f"May a host that finds this file start {count}{settings} from now on?"


def _status(known: str | None, mark: str | None) -> str:
    return "approved" if known == mark else "new" if known is None else "changed"


def _shown(path: Path, content: Content, known: Approval) -> list[str]:
    """Return everything in the file, whole: an attacker would hide in what is cut or wrapped away."""
    from mooring.config.trust import describe, describe_settings, forbidden
    from mooring.core.text import clean

    lines, marks = [clean(str(path))], content.marks
    for server in content.servers:
        first, *rest = describe(server)
        lines += ["", f"{first} ({_status(known.servers.get(server.name), marks[server.name])})", *rest]
        if names := forbidden(server):
            lines.append(f"  REFUSED  a found file may not set {', '.join(map(clean, names))}: it stays off")
    if not content.servers:
        lines.append("names no server")
    if content.settings:
        first, *rest = describe_settings(content.settings)
        lines += ["", f"{first} ({_status(known.settings, content.settings_mark)})", *rest]
    return lines


def _documents(content: Content, known: Approval) -> dict[str, Any]:
    from mooring.config.secret_scan import masked

    marks = content.marks
    servers = [
        _document(one, _status(known.servers.get(one.name), marks[one.name])) for one in content.servers
    ]
    status = _status(known.settings, content.settings_mark) if content.settings else None
    return {"servers": servers, "settings": masked(dict(content.settings)), "settings_status": status}


def _document(server: ServerConfig, status: str) -> dict[str, Any]:
    from mooring.config.trust import describe, forbidden, literal_secrets

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
