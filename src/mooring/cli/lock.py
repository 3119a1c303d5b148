"""`mooring lock` and `mooring check`: record the definitions of the servers, and compare with the record."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, plural
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mooring.cli.locking import Listing, Review
    from mooring.lock.compare import Lock

USAGE = "mooring lock [--server S ...] [--check-only] [--force] [options]"
DETAILS = """

Starts every enabled server twice, lists its tools, resources and prompts, and
writes mooring.lock next to the configuration. Commit the file. With a lock,
the catalog is available before any server runs, and tools that are new or
changed are blocked until `mooring approve`. A server that cannot be reached
keeps its entry in the lock. Servers of your own user file are not written
into the lock of a project. Text that differs between the two starts is
marked as volatile: it is not compared, or only by its words, and shown as
approved.

Exit code 0: the lock covers every server. 11: one could not be reached; the
others are written. With --check-only, 10: the lock would change. 2: the lock
is damaged or of a newer version; --force replaces it."""
EXAMPLES = """\
  mooring lock
  mooring lock --server github
  mooring lock --check-only --json"""


def configure(parser: Parser) -> None:
    parser.add_argument(
        "--server", metavar="S", action="append", default=[], help="only this server; repeatable"
    )
    parser.add_argument("--check-only", action="store_true", help="show what would change, do not write")
    parser.add_argument("--force", action="store_true", help="replace a lock that cannot be read")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import report_suspicious
    from mooring.cli.locking import (
        DRIFT,
        UNREACHABLE,
        listing,
        lock_file,
        report,
        review,
        review_lines,
    )
    from mooring.lock.cache import save_lock
    from mooring.lock.compare import Lock

    file = lock_file(options)
    previous = _previous(file, force=args.force)
    listed = await listing(options, out, args.server)
    reviews = review(listed, previous or Lock(), args.server)
    fresh = _fresh(listed, previous, reviews, whole=not args.server)
    listed_names = {one.server for one in reviews}
    report_suspicious([snapshot for name, snapshot in listed.snapshots.items() if name in listed_names], out)
    # Do not create an empty lock: it would block every tool.
    stale = fresh != (previous or Lock())
    if stale and not args.check_only:
        save_lock(file, fresh, force=args.force)
    if options.json:
        out.document(report(reviews, file, written=stale and not args.check_only))
    else:
        out.lines(review_lines(reviews, out, approvable=False))
        if fresh.servers or previous:
            absent = sum(one.status == "unreachable" for one in reviews)
            unreached = f" {plural(absent, 'server')} could not be reached." if absent else ""
            out.note(_verdict(file, fresh, stale=stale, check_only=args.check_only) + unreached)
        for note in _volatile_notes(fresh):
            out.note(note)
    if stale and args.check_only:
        return DRIFT
    return UNREACHABLE if any(one.status == "unreachable" for one in reviews) else 0


def _previous(file: Path, *, force: bool) -> Lock | None:
    from mooring.lock import LockError
    from mooring.lock.cache import load_lock

    try:
        return load_lock(file)
    except LockError:
        if force:
            return None
        raise


def _fresh(listed: Listing, previous: Lock | None, reviews: list[Review], *, whole: bool) -> Lock:
    """The new lock. Servers that were not listed keep their pins."""
    from mooring.lock.compare import build

    marks = {name: listed.fingerprint(name) for name in listed.configured}
    if not whole and previous is not None:
        marks = {name: pin.fingerprint for name, pin in previous.servers.items()} | marks
    reached = [one.server for one in reviews if one.status not in ("removed", "unreachable")]
    snapshots = [listed.snapshots[name] for name in reached]
    return build(snapshots, marks, previous=previous, volatile=listed.volatile)


def _volatile_notes(fresh: Lock) -> Iterator[str]:
    """One note for each server with text that differs at each start."""
    from mooring.core.text import clean_line

    for name, pin in fresh.servers.items():
        if pin.volatile:
            fields = [f"{field} of {key!r}" if key else field for _, key, field in sorted(pin.volatile)]
            more = f" and {len(fields) - 5} more" if len(fields) > 5 else ""
            yield clean_line(
                f"Text of server {name!r} differs at each start, so it is marked `volatile` in the lock "
                f"and shown as approved: {', '.join(fields[:5])}{more}."
            )


def _verdict(file: Path, fresh: Lock, *, stale: bool, check_only: bool) -> str:
    tools = sum(len(pin.snapshot.tools) for pin in fresh.servers.values())
    size = f"{plural(len(fresh.servers), 'server')}, {plural(tools, 'tool')}"
    if not stale:
        return f"{file} is up to date: {size}."
    if check_only:
        return f"{file} would change. Write it with `mooring lock`."
    return f"Wrote {file}: {size}."


def _comparison(reviews: Sequence[Review], file: Path) -> str:
    """The last line of `mooring check`: how many servers match the lock, differ, or could not be reached."""
    same = sum(one.status == "same" for one in reviews)
    drifted = sum(one.drifted for one in reviews)
    absent = sum(one.status == "unreachable" for one in reviews)
    counts = [f"{plural(same, 'server')} match{'es' if same == 1 else ''}"]
    if drifted:
        counts.append(f"{plural(drifted, 'server')} differ{'s' if drifted == 1 else ''}")
    if absent:
        counts.append(f"{plural(absent, 'server')} could not be reached")
    advice = " Accept one with `mooring approve SERVER`, or all with `mooring lock`." if drifted else ""
    return f"{file}: {', '.join(counts if same or len(counts) == 1 else counts[1:])}.{advice}"


class CheckCommand:
    """The command `mooring check`."""

    USAGE = "mooring check [options]"
    DETAILS = """

