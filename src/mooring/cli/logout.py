"""`mooring logout`: forget a login, here and where it was given."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

USAGE = "mooring logout SERVER [options]"
DETAILS = """

Removes the tokens of a server from this machine and, where the server can do
that, has them revoked."""
EXAMPLES = """\
  mooring logout github"""


def configure(parser: Parser) -> None:
    parser.add_argument("server", metavar="SERVER", help="the server's name in the configuration")
    parser.add_argument(
        "--principal", metavar="NAME", help="whose login, of those that a gateway serves, such as token:ana"
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import open_host

    async with open_host(options, out, servers=[args.server], idle=True) as host:
        revoked = await host.logout(args.server, principal=args.principal)
    if options.json:
        out.document({"server": args.server, "status": "logged out", "revoked": revoked})
        return 0
    out.note(f"Logged out of {args.server}.")
    if revoked is False:
        out.warning(
            "The tokens are gone from this machine, but could not be revoked: end the access in your "
            "account there if they may have been seen."
        )
    return 0
