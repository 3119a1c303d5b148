"""`mooring serve`: the catalog as one MCP server."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, UsageError, positive
from mooring.cli.output import Output

if TYPE_CHECKING:
    from mooring.host import Host

USAGE = "mooring serve [--stdio | --http HOST:PORT] [options]"
DETAILS = """

Clients of both protocol eras are served at /mcp, profiles at /mcp/<profile>.
With --http, --json prints where, as one document, as soon as it listens.

--workers N runs N processes on one port. They share no state: each starts its
own copy of every server, clients of 2025 get no session, servers cannot ask
clients anything, and there is no /metrics. `isolation: session`, discovery,
--sse, and limits such as `gateway.rate` and `max_concurrency` are refused."""
EXAMPLES = """\
  mooring serve --stdio
  mooring serve --http 127.0.0.1:8080 --style double
  mooring --config mcp.json serve --http 127.0.0.1:8080 --discovery"""


def configure(parser: Parser) -> None:
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="serve on standard input and output (default)")
    way.add_argument("--http", metavar="HOST:PORT", type=_address, help="serve Streamable HTTP here")
    parser.add_argument("--style", choices=("mcp", "double", "server", "raw"), help="how tools are named")
    parser.add_argument("--discovery", action="store_true", help="show three tools to find the others with")
    parser.add_argument("--sse", action="store_true", help="with --http: also the HTTP+SSE of 2024, at /sse")
    parser.add_argument("--audit", metavar="FILE", help="append one line of JSON per call")
    parser.add_argument(
        "--workers", metavar="N", type=positive, default=1, help="with --http: processes; see below"
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    import asyncio

    from mooring.cli.hosting import open_host
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.serve import reload_on_hangup, serve_http, serve_stdio, wait_for_shutdown
    from mooring.gateway.workers import is_worker, run_workers
    from mooring.transport.forwarding import ClientBridge

    whole = ProfileSettings(discovery="always" if args.discovery else "never")
    if args.workers > 1:
        if args.http is None:
            raise UsageError("--workers needs --http. See `mooring serve --help`.")
        from pathlib import Path

        from mooring.config import load
        from mooring.gateway.workers import check_workers

        check_workers(load([Path(file) for file in options.config] or None), whole, sse=args.sse)
        return await run_workers(args.workers)
    if options.json and args.http is None:
        raise UsageError("--json needs --http: the protocol has standard output. See `mooring serve --help`.")
    relay = ClientBridge(asks=not is_worker())
    async with open_host(options, out, style=args.style, relay=relay) as host, _telling_hidden(host, out):
        if args.http is None:
            hangups = asyncio.create_task(reload_on_hangup(host, out.warning))
            try:
                await serve_stdio(host, default_profile=whole, audit=args.audit)
            finally:
                hangups.cancel()
            return 0
        bind, port = args.http
        async with serve_http(
            host, bind, port, default_profile=whole, audit=args.audit, sse=args.sse, shared=is_worker()
        ) as serving:
            if options.json:
                out.document({"url": serving.url})
                out.flush()
            else:
                out.note(f"Serving at {serving.url}")
            await wait_for_shutdown(host, out.warning)
    return 0


@asynccontextmanager
async def _telling_hidden(host: Host, out: Output) -> AsyncGenerator[None]:
    """Say on standard error what the catalog does not show, when all servers have connected or failed."""
    import asyncio

    from mooring.core.types import hidden_lines

    async def tell() -> None:
        await host.ready()
        for by, text in hidden_lines(host.hidden()):
            (out.warning if by in ("lock", "trust") else out.note)(host.redact(text))

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 127.0.0.1:8080, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
