"""`mooring approve`: accept what changed, after it was shown."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.errors import ConfigError, MooringError

if TYPE_CHECKING:
    from mooring.lock.diff import Change

USAGE = "mooring approve SERVER[/TOOL] [--yes] [options]"
DETAILS = """

Shows what differs from mooring.lock, asks, and writes the answer into the
lock: for one tool, or for all of a server. Everything else that changed
stays set aside.

Exit code 3: nobody said yes. Without a terminal there is nobody to ask:
read what `mooring check` shows, then give --yes."""
EXAMPLES = """\
  mooring approve github/create_issue
  mooring approve github --yes"""


def configure(parser: Parser) -> None:
    parser.add_argument(
        "target", metavar="SERVER[/TOOL]", help="whose changes: a tool by the server's own name"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.app import NEEDS_LOGIN
    from mooring.cli.ask import asked
    from mooring.cli.hosting import report_doubts
    from mooring.cli.locking import change_document, change_lines, compared, listing, lock_file, own_lock_file
    from mooring.cli.progress import plural
    from mooring.lock.cache import load_lock, save_lock
    from mooring.lock.compare import approve

    server, tool, own = _split(args.target, options)
    own_file = own_lock_file(options) if own else None
    file = own_file or lock_file(options)
    lock = load_lock(file)
    if lock is None:
        raise ConfigError("there is no lock, so nothing is set aside; see `mooring lock`", file=str(file))
    listed = await listing(options, out, [server], own=own_file is not None)
    status = next(status for status in listed.statuses if status.name == server)
    if status.state != "connected":
        raise MooringError(f"{server} cannot be asked what it offers: {status.error or status.state}")
    snapshot, mark = listed.snapshots[server], listed.fingerprint(server)
    report_doubts([snapshot], out)
    tools = None if tool is None else [tool]
    volatile = listed.volatile.get(server, {})
    accepted = approve(lock, snapshot, fingerprint=mark, tools=tools, volatile=volatile)
    found = compared(lock.servers.get(server), snapshot, mark)
    wanted = tuple(change for change in found if tool is None or _is_of(change, tool))
    if not options.json:
        out.lines(change_lines(wanted, out, approvable=False))
    question = f"Approve {plural(len(wanted), 'change')}?"
    yes = bool(wanted) and (args.yes or await asked(question, "Nothing was approved.", out))
    if yes:
        save_lock(file, accepted)
    if options.json:
        changes = [change_document(change) for change in wanted]
        out.document({"lock": str(file), "server": server, "tool": tool, "approved": yes, "changes": changes})
    elif yes or not wanted:
        out.note(_verdict(args.target, wanted, found))
    return 0 if yes or not wanted else NEEDS_LOGIN


def _split(target: str, options: Options) -> tuple[str, str | None, bool]:
    """The server and the tool that are meant, and whether the server is the user's own.

    The names of both may hold a slash.
    """
    from pathlib import Path

    from mooring.config import load

    config = load([Path(file) for file in options.config] or None)
    own = {server.name: server.source.scope == "user" for server in config.servers}
    if target in own:
        return target, None, own[target]
    owners = [name for name in own if target.startswith(f"{name}/")]
    server = max(owners, key=len) if owners else target.partition("/")[0]
    return server, target[len(server) + 1 :] or None, own.get(server, False)


def _is_of(change: Change, tool: str) -> bool:
    from mooring.lock.definitions import key_of

    before = None if change.before is None else key_of(change.before)
    return change.subject == "tool" and tool in (change.name, before)


def _verdict(target: str, wanted: tuple[Change, ...], found: tuple[Change, ...]) -> str:
    from mooring.cli.progress import plural

    if not wanted:
        return f"{target} is what was approved: there is nothing to accept."
    left = len(found) - len(wanted)
    rest = f" Still set aside: {plural(left, 'other change')}; see `mooring check`." if left else ""
    return f"Approved {plural(len(wanted), 'change')} of {target}.{rest}"
