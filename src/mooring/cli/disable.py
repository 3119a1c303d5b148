"""`mooring disable`: turn a server off in the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options
from mooring.cli.output import Output
from mooring.cli.switching import configure as configure
from mooring.cli.switching import switch_server

USAGE = "mooring disable NAME [options]"
DETAILS = """

Writes it into the file that the server stands in. The entry stays, and
the server is shown as disabled."""
EXAMPLES = """\
  mooring disable github"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    return await switch_server(args, options, out, on=False)
