"""`mooring check`: compare the servers with the lock."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.cli.options import Options
from mooring.cli.output import Output, plural
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.cli.locking import Review
    from mooring.lock.model import Lock

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
    drifted = sum(one.drifted for one in reviews)
    absent = sum(one.status == "unreachable" for one in reviews)
    if options.json:
        out.document(report(reviews, file))
    else:
        out.lines(review_lines(reviews, out))
        if (note := partial_note(reviews)) is not None:
            out.note(note)
        if drifted:
            differ = f"{plural(drifted, 'server')} differ{'s' if drifted == 1 else ''} from {file}."
            out.note(f"{differ} Accept one with `mooring approve SERVER`, or all with `mooring lock`.")
    return DRIFT if drifted else UNREACHABLE if absent else 0
