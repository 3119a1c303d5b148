"""`mooring sessions`: sessions of the clients of a running gateway."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import GAP, Output, table
from mooring.core.text import clean_line

USAGE = "mooring sessions --gateway URL [--end ID] [options]"
DETAILS = """

Lists the sessions of handshake clients at a running gateway. Clients of the
2026 protocol have none. IDs are the first characters, as in its logs."""
EXAMPLES = """\
  mooring sessions --gateway https://mcp.example.com
  mooring sessions --gateway https://mcp.example.com --end 1f2e3d4c"""


def configure(parser: Parser) -> None:
    parser.add_argument("--end", metavar="ID", help="end this session")


async def run(args: Namespace, options: Options, out: Output) -> int:
    if options.gateway is None:
        raise UsageError("`mooring sessions` asks a running gateway: add --gateway URL.")
    from urllib.parse import quote

    from mooring.cli.remote import RemoteGateway

    gateway = RemoteGateway(options)
    if args.end is not None:
        done = await gateway.send("DELETE", f"/sessions/{quote(args.end, safe='')}")
        if options.json:
            out.document(done)
        else:
            out.note(f"Session {args.end} is ended.")
        return 0
    found = (await gateway.get("/sessions"))["sessions"]
    if options.json:
        out.document(found)
        return 0
    if not found:
        out.note("There are no sessions.")
        return 0
    rows = [["ID", "PRINCIPAL", "PROFILE", "PROTOCOL", "RUNNING", "IDLE"]]
    for one in found:
        texts = (one["id"], one["principal"], one["profile"] or "-", one["protocol"], one["running"])
        rows.append([*(clean_line(str(text)) for text in texts), f"{one['idle']:.0f} s"])
    header, *body = table(rows, width=out.width, spare=[3, 2], right=[4, 5])
    out.lines([out.paint(GAP.join(header).rstrip(), "dim"), *(GAP.join(cells).rstrip() for cells in body)])
    return 0
