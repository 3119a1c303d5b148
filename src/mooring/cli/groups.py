"""`mooring groups`: groups of tools."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options
from mooring.cli.output import GAP, Output, fields, table
from mooring.core.text import clean_line

USAGE = "mooring groups [options]"
DETAILS = """

With discovery, a model sees the groups first: one per server, plus those that
the application declares. Servers in mooring.lock or the cache are not
started; `--no-lock` asks them all."""
EXAMPLES = """\
  mooring groups
  mooring groups --json | jq '.[].member_count'"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        groups = host.catalog.groups
    if options.json:
        out.document(
            [{**fields(g, "id", "title", "description"), "member_count": len(g.members)} for g in groups]
        )
    else:
        rows = [[clean_line(g.id), str(len(g.members)), clean_line(g.description)] for g in groups]
        out.lines(map("\t".join, rows) if out.width is None else _table(rows, out))
    return 0


def _table(rows: list[list[str]], out: Output) -> list[str]:
    header, *body = table([["GROUP", "TOOLS", "DESCRIPTION"], *rows], width=out.width, right=[1])
    lines = [out.paint(GAP.join(header), "dim")]
    lines.extend(GAP.join((out.paint(name, "cyan"), *rest)).rstrip() for name, *rest in body)
    return lines
