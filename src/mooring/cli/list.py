"""`mooring list`: every server, its state, and why."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.layout import GAP, table, wrap
from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.core.types import ServerStatus

USAGE = "mooring list [options]"
DETAILS = """

Starts every configured server, waits until each has connected or failed,
and shows what came of it. A failed server is a result here, not an error."""
EXAMPLES = """\
  mooring list
  mooring list --timeout 5
  mooring list --json | jq -r '.servers[] | select(.error) | .name'"""

_HEADER = ["NAME", "STATE", "TRANSPORT", "PROTOCOL", "TOOLS"]
_KEYS = (
    "name", "state", "transport", "protocol", "tools", "resources", "prompts",
    "error", "connected_at", "breaker",
)  # fmt: skip


def configure(parser: Parser) -> None:
    """This command has no arguments of its own."""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import open_host, watch
    from mooring.cli.servers import report_warnings, warnings_of

    async with open_host(options, out) as host:
        await watch(host, out, host.ready, timeout=options.timeout)
        statuses = host.status()
        warnings = warnings_of(host)
        report_warnings(host, out)
    if options.json:
        servers = [{key: getattr(status, key) for key in _KEYS} for status in statuses]
        out.document({"servers": servers, "warnings": warnings})
    elif statuses:
        out.lines(_table(statuses, out))
    return 0


def _table(statuses: tuple[ServerStatus, ...], out: Output) -> list[str]:
    from mooring.cli.progress import SYMBOLS

    rows = [_HEADER, *(_row(status) for status in statuses)]
    width = None if out.width is None else out.width - 2
    header, *body = table(rows, width=width, spare=[3, 2, 4], right=[4])
    lines = [out.paint(f"  {GAP.join(header)}", "dim")]
    for status, cells in zip(statuses, body, strict=True):
        symbol, style = SYMBOLS[status.state]
        cells[1] = out.paint(cells[1], style)
        lines.append(f"{out.paint(symbol, style)} {GAP.join(cells)}".rstrip())
        if status.error:
            reason = wrap(clean(status.error), out.width, indent="    ")
            lines.extend(out.paint(line, "dim") for line in reason)
    return lines


def _row(status: ServerStatus) -> list[str]:
    tools = str(status.tools) if status.state == "connected" else ""
    return [clean_line(status.name), status.state, status.transport, clean_line(status.protocol or ""), tools]