Connects every enabled server and compares it with mooring.lock: for CI, and to
see what is blocked. In a project, the servers of your user file are compared
with the lock next to that file, if there is one.

Exit code 0: no difference. 10: a server changed, or was added or removed. 11:
no difference, but a server could not be reached. 2: the configuration or the
lock cannot be read, or there is no lock."""
    EXAMPLES = """\
  mooring check
  mooring check --timeout 20
  mooring check --json | jq -r '.servers[] | select(.changes != []) | .name'"""

    @staticmethod
    async def run(args: Namespace, options: Options, out: Output) -> int:
        from mooring.cli.locking import (
            DRIFT,
            UNREACHABLE,
            listing,
            lock_file,
            own_lock_file,
            partial_note,
            report,
            review,
            review_lines,
        )
        from mooring.lock.cache import load_lock

        async def compared(lock: Lock, out: Output, *, own: bool) -> list[Review]:
            # List a changed server again without client capabilities: the lock contains those tools, too.
            listed = await listing(
                options,
                out,
                again=lambda first: {one.server for one in review(first, lock) if one.changes},
                own=own,
            )
            return review(listed, lock)

        file, own_file = lock_file(options), own_lock_file(options)
        lock, own_lock = load_lock(file), None if own_file is None else load_lock(own_file)
        if lock is None and (own_lock is None or own_file is None):
            raise ConfigError("there is no lock; create it with `mooring lock`", file=str(file))
        reviews: list[Review] = []
        if lock is not None:
            reviews += await compared(lock, out, own=False)
        if own_lock is not None and own_file is not None:
            quiet = out if lock is None else Output(replace(options, quiet=True))  # warnings were shown above
            own_reviews = await compared(own_lock, quiet, own=True)
            reviews += [one for one in own_reviews if one.status != "removed"]
            reviews.sort(key=lambda one: one.server)
            file = own_file if lock is None else file
        drifted = any(one.drifted for one in reviews)
        absent = any(one.status == "unreachable" for one in reviews)
        if options.json:
            out.document(report(reviews, file))
        else:
            out.lines(review_lines(reviews, out))
            if (note := partial_note(reviews)) is not None:
                out.note(note)
            out.note(_comparison(reviews, file))
        return DRIFT if drifted else UNREACHABLE if absent else 0
