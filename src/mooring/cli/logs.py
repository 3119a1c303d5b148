"""`mooring logs`: last lines of the log of a running gateway."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from mooring.cli.options import Options, Parser, UsageError, positive
from mooring.cli.output import Output
from mooring.core.text import clean_line

USAGE = "mooring --gateway URL logs [SERVER] [--audit] [--lines N] [options]"
DETAILS = """

Shows the last lines of the application log of a running gateway, or of the
standard error of one of its servers; with --audit, of its audit log."""
EXAMPLES = """\
  mooring --gateway https://mcp.example.com logs
  mooring --gateway https://mcp.example.com logs github --lines 20
  mooring --gateway https://mcp.example.com logs --audit --json"""


def configure(parser: Parser) -> None:
    parser.add_argument("server", nargs="?", metavar="SERVER", help="only what this server wrote")
    parser.add_argument("--audit", action="store_true", help="the audit log")
    parser.add_argument("--lines", metavar="N", type=positive, default=100, help="at most 1000 (100)")


async def run(args: Namespace, options: Options, out: Output) -> int:
    if options.gateway is None:
        raise UsageError("`mooring logs` asks a running gateway: add --gateway URL.")
    from urllib.parse import urlencode

    from mooring.cli.remote import RemoteGateway

    query: dict[str, Any] = {"limit": min(args.lines, 1000)}
    if args.server is not None:
        query["server"] = args.server
    path = "/audit" if args.audit else "/log"
    found = (await RemoteGateway(options).get(f"{path}?{urlencode(query)}"))["lines"]
    if options.json:
        out.document(found)
        return 0
    for line in found:
        if args.audit:
            out.line(" ".join(f"{name}={clean_line(str(value))}" for name, value in line.items()))
        else:
            parts = (line["time"], line["level"], line["logger"], line["message"])
            out.line(" ".join(clean_line(str(part)) for part in parts))
    return 0
