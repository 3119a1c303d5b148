"""`mooring remove`: take a server out of the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.cli.switching import add_scope

USAGE = "mooring remove NAME [options]"
DETAILS = """

Takes the entry out of the file it stands in; of several files, the one that
counts. Everything else in the file stays, and the text before is kept."""
EXAMPLES = """\
  mooring remove github
  mooring remove github --scope user"""


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="the server")
    add_scope(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import entry_document, holder, wrote
    from mooring.config.edit.text import Drop
    from mooring.errors import UnknownServer

    target, place = holder(options, args.scope, args.name)
    backup = target.save(target.changed([Drop(path=place.path)]))
    if options.json:
        out.document(entry_document(args.name, place.entry, target))
    wrote(f"Removed {args.name} from", target, backup, out)
    try:
        other, _ = holder(options, None, args.name)
    except UnknownServer:
        return 0
    out.note(f"{args.name} is also in {other.path}, which counts now.")
    return 0
