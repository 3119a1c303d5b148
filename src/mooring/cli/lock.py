"""`mooring lock`: write down what the servers offer now."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

if TYPE_CHECKING:
    from pathlib import Path

    from mooring.cli.locking import Review
    from mooring.core.lock import Lock
    from mooring.host import Host

USAGE = "mooring lock [--server S ...] [--check-only] [--force] [options]"
DETAILS = """

Connects every enabled server and writes mooring.lock beside the
configuration: what each offers, for a catalog before any server runs and
for `mooring check`. Commit it. A server that cannot be reached keeps what
the lock said of it. Servers of your own file are not in the lock of a
project, which others share. From then on, tools that are not in the lock
are set aside until `mooring approve`.

Exit code 0: the lock holds every server. 11: one could not be reached; the
rest is written. With --check-only, 10: the lock would change. 2: the lock
there is damaged or of a newer mooring; it is left alone without --force."""
EXAMPLES = """\
  mooring lock
  mooring lock --server github
  mooring lock --check-only --json"""


def configure(parser: Parser) -> None:
    parser.add_argument(
        "--server", metavar="S", action="append", default=[], help="only this server; may be repeated"
    )
    parser.add_argument("--check-only", action="store_true", help="show what would change, write nothing")
    parser.add_argument("--force", action="store_true", help="replace a lock that cannot be read")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.locking import (
        DRIFT,
        UNREACHABLE,
        connected_host,
        guests_of,
        lock_file,
        report,
        review,
        review_lines,
    )
    from mooring.cli.servers import report_doubts
    from mooring.config.lockfile import write
    from mooring.core.lock import Lock

    file = lock_file(options)
    previous = _previous(file, force=args.force)
    async with connected_host(options, out, args.server) as host:
        reviews = review(host, options, previous or Lock(), args.server)
        report_doubts(host, out, [one.server for one in reviews])
        fresh = _fresh(host, previous, reviews, guests_of(host, options), whole=not args.server)
    # Out of nothing no empty lock is made: it would set every tool aside.
    stale = fresh != (previous or Lock())
    if stale and not args.check_only:
        write(file, fresh, force=args.force)
    if options.json:
        out.document(report(reviews, file, written=stale and not args.check_only))
    else:
        out.lines(review_lines(reviews, out, approvable=False))
        if fresh.servers or previous:
            out.note(_verdict(file, fresh, stale=stale, check_only=args.check_only))
    if stale and args.check_only:
        return DRIFT
    return UNREACHABLE if any(one.status == "unreachable" for one in reviews) else 0


def _previous(file: Path, *, force: bool) -> Lock | None:
    from mooring.config.lockfile import read
    from mooring.core.pin import LockError

    try:
        return read(file)
    except LockError:
        if force:
            return None
        raise


def _fresh(
    host: Host, previous: Lock | None, reviews: list[Review], guests: set[str], *, whole: bool
) -> Lock:
    """The lock of what was reached now. Of servers that were not asked for, what it said stays."""
    from mooring.core.lock import build
    from mooring.core.plan import fingerprint

    marks = {server.name: fingerprint(server) for server in host.config.servers if server.name not in guests}
    if not whole and previous is not None:
        marks = {name: pin.fingerprint for name, pin in previous.servers.items()} | marks
    asked = [one.server for one in reviews if one.status not in ("removed", "unreachable")]
    return build([host.provider(name).snapshot for name in asked], marks, previous=previous)


def _verdict(file: Path, fresh: Lock, *, stale: bool, check_only: bool) -> str:
    from mooring.cli.progress import plural

    tools = sum(len(pin.snapshot.tools) for pin in fresh.servers.values())
    size = f"{plural(len(fresh.servers), 'server')}, {plural(tools, 'tool')}"
    if not stale:
        return f"{file} is up to date: {size}."
    if check_only:
        return f"{file} would change. Write it with `mooring lock`."
    return f"Wrote {file}: {size}."
