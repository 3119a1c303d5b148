"""`mooring console`: a web page over the configured servers."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

USAGE = "mooring console [--port N] [--no-browser] [options]"
DETAILS = """

Starts the configured servers and opens a page on 127.0.0.1 that shows them:
state, tools, calls, messages, changes since the last approval, and questions
that wait for you. Changes of the configuration are shown as a diff and written
to its file. Without servers it shows how to begin.

The address works once, within 10 minutes; press Enter for another one. With
--json, the first line is {"url": ...}. Ctrl-C ends it."""
EXAMPLES = """\
  mooring console
  mooring --config mcp.json console --port 8321 --no-browser"""


def configure(parser: Parser) -> None:
    parser.add_argument("--port", metavar="N", type=_port, default=0, help="port on 127.0.0.1 (any free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")


async def run(args: Namespace, options: Options, out: Output) -> int:
    import asyncio
    import signal

    from mooring.cli.hosting import open_host
    from mooring.console.app import serve_console
    from mooring.console.inbox import Inbox
    from mooring.console.wire import Wire
    from mooring.gateway.shutdown import collect_seldom

    collect_seldom()
    inbox, wire = Inbox(), Wire()
    asked: dict[str, Any] = {
        "on_approval": inbox.approve,
        "on_elicit": inbox.elicit,
        "on_auth": inbox.log_in,
    }
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stack.enter_context(wire.following())
        host = await stack.enter_async_context(open_host(options, out, **asked))
        serving = serve_console(host, inbox, wire, args.port, files=options.files)
        console, address = await stack.enter_async_context(serving)

        def announce() -> str:
            url = f"{address}?token={console.access.ticket()}"
            if options.json:
                out.json_line({"url": url})
            else:
                out.line(url)
            out.flush()
            return url

        url = announce()
        if not args.no_browser:
            await asyncio.to_thread(_open, url)
        if sys.platform != "win32":
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
        with _EnterKey(announce):
            await stop.wait()
    return 0


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


class _EnterKey:
    """During the block, call a function for each line that is typed."""

    def __init__(self, announce: Callable[[], str]) -> None:
        self._announce = announce
        self._reads = False

    def __enter__(self) -> None:
        import asyncio

        if sys.platform != "win32" and sys.stdin is not None and sys.stdin.isatty():
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._typed)
            self._reads = True

    def __exit__(self, *_: object) -> None:
        self._end()

    def _typed(self) -> None:
        import os

        if os.read(sys.stdin.fileno(), 4096):
            self._announce()
        else:
            self._end()

    def _end(self) -> None:
        import asyncio

        if self._reads:
            self._reads = False
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text!r}")
    return int(text)
