"""`mooring tools`, `mooring groups` and `mooring search`: the catalog."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, add_one_off, add_style, positive
from mooring.cli.output import GAP, Output, by_server, fields, table
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Tool

USAGE = "mooring tools [--server S] [--style STYLE] [--url U | -- CMD] [options]"
DETAILS = """

On a terminal, tools are listed under their server, with the start of their
description. In a pipe each line is: name, server, description.

Servers in mooring.lock or the cache are not started; `--no-lock` asks them
all. A server that is in no file is named with `--url U`, or with its program
after `--`; its tools have their own names unless `--style` is given."""
EXAMPLES = """\
  mooring tools
  mooring tools --server github
  mooring tools --style double --json | jq -r '.[].name'
  mooring tools --url http://127.0.0.1:8000/mcp
  mooring tools -- npx -y @modelcontextprotocol/server-everything"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only this server")
    add_style(parser)
    add_one_off(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, one_off_server, open_host

    named = [args.server] if args.server else []
    one_off = one_off_server(args)
    async with open_host(options, out, style=args.style, servers=named, idle=True, one_off=one_off) as host:
        only = chosen(host, named)
        await gather(host, out, only, options.timeout)
        tools = [tool for tool in host.catalog.tools.values() if tool.server in only or not named]
        asked = set(only if named or one_off else ()) - set(host.catalog.servers)
        failed = any(one.name in asked and one.state in ("failed", "pending") for one in host.status())
    tools.sort(key=lambda tool: (tool.server, tool.name))
    if options.json:
        out.document([_document(tool) for tool in tools])
    else:
        rows = [(clean_line(t.server), clean_line(t.name), clean_line(t.description)) for t in tools]
        out.lines(by_server(rows, out.width, out.paint))
    return int(failed)


def _document(tool: Tool) -> dict[str, object]:
    about = fields(tool, "name", "server", "remote_name", "title", "description")
    return {**about, "input_schema": dict(tool.input_schema)}


class GroupsCommand:
    """The command `mooring groups`."""

    USAGE = "mooring groups [options]"
    DETAILS = """

With discovery, a model sees the groups first: one per server, plus those that
the application declares. Servers in mooring.lock or the cache are not
started; `--no-lock` asks them all."""
    EXAMPLES = """\
  mooring groups
  mooring groups --json | jq '.[].member_count'"""

    @staticmethod
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
            out.lines(map("\t".join, rows) if out.width is None else _group_table(rows, out))
        return 0


def _group_table(rows: list[list[str]], out: Output) -> list[str]:
    header, *body = table([["GROUP", "TOOLS", "DESCRIPTION"], *rows], width=out.width, right=[1])
    lines = [out.paint(GAP.join(header), "dim")]
    lines.extend(GAP.join((out.paint(name, "cyan"), *rest)).rstrip() for name, *rest in body)
    return lines


class SearchCommand:
    """The command `mooring search`."""

    USAGE = "mooring search QUERY [--limit N] [--style STYLE] [options]"
    DETAILS = """

The same search as the tool `tools_search`: write an action and its object. In a
pipe each line is: name, server, score, description. Servers in mooring.lock
or the cache are not started; `--no-lock` asks them all."""
    EXAMPLES = """\
  mooring search 'open pull requests'
  mooring search read file --limit 3
  mooring search 'convert currency' --json | jq -r '.[0].name'"""

    @staticmethod
    def configure(parser: Parser) -> None:
        parser.add_argument("query", metavar="QUERY", nargs="+", help="search words; quotes are not needed")
        parser.add_argument("--limit", metavar="N", type=positive, default=10, help="number of results (10)")
        add_style(parser)

    @staticmethod
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
        out.lines(map("\t".join, rows) if out.width is None else _hit_table(rows, out))
        if not found:
            out.note("No tool matches. Use other words, or see `mooring groups`.")
        return 0


def _hit_table(rows: list[list[str]], out: Output) -> list[str]:
    cells = table([[name, text] for name, _, _, text in rows], width=out.width)
    return [GAP.join((out.paint(name, "cyan"), text)).rstrip() for name, text in cells]
