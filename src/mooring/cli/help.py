"""`mooring help`: help on a command."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser, UsageError, suggestion
from mooring.cli.output import Output

USAGE = "mooring help [COMMAND] [options]"
DETAILS = "\n\nThe same as `mooring COMMAND --help`."
EXAMPLES = """\
  mooring help
  mooring help call"""


def configure(parser: Parser) -> None:
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="default: a list of the commands")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.app import COMMANDS, show_help

    if args.command is not None and args.command not in COMMANDS:
        near = suggestion(args.command, list(COMMANDS))
        raise UsageError(f"Unknown command {args.command!r}.{near} See `mooring help`.")
    return show_help(args.command, out)
