"""`mooring list`: servers and their states."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options
from mooring.cli.output import GAP, Output, fields, table, wrap
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.core.types import ServerStatus

USAGE = "mooring list [options]"
DETAILS = """

Starts every configured server, waits until each has connected or failed, and
shows the states. A failed server is a result, not an error of the command.
TOOLS counts what the server lists, before `allow` and `deny`. FRESH is the
longest time until a change of the server's tools is noticed; `announced` is the
time for changes that the server announces, shown once it has announced some."""
EXAMPLES = """\
  mooring list
  mooring list --timeout 5
  mooring list --json | jq -r '.servers[] | select(.error) | .name'"""

_HEADER = ["NAME", "STATE", "TRANSPORT", "PROTOCOL", "TOOLS", "FRESH"]
_KEYS = (
    "name", "state", "transport", "protocol", "tools", "resources", "prompts",
    "extensions", "skills", "error", "connected_at", "breaker", "retry_in", "fresh_within",
    "announced_within", "warnings",
)  # fmt: skip


async def run(args: Namespace, options: Options, out: Output) -> int:
    if options.gateway is not None:
        return await _remote(options, out)
    from mooring.cli.hosting import open_host, report_warnings, warnings_of, watch

    async with open_host(options, out) as host:
        await watch(host, out, host.ready, timeout=options.timeout)
        statuses = tuple(map(_settled, host.status()))
        warnings = warnings_of(host)
        report_warnings(host, out)
    if options.json:
        servers = [fields(status, *_KEYS) for status in statuses]
        out.document({"servers": servers, "warnings": warnings})
    elif statuses:
        out.lines(_table(statuses, out))
    return 0


async def _remote(options: Options, out: Output) -> int:
    from mooring.cli.remote import RemoteGateway
    from mooring.core.types import ServerStatus

    found = await RemoteGateway(options).get("/servers")
    if options.json:
        rows = [{key: row.get(key) for key in _KEYS} for row in found["servers"]]
        out.document({"servers": rows, "warnings": found["warnings"]})
    elif found["servers"]:
        given: list[dict[str, Any]] = [{key: row.get(key) for key in _KEYS} for row in found["servers"]]
        out.lines(_table(tuple(ServerStatus(**row) for row in given), out))
    return 0


def _settled(status: ServerStatus) -> ServerStatus:
    """Show a server as failed if it failed and waits for its next attempt."""
    return replace(status, state="failed") if status.state == "pending" and status.error else status


def _table(statuses: tuple[ServerStatus, ...], out: Output) -> list[str]:
    from mooring.cli.progress import SYMBOLS

    rows = [_HEADER, *(_row(status) for status in statuses)]
    width = None if out.width is None else out.width - 2
    header, *body = table(rows, width=width, spare=[5, 3, 2, 4], right=[4, 5])
    lines = [out.paint(f"  {GAP.join(header)}", "dim")]
    first: dict[str, str] = {}
    for status, cells in zip(statuses, body, strict=True):
        symbol, style = SYMBOLS[status.state]
        cells[1] = out.paint(cells[1], style)
        lines.append(f"{out.paint(symbol, style)} {GAP.join(cells)}".rstrip())
        error = _error_once(status, first)
        reason = "\n".join([*([clean(error)] if error else []), *_retry_lines(status)])
        lines.extend(out.paint(line, "dim") for line in wrap(reason, out.width, indent="    "))
    return lines


def _error_once(status: ServerStatus, first: dict[str, str]) -> str | None:
    """The error of a server, or the server above that has the same one."""
    if not status.error:
        return None
    same = first.setdefault(status.error.replace(repr(status.name), ""), status.name)
    return status.error if same == status.name else f"same as {same!r}"


def _retry_lines(status: ServerStatus) -> list[str]:
    """Breaker state and time of the next attempt."""
    lines: list[str] = []
    if status.breaker != "closed":
        lines.append(f"breaker: {status.breaker}")
    if status.retry_in is not None:
        lines.append(f"next attempt in {duration(status.retry_in)}")
    return lines


def duration(seconds: float) -> str:
    """Seconds with a unit: `0.2 s`, `42 s`, `5 min`."""
    if seconds < 10:
        return f"{seconds:.1g} s" if seconds < 1 else f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _row(status: ServerStatus) -> list[str]:
    tools = str(status.tools) if status.state == "connected" else ""
    fresh = "" if status.fresh_within is None else f"≤ {duration(status.fresh_within)}"
    if status.announced_within is not None:
        fresh = f"announced ≤ {duration(status.announced_within)}, {fresh}"
    protocol = clean_line(status.protocol or "")
    return [clean_line(status.name), status.state, status.transport, protocol, tools, fresh]
