"""`mooring search`: search the tools."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser, add_style, positive
from mooring.cli.output import GAP, Output, table
from mooring.core.text import clean_line

USAGE = "mooring search QUERY [--limit N] [--style STYLE] [options]"
DETAILS = """

The same search as the tool `tools_search`: write an action and its object. In a
pipe each line is: name, server, score, description. Servers in mooring.lock
or the cache are not started; `--no-lock` asks them all."""
EXAMPLES = """\
  mooring search 'open pull requests'
  mooring search read file --limit 3
  mooring search 'convert currency' --json | jq -r '.[0].name'"""


def configure(parser: Parser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="+", help="search words; quotes are not needed")
    parser.add_argument("--limit", metavar="N", type=positive, default=10, help="number of results (10)")
    add_style(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, style=args.style, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        hits = host.search(" ".join(args.query), args.limit)
    found = [
        {
            "name": hit.name,
            "server": hit.tool.server,
            "score": round(hit.score, 3),
            "description": hit.tool.description,
        }
        for hit in hits
    ]
    if options.json:
        out.document(found)
        return 0
    rows = [[clean_line(str(value)) for value in entry.values()] for entry in found]
    out.lines(map("\t".join, rows) if out.width is None else _table(rows, out))
    if not found:
        out.note("No tool matches. Use other words, or see `mooring groups`.")
    return 0


def _table(rows: list[list[str]], out: Output) -> list[str]:
    cells = table([[name, text] for name, _, _, text in rows], width=out.width)
    return [GAP.join((out.paint(name, "cyan"), text)).rstrip() for name, text in cells]
