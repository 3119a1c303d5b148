"""`mooring resources`: what the servers offer to read."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, by_server
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Resource, ResourceTemplate

USAGE = "mooring resources [--server S] [options]"
DETAILS = """

Asks every server, or the one that is named. A template such as
`memo:///{id}` stands for all URIs that fit it."""
EXAMPLES = """\
  mooring resources
  mooring resources --server files
  mooring resources --json | jq -r '.resources[].uri'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only those of this server")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import listed, open_host, report_failed

    named = [args.server] if args.server else []
    async with open_host(options, out, servers=named, idle=bool(named)) as host:
        found = await listed(host, out, host.resources, args.server, options.timeout)
        report_failed(found.errors, out)
    if options.json:
        out.document(
            {
                "resources": [
                    {"uri": entry.uri, **_about(entry), "size": entry.size} for entry in found.resources
                ],
                "templates": [
                    {"uri_template": entry.uri_template, **_about(entry)} for entry in found.templates
                ],
                "errors": dict(found.errors),
            }
        )
    else:
        rows = [(r.server, r.uri, r.description or r.title or r.name) for r in found.resources]
        rows += [(t.server, t.uri_template, t.description or t.title or t.name) for t in found.templates]
        out.lines(by_server([tuple(map(clean_line, row)) for row in rows], out.width, out.paint))
    return int(args.server in found.errors)


def _about(entry: Resource | ResourceTemplate) -> dict[str, Any]:
    return {
        "server": entry.server,
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "mime_type": entry.mime_type,
    }
