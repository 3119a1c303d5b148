"""`mooring approve`: show the changes of a server and accept them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, plural
from mooring.errors import ConfigError, MooringError

if TYPE_CHECKING:
    from mooring.lock.diff import Change

USAGE = "mooring approve SERVER[/TOOL] [--yes] [options]"
DETAILS = """

Shows what differs from mooring.lock, asks for confirmation, and updates the
lock: for one tool, or for a whole server. Other changes stay blocked.

Exit code 3: not confirmed. Without a terminal, review the output of
`mooring check`, then use --yes."""
EXAMPLES = """\
  mooring approve github/create_issue
  mooring approve github --yes"""


def configure(parser: Parser) -> None:
    parser.add_argument(
        "target", metavar="SERVER[/TOOL]", help="the server, or one of its tools by the server's own name"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


async def run(args: Namespace, options: Options, out: Output) -> int:
    if options.gateway is not None:
        return await _remote(args, options, out)
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.ask import confirm
    from mooring.cli.hosting import report_suspicious
    from mooring.cli.locking import (
        change_document,
        change_lines,
        compared,
        listing,
        lock_file,
        own_lock_file,
        shown_document,
        shown_lines,
        transformed,
    )
    from mooring.lock.cache import load_lock, save_lock
    from mooring.lock.compare import approve

    server, tool, own = _split(args.target, options)
    own_file = own_lock_file(options) if own else None
    file = own_file or lock_file(options)
    lock = load_lock(file)
    if lock is None:
        raise ConfigError("there is no lock, so nothing is blocked; see `mooring lock`", file=str(file))
    listed = await listing(options, out, [server], own=own_file is not None)
    status = next(status for status in listed.statuses if status.name == server)
    if status.state != "connected":
        raise MooringError(f"The tools of {server} cannot be listed: {status.error or status.state}")
    snapshot, mark = listed.snapshots[server], listed.fingerprint(server)
    report_suspicious([snapshot], out)
    tools = None if tool is None else [tool]
    volatile = listed.volatile.get(server, {})
    accepted = approve(lock, snapshot, fingerprint=mark, tools=tools, volatile=volatile)
    found = compared(lock.servers.get(server), snapshot, mark)
    selected = tuple(change for change in found if tool is None or _is_of(change, tool))
    shown = [one for one in transformed(listed, server) if tool in (None, one[1].remote_name)]
    if not options.json:
        out.lines(change_lines(selected, out, approvable=False))
        if selected:
            out.lines(shown_lines(shown, out))
    question = f"Approve {plural(len(selected), 'change')}?"
    yes = bool(selected) and (args.yes or await confirm(question, "Nothing was approved.", out))
    if yes:
        save_lock(file, accepted)
    if options.json:
        changes = [change_document(change) for change in selected]
        transforms = [shown_document(profile, one) for profile, one in shown]
        about: dict[str, object] = {"lock": str(file), "server": server, "tool": tool, "approved": yes}
        out.document({**about, "changes": changes, "transforms": transforms})
    elif yes or not selected:
        out.note(_verdict(args.target, selected, found))
    return 0 if yes or not selected else NEEDS_LOGIN


async def _remote(args: Namespace, options: Options, out: Output) -> int:
    """Approve changes at a running gateway: it writes its own lock."""
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.ask import confirm
    from mooring.cli.output import wrap
    from mooring.cli.remote import RemoteGateway
    from mooring.core.text import clean, clean_line, nearest
    from mooring.errors import UnknownServer

    gateway = RemoteGateway(options)
    listed = await gateway.get("/lock/changes")
    found: dict[str, Any] = {row["server"]: row for row in listed["servers"]}
    known: dict[str, Any] = {row["name"]: row for row in (await gateway.get("/servers"))["servers"]}
    matching = [name for name in known if args.target == name or args.target.startswith(f"{name}/")]
    if not matching:
        name = args.target.partition("/")[0]
        raise UnknownServer(name, nearest(name, known))
    server = max(matching, key=len)
    tool = args.target[len(server) + 1 :] or None
    if server in listed.get("unlocked", ()):
        raise ConfigError(f"The gateway has no lock for {server}, so nothing is blocked; see `mooring lock`.")
    if known[server]["state"] != "connected":
        why = clean_line(known[server]["error"] or known[server]["state"])
        raise MooringError(f"The gateway cannot list the tools of {server}: {why}")
    row: dict[str, Any] = found.get(server, {"changes": [], "transforms": []})
    selected: list[dict[str, Any]] = [
        one for one in row["changes"] if tool is None or (one["subject"], one["name"]) == ("tool", tool)
    ]
    transforms: list[dict[str, Any]] = [
        one for one in row.get("transforms", ()) if tool in (None, one["tool"])
    ]
    if not options.json:
        for one in selected:
            out.lines(wrap(clean(one["text"]), out.width))
        for one in transforms:
            where = f" in profile {one['profile']}" if one["profile"] else ""
            out.lines(wrap(clean_line(f"transform of tool {one['tool']}{where}:"), out.width))
            for text in one["text"].splitlines():
                out.lines(wrap(clean_line(text), out.width, "  "))
    question = f"Approve {plural(len(selected), 'change')} at {options.gateway}?"
    yes = bool(selected) and (args.yes or await confirm(question, "Nothing was approved.", out))
    if yes:
        given = {"server": server, "revision": found[server]["revision"]}
        await gateway.send("POST", "/lock/approve", given if tool is None else {**given, "tool": tool})
    if options.json:
        document: dict[str, Any] = {"server": server, "tool": tool, "approved": yes, "changes": selected}
        out.document({"lock": options.gateway, **document, "transforms": transforms})
    elif yes:
        out.note(f"Approved {plural(len(selected), 'change')} of {args.target}.")
    elif not selected and tool is not None:
        out.note(f"{server} has no changed tool {tool!r}: there is nothing to approve.")
    elif not selected:
        out.note(f"{args.target} has not changed since it was approved.")
    return 0 if yes or not selected else NEEDS_LOGIN


def _split(target: str, options: Options) -> tuple[str, str | None, bool]:
    """The server, the tool, and whether the user's file defines the server. Names may contain a slash."""
    from mooring.config import load

    config = load(options.files)
    own = {server.name: server.source.scope == "user" for server in config.servers}
    if target in own:
        return target, None, own[target]
    matching = [name for name in own if target.startswith(f"{name}/")]
    server = max(matching, key=len) if matching else target.partition("/")[0]
    return server, target[len(server) + 1 :] or None, own.get(server, False)


def _is_of(change: Change, tool: str) -> bool:
    from mooring.lock.definitions import key_of

    before = None if change.before is None else key_of(change.before)
    return change.subject == "tool" and tool in (change.name, before)


def _verdict(target: str, selected: tuple[Change, ...], found: tuple[Change, ...]) -> str:
    if not selected:
        return f"{target} has not changed since it was approved."
    left = len(found) - len(selected)
    rest = f" Still blocked: {plural(left, 'other change')}; see `mooring check`." if left else ""
    return f"Approved {plural(len(selected), 'change')} of {target}.{rest}"
