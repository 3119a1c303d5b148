"""`mooring ping`: round-trip time of each server."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import GAP, Output, table, wrap
from mooring.core.text import clean, clean_line
from mooring.errors import CallTimeout, MooringError

if TYPE_CHECKING:
    from mooring.host import Host

USAGE = "mooring ping [SERVER ...] [options]"
DETAILS = """

Each server has 5 seconds (--timeout) to connect and answer. Exit code 1 if a
server is down, 3 if it needs a login or an approval."""
TIMEOUT = 5.0
EXAMPLES = """\
  mooring ping
  mooring ping github linear --timeout 20
  mooring ping --json | jq '.[] | select(.ok | not)'"""


def configure(parser: Parser) -> None:
    parser.add_argument("servers", metavar="SERVER", nargs="*", help="names of servers; default: all")


async def run(args: Namespace, options: Options, out: Output) -> int:
    import anyio

    from mooring.cli.hosting import chosen, open_host, settle, watch

    async with open_host(options, out, servers=args.servers, idle=bool(args.servers)) as host:
        names = chosen(host, args.servers)
        limit = TIMEOUT if options.timeout is None else options.timeout
        answers: dict[str, dict[str, Any]] = {}

        async def ask(name: str) -> None:
            started = anyio.current_time()
            with anyio.move_on_after(limit):
                await settle(host, [name])
            left = max(started + limit - anyio.current_time(), 0.0)
            answers[name] = await _ping(host, name, left, limit)

        async def ask_all() -> None:
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(ask, name)

        await watch(host, out, ask_all, timeout=None, names=names)
        states = {status.name: status.state for status in host.status()}
        blocked = {"needs-auth", *(["disabled"] if host.held else [])}
    report = [answers[name] for name in sorted(answers)]
    if options.json:
        out.document(report)
    else:
        out.lines(_lines(report, out))
    down = {states[answer["name"]] for answer in report if not answer["ok"]}
    return 0 if not down else 3 if down <= blocked else 1


async def _ping(host: Host, name: str, timeout: float, limit: float) -> dict[str, Any]:
    status = next(status for status in host.status() if status.name == name)
    answer: dict[str, Any] = {"name": name, "ok": False, "ms": None, "error": None}
    if status.state == "pending":
        still = f"still starting after {limit:g} s; use a longer --timeout"
        return answer | {"error": status.error or still}
    if status.state != "connected":
        return answer | {"error": status.error or f"the server is {status.state}"}
    try:
        seconds = await host.ping(name, timeout)
    except CallTimeout:
        return answer | {"error": f"no response within {limit:g} s"}
    except MooringError as problem:
        return answer | {"error": str(problem)}
    return answer | {"ok": True, "ms": round(seconds * 1000, 2)}


def _lines(report: list[dict[str, Any]], out: Output) -> list[str]:
    rows = [[clean_line(a["name"]), f"{a['ms']:.1f} ms" if a["ok"] else "down"] for a in report]
    lines: list[str] = []
    for answer, cells in zip(report, table(rows, width=None, right=[1]), strict=True):
        symbol = out.paint("✓", "green") if answer["ok"] else out.paint("✗", "red")
        lines.append(f"{symbol} {GAP.join(cells)}")
        if answer["error"]:
            lines.extend(out.paint(line, "dim") for line in wrap(clean(answer["error"]), out.width, "    "))
    return lines
