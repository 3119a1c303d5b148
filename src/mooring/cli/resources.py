"""`mooring resources`: resources and templates of the servers."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, by_server, fields
from mooring.core.text import clean_line

USAGE = "mooring resources [--server S] [options]"
DETAILS = """

Lists the resources of every server, or of one. A template such as
`memo:///{id}` stands for all URIs that match it."""
EXAMPLES = """\
  mooring resources
  mooring resources --server files
  mooring resources --json | jq -r '.resources[].uri'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only this server")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import listed, open_host, report_failed

    named = [args.server] if args.server else []
    async with open_host(options, out, servers=named, idle=bool(named)) as host:
        found = await listed(host, out, host.resources, args.server, options.timeout)
        report_failed(found.errors, out)
    if options.json:
        about = ("server", "name", "title", "description", "mime_type")
        resources = [fields(entry, "uri", *about, "size") for entry in found.resources]
        templates = [fields(entry, "uri_template", *about) for entry in found.templates]
        out.document({"resources": resources, "templates": templates, "errors": dict(found.errors)})
    else:
        rows = [(r.server, r.uri, r.description or r.title or r.name) for r in found.resources]
        rows += [(t.server, t.uri_template, t.description or t.title or t.name) for t in found.templates]
        out.lines(by_server([tuple(map(clean_line, row)) for row in rows], out.width, out.paint))
    return int(args.server in found.errors)
