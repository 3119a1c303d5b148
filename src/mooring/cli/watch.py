"""`mooring watch`: live view of the servers."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, seconds
from mooring.cli.output import Output

if TYPE_CHECKING:
    import logging

    from mooring.cli.watch_view import WatchBoard
    from mooring.core.events import Event
    from mooring.host import Host

USAGE = "mooring watch [--every S] [options]"
DETAILS = """

Connects every enabled server and shows its state and last round-trip times.
Keys: arrows select a server, r reconnects it, d turns it off and on (only
while this command runs), t shows its tools, l the log, q quits.

In a pipe it prints one line per event; with --json, one JSON object per line."""
EXAMPLES = """\
  mooring watch
  mooring watch --every 10
  mooring watch --json | jq -r 'select(.event == "StateChanged") | .server'"""

_TICK = 0.25


def configure(parser: Parser) -> None:
    parser.add_argument(
        "--every",
        metavar="S",
        type=seconds,
        default=2.0,
        help="seconds between two pings of a server (2)",
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    import anyio

    if options.gateway is not None:
        from mooring.cli.remote import RemoteGateway

        with anyio.move_on_after(options.timeout):
            await RemoteGateway(options).print_events(out)
        return 0
    from mooring.cli.hosting import open_host
    from mooring.cli.watch_view import is_terminal

    live = is_terminal() and not options.json
    async with open_host(replace(options, verbose=options.verbose and not live), out) as host:
        with anyio.move_on_after(options.timeout):
            await (_Live(host, out, args.every).run() if live else _print_events(host, options, out))
    return 0


async def _print_events(host: Host, options: Options, out: Output) -> None:
    """Print one line for each event until cancelled."""
    from mooring.cli.watch_view import event_line

    async for event in host.events():
        if options.json:
            out.json_line({"event": type(event).__name__, "time": time.time(), **_fields(event)})
        elif (line := event_line(event)) is not None:
            out.line(f"{_clock()}  {line[0]}")
        else:
            continue
        out.flush()


def _fields(event: Event) -> dict[str, object]:
    return asdict(event)  # pyright: ignore[reportArgumentType] -- every event is a dataclass


class _Live:
    """The view on a terminal: handles events and keys, and pings the servers."""

    def __init__(self, host: Host, out: Output, every: float) -> None:
        import asyncio

        from mooring.cli.watch_view import WatchBoard

        self._host, self._out, self._every = host, out, every
        self._board: WatchBoard = WatchBoard()
        self._keys = asyncio.Queue[str]()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        import anyio

        from mooring.cli.watch_view import screen

        with screen(self._out, self._keys.put_nowait) as shown, _LogCapture(self._board):
            async with anyio.create_task_group() as tasks:
                for work in (self._listen, self._ping_all):
                    tasks.start_soon(work)
                tasks.start_soon(self._draw, shown)
                while (key := await self._keys.get()) not in ("q", "\x1b"):
                    tasks.start_soon(self._press, key)
                tasks.cancel_scope.cancel()

    async def _listen(self) -> None:
        async for event in self._host.events():
            self._board.state.add_event(event, time.time())
            self._changed.set()

    async def _ping_all(self) -> None:
        import asyncio

        import anyio

        async def one(name: str) -> None:
            from mooring.errors import MooringError

            try:
                self._board.state.add_round_trip(name, await self._host.ping(name, self._every))
            except MooringError:
                self._board.state.add_round_trip(name, None)
            self._changed.set()

        while True:
            async with anyio.create_task_group() as tasks:
                for status in self._host.status():
                    if status.state == "connected":
                        tasks.start_soon(one, status.name)
            await asyncio.sleep(self._every)

    async def _draw(self, shown: object) -> None:
        import asyncio

        from mooring.cli.watch_view import Screen, frame

        assert isinstance(shown, Screen)
        while True:
            width, height = shown.size
            tools: dict[str, list[str]] = {}
            for name, tool in self._host.catalog.tools.items():
                tools.setdefault(tool.server, []).append(name)
            now, servers = time.time(), self._host.status()
            shown.draw(frame(self._board, servers, tools, width=width, height=height, now=now))
            self._changed.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_TICK)  # draw a burst of events once

    async def _press(self, key: str) -> None:
        board, servers = self._board, self._host.status()
        board.notice = ""
        match key:
            case "up" | "down":
                board.selected += 1 if key == "down" else -1
            case "t" | "l":
                board.pane = "tools" if key == "t" else "log"
            case "r" | "d" if servers:
                name = servers[board.selected].name
                off = servers[board.selected].state == "disabled"
                await self._change(name, "reconnecting" if key == "r" else "on" if off else "off")
            case _:
                pass
        self._changed.set()

    async def _change(self, name: str, what: str) -> None:
        """Turn a server off or on; reconnecting does both."""
        self._board.notice = f"{name}: {what}"
        self._changed.set()
        for disabled in {"reconnecting": (True, False), "on": (False,), "off": (True,)}[what]:
            servers = tuple(
                replace(server, disabled=disabled) if server.name == name else server
                for server in self._host.config.servers
            )
            await self._host.apply(replace(self._host.config, servers=servers))
        self._board.notice = ""


def _clock() -> str:
    return time.strftime("%H:%M:%S")


class _LogCapture:
    """Adds the stderr of servers and the warnings of the host to the log of the view."""

    def __init__(self, board: WatchBoard) -> None:
        self._board = board
        self._handler: logging.Handler | None = None

    def __enter__(self) -> None:
        import logging

        board = self._board

        class BoardHandler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                level = "info" if record.levelno < logging.WARNING else "warning"
                source = "stderr" if hasattr(record, "server") else "host"
                board.state.add_log(record.getMessage(), level, time.time(), source=source)

        self._handler = BoardHandler(logging.INFO)
        logging.getLogger("mooring.server").setLevel(logging.INFO)
        logging.getLogger("mooring").addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        import logging

        assert self._handler is not None
        logging.getLogger("mooring").removeHandler(self._handler)
