"""`mooring cluster status`: nodes, owners and leases of a cluster."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import GAP, Output, table

USAGE = "mooring cluster status [options]"
DETAILS = """

Asks the engine of `gateway.cluster`, or that of --cluster. It listens for a
few heartbeats: a node that is not heard is `silent`. Exit code 1 if a node is
silent or differs from the others."""
EXAMPLES = """\
  mooring cluster status
  mooring cluster status --cluster nats://10.0.0.5:4222 --json"""


def configure(parser: Parser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("status",), help="show nodes, owners and leases")
    parser.add_argument("--cluster", metavar="URL", help="address of the NATS server (nats://…)")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cluster.engine import engine_access, settings_with
    from mooring.cluster.status import cluster_status
    from mooring.config import load
    from mooring.gateway.serve import refuse_doubtful

    config = load(options.files)
    refuse_doubtful(config)  # a section with a problem would look as if it was missing
    settings = config.gateway.cluster
    if args.cluster is not None:
        settings = settings_with(settings, args.cluster)
    if settings is None:
        raise UsageError("There is no `gateway.cluster` in the configuration; name it with --cluster URL.")
    report = await cluster_status(engine_access(settings))
    if options.json:
        out.document(report)
    else:
        _show(report, out)
    troubled = [node for node in report["nodes"] if node["state"] == "silent" or _serious(node)]
    return 1 if troubled else 0


def _serious(node: dict[str, Any]) -> bool:
    return bool(set(node["drift"]) - {"version"})


def _show(report: dict[str, Any], out: Output) -> None:
    if not report["nodes"]:
        out.line("No node has joined this cluster.")
        return
    rows = [
        [
            node["name"],
            node["state"],
            str(node["owned"]),
            str(node["version"] or "-"),
            str(node["url"] or "-"),
            ", ".join(f"another {name}" for name in node["drift"]) or "-",
        ]
        for node in report["nodes"]
    ]
    rows.insert(0, ["NODE", "STATE", "OWNS", "VERSION", "ADDRESS", "DRIFT"])
    for cells in table(rows, width=out.width, spare=(3, 4)):
        out.line(GAP.join(cells).rstrip())
    if report["owners"]:
        out.line("")
        shown = [[_what(row), row["node"], str(row["fence"]), row["lease"]] for row in report["owners"][:50]]
        shown.insert(0, ["RUNS ONCE", "NODE", "FENCE", "LEASE"])
        for cells in table(shown, width=out.width, spare=(2,)):
            out.line(GAP.join(cells).rstrip())
        if len(report["owners"]) >= len(shown):
            out.line(f"… and {len(report['owners']) - len(shown) + 1} more; --json lists them")


def _what(row: dict[str, Any]) -> str:
    if "server" in row:
        return f"server {row['server']}"
    profile = f" ({row['profile']})" if row.get("profile") else ""
    return f"session of {row.get('principal')}{profile}"
