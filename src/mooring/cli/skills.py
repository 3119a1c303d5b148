"""`mooring skills`: skills of the servers."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, by_server
from mooring.core.text import clean_line

USAGE = "mooring skills [--server S] [options]"
DETAILS = """

A skill is a server's instructions for a task, with supporting files. Lists
names and descriptions; no file is read. The servers are asked: a skill that
differs from mooring.lock is not listed until `mooring approve`."""
EXAMPLES = """\
  mooring skills
  mooring skills --server github
  mooring skills --json | jq -r '.[].name'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only this server")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import chosen, gather, open_host

    named = [args.server] if args.server else []
    async with open_host(options, out, servers=named, idle=bool(named)) as host:
        await gather(host, out, chosen(host, named), options.timeout, cached=False)
        skills = [skill for skill in host.skills() if args.server in (None, skill.server)]
    if options.json:
        out.document(
            [
                {
                    "name": skill.name,
                    "server": skill.server,
                    "uri": skill.uri,
                    "description": skill.description,
                    "files": None if skill.files is None else len(skill.files),
                }
                for skill in skills
            ]
        )
    else:
        rows = [(skill.server, skill.name, skill.description) for skill in skills]
        out.lines(by_server([tuple(map(clean_line, row)) for row in rows], out.width, out.paint))
        if not skills:
            out.note("No server has skills.")
    return 0
