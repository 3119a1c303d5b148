"""`mooring serve`: serve the catalog as one MCP server."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError, add_style, positive
from mooring.cli.output import Output

if TYPE_CHECKING:
    from mooring.core.types import HiddenBy
    from mooring.gateway.nodes import Cluster
    from mooring.gateway.serve import Serving
    from mooring.host import Host

USAGE = "mooring serve [--stdio | --http HOST:PORT] [options]"
DETAILS = """

Serves clients of both protocol eras at /mcp, and profiles at /mcp/<profile>.
With --http, --json prints the URL as one line of JSON as soon as it listens.
A server that does not start is reported once on standard error.

--workers N runs N processes on one port. Each starts its own copy of every
shared server; sessions, private servers, selections and limits are kept once.
--node NAME is the name of this process in `gateway.nodes` or in the cluster
of --cluster, which needs the extra `cluster`.

--console adds the page of `mooring console` at /console/, and prints its
address on standard error. If the gateway has tokens, the page asks for one
with the scope `admin`; questions of the policy then wait there for an answer."""
EXAMPLES = """\
  mooring serve --stdio
  mooring serve --http 127.0.0.1:8080 --style double
  mooring --config mcp.json serve --http 127.0.0.1:8080 --discovery"""


def configure(parser: Parser) -> None:
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument("--stdio", action="store_true", help="serve on stdin and stdout (default)")
    transport.add_argument("--http", metavar="HOST:PORT", type=_address, help="serve Streamable HTTP here")
    add_style(parser)
    parser.add_argument("--discovery", action="store_true", help="show only the three discovery tools")
    parser.add_argument("--sse", action="store_true", help="with --http: also serve HTTP+SSE (2024) at /sse")
    parser.add_argument("--console", action="store_true", help="with --http: also serve /console/")
    parser.add_argument("--audit", metavar="FILE", help="append a JSON line for each call to FILE")
    parser.add_argument(
        "--workers", metavar="N", type=positive, default=1, help="with --http: number of processes (1)"
    )
    parser.add_argument("--node", metavar="NAME", help="with --http: name of this node")
    parser.add_argument("--cluster", metavar="URL", help="with --http: NATS server of the cluster (nats://…)")
    parser.add_argument("--address", metavar="URL", help="with --cluster: where other nodes reach this one")


async def run(args: Namespace, options: Options, out: Output) -> int:
    import asyncio

    from mooring.cli.hosting import open_host, show_warnings
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.serve import reload_on_hangup, serve_http, serve_stdio
    from mooring.gateway.shutdown import shutdown_of, wait_for_shutdown
    from mooring.transport.forwarding import ClientBridge

    whole = ProfileSettings(discovery="always" if args.discovery else "never")

    def listening(url: str) -> None:
        if options.json:
            out.document({"url": url}, indent=None)
            out.flush()
        else:
            out.note(f"Serving at {url}")

    worker = None
    if sys.platform != "win32":
        from mooring.cluster.workers import this_worker

        worker = this_worker()
    for name in ("node", "cluster", "address"):
        if getattr(args, name) is not None and args.http is None:
            raise UsageError(f"--{name} needs --http. See `mooring serve --help`.")
    if args.workers > 1 and worker is None:
        if args.http is None:
            raise UsageError("--workers needs --http. See `mooring serve --help`.")
        if args.node is not None or args.cluster is not None:
            raise UsageError(
                "--workers does not work with --node or --cluster: run one process for each node."
            )
        if sys.platform == "win32":
            raise UsageError("--workers does not work on Windows.")
        from mooring.cluster.workers import run_workers

        bind, port = args.http
        return await run_workers(args.workers, bind, port, listening)
    if options.json and args.http is None:
        raise UsageError("--json needs --http: with --stdio, standard output carries the protocol.")
    if args.console and (args.http is None or args.workers > 1):
        raise UsageError("--console needs --http and one process. See `mooring serve --help`.")
    async with AsyncExitStack() as stack:
        warnings = stack.enter_context(ExitStack())
        warnings.enter_context(show_warnings("mooring.connection", out, at_end=False))
        console = _Console(options) if args.console else None
        asked = {} if console is None else console.callbacks(stack)
        clusters: list[Cluster | None] = [worker]

        async def prepare(host: Host) -> None:
            if worker is None and args.http is not None:
                clusters[0] = await _nodes(host, args, no_lock=options.no_lock)

        host = await stack.enter_async_context(
            open_host(options, out, style=args.style, relay=ClientBridge(), prepare=prepare, **asked)
        )
        note = out.note
        if host.config.gateway.log is not None:
            warnings.close()  # the log has them, and standard error holds nothing else
            out = Output(replace(options, quiet=True))
        await stack.enter_async_context(_reporting_hidden(host, out))
        if args.http is None:
            hangups = asyncio.create_task(reload_on_hangup(host, out.warning, out.note))
            try:
                await serve_stdio(host, default_profile=whole, audit=args.audit)
            finally:
                hangups.cancel()
                shutdown_of(host, lambda: None, out.warning).begin()
            return 0
        bind, port = args.http[0], args.http[1] if worker is None else worker.port
        [cluster] = clusters
        async with serve_http(
            host, bind, port, default_profile=whole, audit=args.audit, sse=args.sse, cluster=cluster
        ) as serving:
            if console is not None:
                await stack.enter_async_context(console.shown(serving, note, cluster))
            # The process that started a worker reports where it listens.
            show = listening if worker is None else partial(print, flush=True)
            await wait_for_shutdown(serving, out.warning, out.note, worker=worker is not None, announce=show)
    return 0


async def _nodes(host: Host, args: Namespace, *, no_lock: bool) -> Cluster | None:
    """Return the other nodes, if this process is one of several."""
    from mooring.cluster.nodes import static_nodes
    from mooring.gateway.serve import refuse_doubtful

    refuse_doubtful(host.config)  # a section with a problem would look as if it was missing
    if args.cluster is not None or host.config.gateway.cluster is not None:
        from mooring.cluster.engine_nodes import engine_nodes

        style = None if args.style == host.config.style else args.style
        seen = {"--style": style, "--discovery": args.discovery, "--sse": args.sse, "--no-lock": no_lock}
        return engine_nodes(host, args.cluster, args.node, args.address, args.http, seen)
    return await static_nodes(host, args.node)


class _Console:
    """The console of the gateway, for `--console`."""

    def __init__(self, options: Options) -> None:
        from mooring.console.inbox import Inbox
        from mooring.console.wire import Wire

        self._options, self._inbox, self._wire = options, Inbox(), Wire()

    def callbacks(self, stack: AsyncExitStack) -> dict[str, Any]:
        """Follow the messages from now on; return the callbacks of the host."""
        stack.enter_context(self._wire.following())
        inbox = self._inbox
        return {"on_approval": inbox.approve, "on_elicit": inbox.elicit, "on_auth": inbox.log_in}

    @asynccontextmanager
    async def shown(
        self, serving: Serving, note: Callable[[str], None], cluster: Cluster | None
    ) -> AsyncGenerator[None]:
        """Serve the console during the block, and print its address on standard error."""
        from mooring.console.app import add_console

        files = self._options.files
        shown = add_console(serving, self._inbox, self._wire, files=files, cluster=cluster)
        async with shown as (console, address):
            needs = console.access.needs_token
            url = address if needs else f"{address}?token={console.access.ticket()}"
            note(f"Console at {url}" + (" (needs a token with the scope `admin`)" if needs else ""))
            yield


@asynccontextmanager
async def _reporting_hidden(host: Host, out: Output) -> AsyncGenerator[None]:
    """When every server has connected or failed, print what the catalog hides and why; after a change of the
    configuration, what it did not hide before."""
    import asyncio

    from mooring.core.events import ConfigApplied
    from mooring.core.types import hidden_lines

    async def show(known: list[tuple[HiddenBy, str]]) -> list[tuple[HiddenBy, str]]:
        await host.ready()
        lines = hidden_lines(host.hidden())
        for by, text in lines:
            if (by, text) not in known:
                (out.warning if by in ("lock", "trust") else out.note)(host.redact(text))
        return lines

    async def report() -> None:
        changes = host.events(ConfigApplied)
        known = await show([])
        async for _ in changes:
            known = await show(known)

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 127.0.0.1:8080, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
