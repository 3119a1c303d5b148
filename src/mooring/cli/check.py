"""`mooring check`: are the servers still what the lock says?"""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.errors import ConfigError

USAGE = "mooring check [options]"
DETAILS = """

Connects every enabled server and compares it with mooring.lock, for CI and
for whoever wants to know what was set aside.

Exit code 0: all are the same. 10: a server, or the set of servers, is not
what was approved. 11: nothing differs, but one could not be reached. 2: the
configuration or the lock cannot be read, or there is no lock."""
EXAMPLES = """\
  mooring check
  mooring check --timeout 20
  mooring check --json | jq -r '.servers[] | select(.changes != []) | .name'"""


def configure(parser: Parser) -> None:
    """This command has no arguments of its own."""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.locking import (
        DRIFT,
        UNREACHABLE,
        listing,
        lock_file,
        partial_note,
        report,
        review,
        review_lines,
    )
    from mooring.cli.progress import plural
    from mooring.config.lockfile import read

    file = lock_file(options)
    lock = read(file)
    if lock is None:
        raise ConfigError("there is no lock to compare with; write one with `mooring lock`", file=str(file))
    # A server that differs is listed a second time, without declaring capabilities: tools that it offers
    # only then are in the lock, too.
    listed = await listing(
        options, out, again=lambda first: {one.server for one in review(first, lock) if one.changes}
    )
    reviews = review(listed, lock)
    drifted = sum(one.drifted for one in reviews)
    absent = sum(one.status == "unreachable" for one in reviews)
    if options.json:
        out.document(report(reviews, file))
    else:
        out.lines(review_lines(reviews, out))
        if (note := partial_note(reviews)) is not None:
            out.note(note)
        if drifted:
            differ = f"Not as in {file}: {plural(drifted, 'server')}."
            out.note(f"{differ} `mooring approve SERVER` accepts one, `mooring lock` all of it.")
    return DRIFT if drifted else UNREACHABLE if absent else 0
