"""`mooring demo`: the main job, done on bundled servers in a few seconds, without any network."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import GAP, Output, Style, table, width_of, wrap
from mooring.core.events import ServerLost
from mooring.core.text import clean, clean_line
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.core.types import Result, ServerStatus
    from mooring.host import Host

USAGE = "mooring demo [options]"
DETAILS = """

Starts five bundled servers at once: three that work (two eras of the
protocol, stdio and HTTP), one that hangs, one that crashes. Then shows the
merged catalog, calls two tools, kills a server, and calls it again."""
EXAMPLES = """\
  mooring demo"""


def configure(parser: Parser) -> None:
    """This command has no arguments of its own."""


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring import demo
    from mooring.cli.hosting import log_to_stderr

    log_to_stderr(options.verbose)
    begin = time.monotonic()
    with demo.weather() as url:
        host = _host(url)
        story = _Story(out, quiet=options.json)
        story.title("Five servers start at once: three good ones, one that hangs, one that crashes.")
        async with host:
            await _start(host, story)
            _catalog(host, story)
            await _calls(host, story)
            healed = await _heal(host, story)
            status = host.status()
    seconds = time.monotonic() - begin
    if options.json:
        servers = [{"name": s.name, "state": s.state, "tools": s.tools, "error": s.error} for s in status]
        out.document(
            {"servers": servers, "calls": story.calls, "healed": healed, "seconds": round(seconds, 2)}
        )
    story.title(f"Done in {seconds:.1f} s, and every process has ended. With your own servers:")
    story.say("mooring --config mcp.json list")
    return 0 if healed else 1


class _Story:
    """Tells what happens, line by line; keeps the calls for the JSON form."""

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
        """A line that begins with `head`; `mark` is painted, and what does not fit goes under the text."""
        width = None if self.out.width is None else self.out.width - len(GAP)
        indent = " " * width_of(head)
        first, *rest = wrap(text, width, indent) or [indent]
        line = f"{head}{first[len(indent) :]}".rstrip()
        self.say(line.replace(mark, self.out.paint(mark, style), 1))
        for line in rest:
            self.say(line)

    async def call(self, host: Host, tool: str, **arguments: Any) -> Result:
        """Call a tool and tell the outcome."""
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


async def _start(host: Host, story: _Story) -> None:
    from mooring.cli.progress import SYMBOLS, plural

    begin = time.monotonic()
    async for status in _arrivals(host, waiting={"notes", "clock", "weather", "broken"}):
        symbol, style = SYMBOLS[status.state]
        about = f"{status.transport}, protocol {status.protocol}, {plural(status.tools, 'tool')}"
        moment = f"{time.monotonic() - begin:.2f} s"
        text = about if status.state == "connected" else clean(status.error or "")
        story.row(f"{moment}  {symbol} {status.name.ljust(7)}  ", text, mark=symbol, style=style)
    silence = "has not said a word yet; nobody waits for it"
    story.row("        ◌ silent   ", silence, mark="◌", style="plain")


async def _arrivals(host: Host, waiting: set[str]) -> AsyncIterator[ServerStatus]:
    """Each server as soon as it has connected or failed."""

    def news() -> list[ServerStatus]:
        found = [s for s in host.status() if s.name in waiting and s.state != "pending"]
        waiting.difference_update(s.name for s in found)
        return found

    for status in news():
        yield status
    async for _ in host.events() if waiting else ():
        for status in news():
            yield status
        if not waiting:
            return


def _catalog(host: Host, story: _Story) -> None:
    story.title("Their tools are one catalog.")
    rows = [[tool.name, clean_line(tool.description)] for _, tool in sorted(host.catalog.tools.items())]
    width = None if story.out.width is None else story.out.width - len(GAP)
    for name, text in table(rows, width=width):
        story.say(f"{story.out.paint(name, 'cyan')}{GAP}{text}")


async def _calls(host: Host, story: _Story) -> None:
    story.title("A call finds its server.")
    await story.call(host, "mcp_weather_forecast", city="Oslo")
    await story.call(host, "mcp_notes_write_note", title="packing", text="a warm coat")


async def _heal(host: Host, story: _Story) -> bool:
    story.title("A server dies; the next call brings it back.")
    before = (await story.call(host, "mcp_clock_now")).structured["pid"]
    events = host.events()
    os.kill(before, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    story.say(story.out.paint(f"kill -9 {before}", "red"))
    # A call that was already on its way to the dying server would have an unknown outcome, and no
    # host may send such a call twice.
    async for event in events:
        if isinstance(event, ServerLost):
            story.say(f"{GAP}→ {event.server} lost: {clean_line(event.reason)}")
            break
    after = (await story.call(host, "mcp_clock_now")).structured["pid"]
    story.say(f"answered by a new process, {after}")
    return before != after
