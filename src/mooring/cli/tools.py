"""`mooring tools`: the merged catalog."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from mooring.cli.layout import GAP, table, width_of, wrap
from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Tool

USAGE = "mooring tools [--server S] [--style STYLE] [options]"
DETAILS = """

On a terminal the tools stand under their server, with the first words of
their description; in a pipe each line is: name, server, description."""
EXAMPLES = """\
  mooring tools
  mooring tools --server github
  mooring tools --style double --json | jq -r '.[].name'"""

STYLES = ("mcp", "double", "server", "raw")
_NARROW = 24
"""Columns below which a description goes under its name instead of beside it."""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only the tools of this server")
    parser.add_argument(
        "--style",
        choices=STYLES,
        metavar="STYLE",
        help="names as mcp (mcp_srv_tool), double (mcp__srv__tool), server (srv_tool) or raw (tool)",
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import open_host, watch
    from mooring.cli.servers import chosen, report_missing, report_warnings, settle

    named = [args.server] if args.server else []
    async with open_host(options, out, style=args.style, servers=named) as host:
        only = chosen(host, named)
        await watch(host, out, lambda: settle(host, only), timeout=options.timeout)
        tools = [tool for tool in host.catalog.tools.values() if tool.server in only or not named]
        report_missing(host, out, only)
        report_warnings(host, out)
    tools.sort(key=lambda tool: (tool.server, tool.name))
    if options.json:
        out.document([_document(tool) for tool in tools])
    elif out.width is None:
        out.lines("\t".join(map(clean_line, (t.name, t.server, t.description))) for t in tools)
    else:
        out.lines(_listing(tools, out, out.width))
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


def _listing(tools: Sequence[Tool], out: Output, width: int) -> list[str]:
    longest = max((width_of(tool.name) for tool in tools), default=0)
    beside = width - longest - 2 * len(GAP) >= _NARROW
    lines: list[str] = []
    for server, members in groupby(tools, key=lambda tool: tool.server):
        own = list(members)
        lines.append(out.paint(clean_line(server), "bold"))
        lines.extend(_beside(own, longest, out, width) if beside else _below(own, out, width))
    return lines


def _beside(tools: Sequence[Tool], longest: int, out: Output, width: int) -> list[str]:
    rows = [[clean_line(tool.name).ljust(longest), clean_line(tool.description)] for tool in tools]
    cells = table(rows, width=width - len(GAP))
    return [f"{GAP}{out.paint(name, 'cyan')}{GAP}{text}".rstrip() for name, text in cells]


def _below(tools: Sequence[Tool], out: Output, width: int) -> list[str]:
    lines: list[str] = []
    for tool in tools:
        # A name is copied and typed: it is broken over lines rather than cut.
        lines.extend(out.paint(line, "cyan") for line in wrap(clean_line(tool.name), width, indent=GAP))
        lines.extend(wrap(clean_line(tool.description), width, indent=GAP * 2)[:2])
    return lines
