"""`mooring trust`: show the servers and settings of a project file and approve them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, plural

if TYPE_CHECKING:
    from mooring.config.models import ServerConfig
    from mooring.config.trust import Approval
    from mooring.config.trust_review import Content

USAGE = "mooring trust [FILE] [--yes] [--revoke] [--list] [options]"
DETAILS = """

Servers of a project file that mooring finds automatically (mooring.yaml,
.mcp.json …) do not start, and its settings are ignored, until the file is
approved on this machine. This command shows all commands, URLs and settings
in the file and asks for confirmation. The approval covers exactly these: a
changed entry or setting needs a new one. It is stored in your home directory,
not in the project. Files named with --config need no approval.

Exit code 3: not confirmed. Without a terminal, review the output, then use
--yes."""
EXAMPLES = """\
  mooring trust
  mooring trust .mcp.json --yes
  mooring trust --revoke"""


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file; default: the project's")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--revoke", action="store_true", help="remove the approval of the file")
    parser.add_argument("--list", action="store_true", help="list the files approved on this machine")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.config import trust
    from mooring.config.trust_review import read_content

    if args.list:
        return _list(trust.approved_files(), options, out)
    path = _path(args, options)
    if args.revoke:
        return _revoked(path, trust.revoke(str(path)), options, out)
    content = read_content(path)
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


async def _trust(path: Path, content: Content, args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.ask import confirm
    from mooring.config import trust

    approval = trust.approval_of(str(path))
    same = (approval.servers, approval.settings) == (content.marks, content.settings_mark)
    if not options.json:
        out.lines(_shown(path, content, approval))
    yes = same or args.yes
    if not yes:
        yes = await confirm(_question(content), "Nothing was approved.", out)
    if yes and not same:
        trust.approve(str(path), content.marks, settings=content.settings_mark)
    if options.json:
        out.document({"file": str(path), "approved": yes, **_documents(content, approval)})
    elif yes:
        out.note(f"{path} {'was already approved' if same else 'is approved on this machine'}.")
    return 0 if yes else NEEDS_LOGIN


def _question(content: Content) -> str:
    settings = f" and use {plural(len(content.settings), 'setting')}" if content.settings else ""
    count = plural(len(content.servers), "server")
    return f"Allow mooring to start {count}{settings} of this file from now on?"


def _status(approved: str | None, mark: str | None) -> str:
    return "approved" if approved == mark else "new" if approved is None else "changed"


def _shown(path: Path, content: Content, approval: Approval) -> list[str]:
    """The whole content, neither cut nor wrapped, so that nothing can be hidden in it."""
    from mooring.config.trust import describe, describe_settings, forbidden
    from mooring.core.text import clean

    lines, marks = [clean(str(path))], content.marks
    for server in content.servers:
        first, *rest = describe(server)
        lines += ["", f"{first} ({_status(approval.servers.get(server.name), marks[server.name])})", *rest]
        if names := forbidden(server):
            variables = ", ".join(map(clean, names))
            lines.append(f"  REFUSED  project files may not set {variables}: the server stays off")
    if not content.servers:
        lines.append("no servers")
    if content.settings:
        first, *rest = describe_settings(content.settings)
        lines += ["", f"{first} ({_status(approval.settings, content.settings_mark)})", *rest]
    return lines


def _documents(content: Content, approval: Approval) -> dict[str, Any]:
    from mooring.config.secret_scan import masked

    marks = content.marks
    servers = [
        _document(one, _status(approval.servers.get(one.name), marks[one.name])) for one in content.servers
    ]
    status = _status(approval.settings, content.settings_mark) if content.settings else None
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
    elif files:
        out.lines(map(clean_line, files))
    else:
        out.note("No project file is approved on this machine.")
    return 0


def _revoked(path: Path, there: bool, options: Options, out: Output) -> int:
    if options.json:
        out.document({"file": str(path), "approved": False, "revoked": there})
    else:
        out.note(f"{path} {'is no longer approved' if there else 'was not approved'}.")
    return 0
