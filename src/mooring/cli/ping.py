"""`mooring ping`: is it there, and how far away."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.layout import GAP, table, wrap
from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.core.text import clean, clean_line
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.host import Host

USAGE = "mooring ping [SERVER ...] [options]"
DETAILS = """

Exit code 1 when a server is down, 3 when one only needs a login or an
approval."""
EXAMPLES = """\
  mooring ping
  mooring ping github linear --timeout 5
  mooring ping --json | jq '.[] | select(.ok | not)'"""


def configure(parser: Parser) -> None:
    parser.add_argument("servers", metavar="SERVER", nargs="*", help="which servers; all when none is named")


async def run(args: Namespace, options: Options, out: Output) -> int:
    import anyio

    from mooring.cli.hosting import open_host, watch
    from mooring.cli.servers import chosen, settle

    async with open_host(options, out, servers=args.servers, idle=bool(args.servers)) as host:
        names = chosen(host, args.servers)
        await watch(host, out, lambda: settle(host, names), timeout=options.timeout)
        answers: dict[str, dict[str, Any]] = {}

        async def ask(name: str) -> None:
            answers[name] = await _ping(host, name, options.timeout)

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(ask, name)
        states = {status.name: status.state for status in host.status()}
        waiting = {"needs-auth", *(["disabled"] if host.held else [])}
    report = [answers[name] for name in sorted(answers)]
    if options.json:
        out.document(report)
    else:
        out.lines(_lines(report, out))
    down = {states[answer["name"]] for answer in report if not answer["ok"]}
    return 0 if not down else 3 if down <= waiting else 1


async def _ping(host: Host, name: str, timeout: float | None) -> dict[str, Any]:
    import anyio

    status = next(status for status in host.status() if status.name == name)
    answer: dict[str, Any] = {"name": name, "ok": False, "ms": None, "error": None}
    if status.state != "connected":
        return answer | {"error": status.error or f"the server is {status.state}"}
    try:
        with anyio.fail_after(timeout):
            seconds = await host.ping(name)
    except (MooringError, TimeoutError) as problem:
        return answer | {"error": str(problem) or f"no answer within {timeout:g} s"}
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
