"""`mooring tools`: tools of all servers."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, add_one_off, add_style
from mooring.cli.output import Output, by_server, fields
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
    tools.sort(key=lambda tool: (tool.server, tool.name))
    if options.json:
        out.document([_document(tool) for tool in tools])
    else:
        rows = [(clean_line(t.server), clean_line(t.name), clean_line(t.description)) for t in tools]
        out.lines(by_server(rows, out.width, out.paint))
    return 0


def _document(tool: Tool) -> dict[str, object]:
    about = fields(tool, "name", "server", "remote_name", "title", "description")
    return {**about, "input_schema": dict(tool.input_schema)}
