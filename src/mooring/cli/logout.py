"""`mooring logout`: remove and revoke the tokens of a server."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

USAGE = "mooring logout SERVER [options]"
DETAILS = """

Removes the tokens of a server from this machine and revokes them, if the
authorization server supports it."""
EXAMPLES = """\
  mooring logout github"""


def configure(parser: Parser) -> None:
    parser.add_argument("server", metavar="SERVER", help="name of the server")
    parser.add_argument("--principal", metavar="NAME", help="the gateway client, such as token:ana")


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
            "The tokens were removed from this machine, but could not be revoked. If others may have seen "
            "them, end the access in your account at the server."
        )
    return 0
