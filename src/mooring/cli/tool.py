"""`mooring tool`: everything about one tool."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, add_one_off, add_style
from mooring.cli.output import GAP, Output, crop, fields, width_of, wrap
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.cli.arguments import Parameter
    from mooring.core.types import Tool
    from mooring.host import Host

USAGE = "mooring tool NAME [--style STYLE] [--url U | -- CMD] [options]"
DETAILS = """

Shows the signature, the description, the arguments with their types, an
example call, the server, whether the lock pins it, and its cost in tokens. A
server in mooring.lock or the cache is not started."""
EXAMPLES = """\
  mooring tool mcp_time_get_current_time
  mooring tool mcp_files_read_file --json | jq .input_schema"""

_LONGEST_EXAMPLE = 200
_LONGEST_VALUES = 40
"""Longest list of values in a line of usage."""


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name, as `mooring tools` shows it")
    add_style(parser)
    add_one_off(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import find_tool, one_off_server, open_host

    one_off = one_off_server(args)
    async with open_host(options, out, style=args.style, idle=True, one_off=one_off) as host:
        tool = await find_tool(host, args.name, options, out)
        document = _document(host, tool)
    if options.json:
        out.document(document)
    else:
        out.lines(_lines(document, tool, args, out))
    return 0


async def show_arguments(args: Namespace, options: Options, out: Output) -> int:
    """Print how to call one tool (`mooring call TOOL --help`). With `--json`, the same as `mooring tool`."""
    from mooring.cli.hosting import find_tool, one_off_server, open_host

    one_off = one_off_server(args)
    async with open_host(options, out, style=args.style, idle=True, one_off=one_off) as host:
        tool = await find_tool(host, args.tool, options, out)
        document = _document(host, tool)
    if options.json:
        out.document(document)
        return 0
    usage = f"usage: mooring call {clean_line(tool.name)} {_usage(tool)}".rstrip()
    first, *rest = wrap(usage, out.width)
    out.lines([first, *(f"{GAP}{line}" for part in rest for line in wrap(part, out.width))])
    if tool.description:
        out.lines(["", *wrap(clean(tool.description), out.width)])
    out.lines(_arguments(tool, out))
    out.lines(["", *wrap(f"example: {_example(tool, args)}", out.width), ""])
    out.lines(wrap("Options of the command: mooring call --help", out.width))
    return 0


def _document(host: Host, tool: Tool) -> dict[str, Any]:
    from mooring.core.text import tool_cost
    from mooring.host import runtime_of

    about = fields(tool, "name", "server", "remote_name", "title")
    return {
        **about,
        "signature": signature(tool),
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "output_schema": None if tool.output_schema is None else dict(tool.output_schema),
        "annotations": dict(tool.annotations),
        "pinned": runtime_of(host).builder.pins.is_pinned(tool),
        "tokens": tool_cost(tool),
    }


def signature(tool: Tool) -> str:
    """The tool as a Python function with keyword arguments."""
    from mooring.cli.arguments import parameters

    parts = [
        f"{one.name}: {one.kind}" + ("" if one.required else f" = {one.default}")
        for one in parameters(tool.input_schema)
    ]
    returns = "str" if tool.output_schema is None else "dict"
    return f"{tool.name}({', '.join(parts)}) -> {returns}"


def _usage(tool: Tool) -> str:
    from mooring.cli.arguments import parameters

    words = [(one.required, f"{one.name}={_placeholder(one)}") for one in parameters(tool.input_schema)]
    return clean_line(" ".join(word if required else f"[{word}]" for required, word in words))


def _placeholder(one: Parameter) -> str:
    """The listed values if they are few, else the type in capitals: `red|green`, `INT`, `LIST`."""
    if one.choices:
        values = "|".join(one.choices)
        return values if len(values) <= _LONGEST_VALUES else "VALUE"
    return next(word for word in re.findall(r"\w+", one.kind) if word != "None" or one.kind == word).upper()


def _example(tool: Tool, args: Namespace) -> str:
    """A command that calls the tool with its required arguments."""
    import shlex

    from mooring.cli.arguments import parameters

    words = [f"{one.name}={one.example}" for one in parameters(tool.input_schema) if one.required]
    where = ["--url", args.url] if args.url else ["--", *args.program] if args.program else []
    return clean_line(crop(shlex.join(["mooring", "call", tool.name, *words, *where]), _LONGEST_EXAMPLE))


def _arguments(tool: Tool, out: Output) -> list[str]:
    from mooring.cli.arguments import parameters

    lines: list[str] = []
    for one in parameters(tool.input_schema):
        kind = f"one of {', '.join(one.choices)}" if one.choices else one.kind
        optional = "optional" if one.default == "None" else f"default {one.default}"
        name, about = clean_line(one.name), clean_line(f"{kind}, {'required' if one.required else optional}")
        if out.width is None or width_of(f"{GAP}{name}{GAP}{about}") <= out.width:
            lines.append(f"{GAP}{out.paint(name, 'cyan')}{GAP}{out.paint(about, 'dim')}")
        else:
            lines += [out.paint(line, "cyan") for line in wrap(name, out.width, indent=GAP)]
            lines += [out.paint(line, "dim") for line in wrap(about, out.width, indent=GAP * 3)]
        lines += wrap(clean(one.description), out.width, indent=GAP * 3)
    return ["", out.paint("arguments", "bold"), *(lines or [f"{GAP}none"])]


def _lines(document: dict[str, Any], tool: Tool, args: Namespace, out: Output) -> list[str]:
    title = f" ({clean_line(tool.title)})" if tool.title else ""
    one_off = args.url or args.program  # which no lock covers
    hints = [word for word, value in tool.annotations.items() if value is True]
    facts = {
        "server": tool.server,
        "own name": tool.remote_name,
        "hints": ", ".join(hints),
        "pinned": "" if one_off else "yes" if document["pinned"] else "no: mooring.lock does not have it",
        "cost": f"{document['tokens']} tokens in a prompt",
        "returns": "" if tool.output_schema is None else json.dumps(dict(tool.output_schema))[:400],
        "example": _example(tool, args),
    }
    room = max(map(len, facts)) + len(GAP)
    lines = [out.paint(clean_line(tool.name), "bold") + title]
    lines += wrap(clean(document["signature"]), out.width, indent=GAP)
    if tool.description:
        lines += ["", *wrap(clean(tool.description), out.width)]
    lines += [*_arguments(tool, out), ""]
    for name, text in facts.items():
        if text:
            first, *rest = wrap(clean_line(text), out.width, indent=" " * room)
            lines += [out.paint(name.ljust(room), "dim") + first[room:], *rest]
    return lines
