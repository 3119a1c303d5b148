"""`mooring groups`: what there is, without any schema."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import GAP, Output, table
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Group

USAGE = "mooring groups [options]"
DETAILS = """

A group is what a model is shown first: one per server, plus those that
the application declares. Servers that mooring.lock or an earlier run knows
are not started for it; `--no-lock` asks them all."""
EXAMPLES = """\
  mooring groups
  mooring groups --json | jq '.[].member_count'"""


def configure(parser: Parser) -> None:
    """This command has no arguments of its own."""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        groups = host.catalog.groups
    if options.json:
        out.document([_document(group) for group in groups])
    else:
        rows = [[clean_line(g.id), str(len(g.members)), clean_line(g.description)] for g in groups]
        out.lines(map("\t".join, rows) if out.width is None else _table(rows, out))
    return 0


def _document(group: Group) -> dict[str, object]:
    return {
        "id": group.id,
        "title": group.title,
        "description": group.description,
        "member_count": len(group.members),
    }


def _table(rows: list[list[str]], out: Output) -> list[str]:
    header, *body = table([["GROUP", "TOOLS", "DESCRIPTION"], *rows], width=out.width, right=[1])
    lines = [out.paint(GAP.join(header), "dim")]
    lines.extend(GAP.join((out.paint(name, "cyan"), *rest)).rstrip() for name, *rest in body)
    return lines
