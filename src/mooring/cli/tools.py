"""`mooring tools`: the merged catalog."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, by_server
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Tool

USAGE = "mooring tools [--server S] [--style STYLE] [options]"
DETAILS = """

On a terminal the tools stand under their server, with the first words of
their description; in a pipe each line is: name, server, description.

Servers that mooring.lock or an earlier run knows are not started for it;
`--no-lock` asks them all."""
EXAMPLES = """\
  mooring tools
  mooring tools --server github
  mooring tools --style double --json | jq -r '.[].name'"""

STYLES = ("mcp", "double", "server", "raw")


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only the tools of this server")
    parser.add_argument(
        "--style",
        choices=STYLES,
        metavar="STYLE",
        help="names as mcp (mcp_srv_tool), double (mcp__srv__tool), server (srv_tool) or raw (tool)",
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    named = [args.server] if args.server else []
    async with open_host(options, out, style=args.style, servers=named, idle=True) as host:
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
    return {
        "name": tool.name,
        "server": tool.server,
        "remote_name": tool.remote_name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
    }
