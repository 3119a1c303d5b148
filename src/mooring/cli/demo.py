"""`mooring demo`: connect, call and recover bundled servers in a few seconds, without a network."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options
from mooring.cli.output import GAP, Output, Style, plural, table, width_of, wrap
from mooring.core.events import ServerLost
from mooring.core.text import clean, clean_line
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.core.types import Result, ServerStatus
    from mooring.host import Host

USAGE = "mooring demo [options]"
DETAILS = """

Starts five bundled servers at once: three that work (two protocol eras, stdio
and HTTP), one that hangs, one that crashes. Then shows the merged catalog,
calls two tools, kills a server, and calls it again."""
EXAMPLES = """\
  mooring demo"""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring import demo
    from mooring.cli.hosting import log_to_stderr

    log_to_stderr(options.verbose)
    begin = time.monotonic()
    with demo.weather() as url:
        host = _host(url)
        report = _Report(out, quiet=options.json)
        report.title("Starting five servers at once: three that work, one that hangs, one that crashes.")
        async with host:
            await _start(host, report)
            _catalog(host, report)
            await _calls(host, report)
            recovered = await _recover(host, report)
            status = host.status()
    seconds = time.monotonic() - begin
    if options.json:
        servers = [{"name": s.name, "state": s.state, "tools": s.tools, "error": s.error} for s in status]
        out.document(
            {"servers": servers, "calls": report.calls, "healed": recovered, "seconds": round(seconds, 2)}
        )
    report.title(f"Done in {seconds:.1f} s. All processes have ended. With your own servers:")
    report.say("mooring --config mcp.json list")
    return 0 if recovered else 1


class _Report:
    """Prints each step; collects the calls for the JSON form."""

    def __init__(self, out: Output, *, quiet: bool) -> None:
        self.out = out
        self.calls: list[dict[str, Any]] = []
        self._quiet = quiet
        self._titles = 0

    def title(self, text: str) -> None:
        if not self._quiet:
            lines = [self.out.paint(line, "bold") for line in wrap(text, self.out.width)]
            self.out.lines(["", *lines] if self._titles else lines)
        self._titles += 1

    def say(self, text: str) -> None:
        if not self._quiet:
            self.out.line(f"{GAP}{text}")
            sys.stdout.flush()

    def row(self, head: str, text: str, *, mark: str, style: Style) -> None:
        """A line that starts with `head`; `mark` is coloured, and the text is wrapped under itself."""
        width = None if self.out.width is None else self.out.width - len(GAP)
        indent = " " * width_of(head)
        first, *rest = wrap(text, width, indent) or [indent]
        line = f"{head}{first[len(indent) :]}".rstrip()
        self.say(line.replace(mark, self.out.paint(mark, style), 1))
        for line in rest:
            self.say(line)

    async def call(self, host: Host, tool: str, **arguments: Any) -> Result:
        """Call a tool and print the result."""
        result = await host.call(tool, arguments, timeout=10)
        typed = " ".join(f"{key}={value}" for key, value in arguments.items())
        took = self.out.paint(f"{result.duration * 1000:.0f} ms", "dim")
        self.row(f"{tool} ", typed, mark=tool, style="cyan")
        self.say(f"{GAP}→ {clean_line(result.text)}{GAP}{took}")
        self.calls.append({"tool": tool, "text": result.text, "is_error": result.is_error})
        if result.is_error:
            raise result.error or MooringError(f"{tool}: {result.text}")
        return result


def _host(weather_url: str) -> Host:
    from mooring import Host, ServerConfig, demo

    names = ("notes", "clock", "silent", "broken")
    children = [(name, demo.command(name)) for name in names]
    return Host(
        [
            *(ServerConfig(name=name, command=argv[0], args=argv[1:]) for name, argv in children),
            ServerConfig(name="weather", url=weather_url),
        ]
    )


async def _start(host: Host, report: _Report) -> None:
    from mooring.cli.progress import SYMBOLS

    begin = time.monotonic()
    async for status in _settled(host, waiting={"notes", "clock", "weather", "broken"}):
        symbol, style = SYMBOLS[status.state]
        about = f"{status.transport}, protocol {status.protocol}, {plural(status.tools, 'tool')}"
        moment = f"{time.monotonic() - begin:.2f} s"
        text = about if status.state == "connected" else clean(status.error or "")
        report.row(f"{moment}  {symbol} {status.name.ljust(7)}  ", text, mark=symbol, style=style)
    pending = "has not answered yet; the others do not wait for it"
    report.row("        ◌ silent   ", pending, mark="◌", style="plain")


async def _settled(host: Host, waiting: set[str]) -> AsyncIterator[ServerStatus]:
    """Each server as soon as it has connected or failed."""

    def settled() -> list[ServerStatus]:
        found = [s for s in host.status() if s.name in waiting and s.state != "pending"]
        waiting.difference_update(s.name for s in found)
        return found

    for status in settled():
        yield status
    async for _ in host.events() if waiting else ():
        for status in settled():
            yield status
        if not waiting:
            return


def _catalog(host: Host, report: _Report) -> None:
    report.title("All tools in one catalog:")
    rows = [[tool.name, clean_line(tool.description)] for _, tool in sorted(host.catalog.tools.items())]
    width = None if report.out.width is None else report.out.width - len(GAP)
    for name, text in table(rows, width=width):
        report.say(f"{report.out.paint(name, 'cyan')}{GAP}{text}")


async def _calls(host: Host, report: _Report) -> None:
    report.title("Calls are routed to the right server:")
    await report.call(host, "mcp_weather_forecast", city="Oslo")
    await report.call(host, "mcp_notes_write_note", title="packing", text="a warm coat")


async def _recover(host: Host, report: _Report) -> bool:
    report.title("A server is killed; the next call restarts it:")
    before = (await report.call(host, "mcp_clock_now")).structured["pid"]
    events = host.events()
    os.kill(before, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    report.say(report.out.paint(f"kill -9 {before}", "red"))
    # Wait until the loss is noticed: a call sent before would have an unknown outcome and is not repeated.
    async for event in events:
        if isinstance(event, ServerLost):
            report.row(
                f"{GAP}→ ", f"{event.server} lost: {clean_line(event.reason)}", mark="→", style="plain"
            )
            break
    after = (await report.call(host, "mcp_clock_now")).structured["pid"]
    report.say(f"answered by a new process ({after})")
    return before != after
