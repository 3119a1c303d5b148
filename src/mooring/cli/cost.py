"""`mooring cost`: tokens that the tools take in a prompt."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, add_style
from mooring.cli.output import GAP, Output, table, wrap
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.config.models import Style
    from mooring.core.types import Tool
    from mooring.host import Host

USAGE = "mooring cost [--tools] [--style STYLE] [options]"
DETAILS = """

Tokens of the tool definitions (name, description, input schema) in a prompt:
by server, in total, in each naming style, and for the first prompt with
discovery. The figures are estimates without a tokenizer; the output names
the estimator."""
EXAMPLES = """\
  mooring cost
  mooring cost --tools
  mooring cost --json | jq '.total, .discovery.first_prompt'"""

ESTIMATOR = "chars/4"
"""See `core.tokens.estimate`: four ASCII characters per token, one token for any other character."""


def configure(parser: Parser) -> None:
    parser.add_argument("--tools", action="store_true", help="list each tool, the largest first")
    add_style(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    async with open_host(options, out, style=args.style, idle=True) as host:
        await gather(host, out, chosen(host), options.timeout)
        document = _document(host)
    if options.json:
        out.document(document)
    elif not document["servers"]:
        out.note("There are no tools.")
    else:
        out.lines(_tools(document, out) if args.tools else _servers(document, out))
        out.lines(["", *_summary(document, out)])
    return 0


def _document(host: Host) -> dict[str, Any]:
    from mooring.cli.options import STYLES
    from mooring.core.discovery import DISCOVERY
    from mooring.core.text import tool_cost

    tools = list(host.catalog.tools.values())
    costs = {tool.name: tool_cost(tool) for tool in tools}
    total = sum(costs.values())
    servers = [
        {
            "name": server,
            "tokens": sum(costs[tool.name] for tool in tools if tool.server == server),
            "tools": [{"name": t.name, "tokens": costs[t.name]} for t in tools if t.server == server],
        }
        for server in sorted({tool.server for tool in tools})
    ]
    from mooring.host import runtime_of

    exposure = runtime_of(host).exposure
    used = exposure(host.discovery).discovery
    first = [*DISCOVERY, *(host.catalog.tools[name] for name in exposure("always").names)]
    prompt = sum(map(tool_cost, first))
    return {
        "estimator": ESTIMATOR,
        "style": host.style,
        "total": total,
        "servers": servers,
        "styles": {style: _in_style(tools, style) for style in STYLES},
        "discovery": {
            "used": used,
            "mode": host.discovery,
            "budget": host.config.discovery_budget,
            "first_prompt": prompt,
            "saved": max(total - prompt, 0),
        },
    }


def _in_style(tools: Collection[Tool], style: Style) -> int:
    """The cost of all tools in this style; in `raw`, only one of several tools with the same name counts.

    Tools of mooring itself have the same name in every style.
    """
    from mooring.core.names import OWNER, assign
    from mooring.core.text import tool_cost

    own = sum(tool_cost(tool) for tool in tools if tool.server == OWNER)
    listed = [
        (tool, (tool.server, tool.own_name if tool.verb == "call" else f"get_prompt_{tool.own_name}"))
        for tool in tools
        if tool.server != OWNER
    ]
    names = assign((pair for _, pair in listed), style)
    return own + sum(tool_cost(replace(tool, name=names[pair])) for tool, pair in listed if pair in names)


def _servers(document: dict[str, Any], out: Output) -> list[str]:
    header = ["SERVER", "TOOLS", "TOKENS", "SHARE"]
    ranked = sorted(document["servers"], key=lambda server: (-server["tokens"], server["name"]))
    rows = [
        [clean_line(s["name"]), str(len(s["tools"])), f"{s['tokens']:,}", _share(s["tokens"], document)]
        for s in ranked
    ]
    count = sum(len(server["tools"]) for server in ranked)
    rows.append(["total", str(count), f"{document['total']:,}", _share(document["total"], document)])
    return _lines([header, *rows], out, right=[1, 2, 3])


def _tools(document: dict[str, Any], out: Output) -> list[str]:
    listed = [
        (tool["tokens"], tool["name"], server["name"])
        for server in document["servers"]
        for tool in server["tools"]
    ]
    listed.sort(key=lambda entry: (-entry[0], entry[1]))
    rows = [[f"{tokens:,}", _share(tokens, document), clean_line(name)] for tokens, name, _ in listed]
    rows.append([f"{document['total']:,}", _share(document["total"], document), "total"])
    return _lines([["TOKENS", "SHARE", "TOOL"], *rows], out, right=[0, 1])


def _lines(rows: list[list[str]], out: Output, right: list[int]) -> list[str]:
    header, *body = table(rows, width=out.width, right=right)
    lines = [GAP.join(cells).rstrip() for cells in body]
    return [out.paint(GAP.join(header), "dim"), *lines[:-1], out.paint(lines[-1], "bold")]


def _share(tokens: int, document: dict[str, Any]) -> str:
    return f"{tokens / max(document['total'], 1):.0%}"


def _summary(document: dict[str, Any], out: Output) -> list[str]:
    discovery = document["discovery"]
    styles = [f"{style} {tokens:,}" for style, tokens in document["styles"].items()]
    state = "in use" if discovery["used"] else "not in use"
    rule = f"{discovery['mode']}, above {discovery['budget']:,} tokens"
    rows = {
        "by style": ", ".join(styles),
        "with discovery": f"{discovery['first_prompt']:,} in the first prompt, {discovery['saved']:,} saved",
        "discovery": f"{state} ({rule if discovery['mode'] == 'auto' else discovery['mode']})",
        "estimator": f"{document['estimator']}: four ASCII characters per token, others one token each",
    }
    room, lines = max(map(len, rows)), list[str]()
    for name, text in rows.items():
        first, *rest = wrap(text, out.width, indent=" " * room + GAP)
        lines += [out.paint(name.ljust(room), "dim") + first[room:], *rest]
    return lines
