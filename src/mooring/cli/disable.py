"""`mooring disable`: turn a server off in the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.enable import configure as configure
from mooring.cli.enable import switch_server
from mooring.cli.options import Options
from mooring.cli.output import Output

USAGE = "mooring disable NAME [options]"
DETAILS = """

Changes the entry in the file that defines the server. The entry stays, and
the server is listed as disabled."""
EXAMPLES = """\
  mooring disable github"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    return await switch_server(args, options, out, on=False)
