"""`mooring enable`: turn a server on in the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options
from mooring.cli.output import Output
from mooring.cli.switching import configure as configure
from mooring.cli.switching import switch_server

USAGE = "mooring enable NAME [options]"
DETAILS = """

Writes it into the file that the server stands in. Nothing is started by it."""
EXAMPLES = """\
  mooring enable github"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    return await switch_server(args, options, out, on=True)
