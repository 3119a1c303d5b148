"""`mooring remove`: remove a server from the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser, add_scope
from mooring.cli.output import Output

USAGE = "mooring remove NAME [options]"
DETAILS = """

Removes the entry from the file that defines it; of several files, from the one
that takes effect. The rest of the file stays, and a backup is written."""
EXAMPLES = """\
  mooring remove github
  mooring remove github --scope user"""


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the server")
    add_scope(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import entry_document, wrote
    from mooring.config.edit.target import find_entry
    from mooring.config.edit.text import Drop
    from mooring.errors import UnknownServer

    target, place = find_entry(options.files, args.scope, args.name)
    backup = target.save(target.changed([Drop(path=place.path)]))
    if options.json:
        out.document(entry_document(args.name, place.entry, target))
    wrote(f"Removed {args.name} from", target, backup, out)
    try:
        other, _ = find_entry(options.files, None, args.name)
    except UnknownServer:
        return 0
    out.note(f"{args.name} is also defined in {other.path}: that entry takes effect now.")
    return 0
