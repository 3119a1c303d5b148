"""`mooring call`: one tool, once."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.core.text import clean, clean_line, nearest
from mooring.errors import UnknownTool

if TYPE_CHECKING:
    from mooring.core.types import Block, Result, Tool
    from mooring.host import Host
    from mooring.policy import ApprovalRequest

USAGE = "mooring call TOOL [key=value ...] [--args JSON] [--yes] [options]"
DETAILS = """

A value is read as the type that the tool's schema asks for; `key:=json` is
always JSON. `key=@file` takes the value from a file, `@-` from standard
input. On a terminal you are asked for what the tool requires and you have
not given. The result goes to standard output. What the tool reports as an
error goes to standard error, with exit code 1. Control characters in text,
such as terminal escapes, are written as \\x1b; `--json` has them as they are.
Ctrl-C cancels the call at the server. Questions that the server has meanwhile
are asked on a terminal, and declined elsewhere.

A tool that the configuration wants to be asked for is asked for on the
terminal. Exit code 3: nobody said yes, or it is denied."""
EXAMPLES = """\
  mooring call mcp_time_get_current_time timezone=UTC
  mooring call mcp_files_read_file path=README.md > copy.md
  mooring call mcp_db_query sql=@report.sql limit=10 options:='{"raw": true}'
  echo '{"path": "."}' | mooring call mcp_files_list_directory --args -"""


def configure(parser: Parser) -> None:
    from mooring.cli.tools import STYLES

    parser.add_argument("tool", metavar="TOOL", help="a name that `mooring tools` shows")
    parser.add_argument("arguments", metavar="key=value", nargs="*", help="arguments of the tool")
    parser.add_argument(
        "--args", metavar="JSON", help="all arguments as a JSON object; - reads standard input"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before a call that needs a yes")
    parser.add_argument(
        "--style", choices=STYLES, metavar="STYLE", help="how tools are named: see mooring tools"
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    import asyncio

    from mooring.cli.app import exit_code
    from mooring.cli.arguments import filled
    from mooring.cli.ask import asker
    from mooring.cli.hosting import open_host
    from mooring.cli.progress import progress_bar

    document = _read_stdin(options) if args.args == "-" else args.args

    async def approve(request: ApprovalRequest) -> bool:
        return args.yes or await _said_yes(request, out)

    async with open_host(
        options, out, style=args.style, idle=True, on_approval=approve, on_elicit=asker(out)
    ) as host:
        tool = await _find(host, args.tool, options, out)
        arguments = await filled(args.arguments, document, tool, out)

        try:
            with progress_bar(out) as bar:
                # The budget is for models: whoever types a command wants all of it.
                result = await host.call(
                    tool.name, arguments, timeout=options.timeout, on_progress=bar, budget=0
                )
        except asyncio.CancelledError:
            out.error(f"{tool.name} was cancelled: {tool.server} has been told to stop.", label="")
            raise
        shown = [] if options.json or result.is_error else await _shown(result, out, host)
    if options.json:
        out.document(_document(result))
    elif result.is_error:
        out.error(str(result.error or result.text or f"{tool.name} failed without saying why."))
    else:
        out.lines(shown)
    return exit_code(result.error) if result.error else int(result.is_error)


async def _said_yes(request: ApprovalRequest, out: Output) -> bool:
    from mooring.cli.ask import asked

    title = f" ({request.title})" if request.title else ""
    given = json.dumps(dict(request.arguments), ensure_ascii=False)
    question = f"Call {request.tool!r}{title} of {request.server!r} with {given}?"
    return await asked(f"{question} It needs a yes: {request.reason}.", "Nothing was called.", out)


def _read_stdin(options: Options) -> str:
    if sys.stdin.isatty() and not options.quiet:
        sys.stderr.write("Reading the arguments as JSON from the terminal; end with Ctrl-D.\n")
    return sys.stdin.read()


async def _find(host: Host, name: str, options: Options, out: Output) -> Tool:
    """The tool, as soon as its server has brought it; servers that cannot have it are not waited for."""
    from mooring.cli.hosting import watch
    from mooring.host import runtime_of

    runtime = runtime_of(host)
    await watch(host, out, lambda: runtime.arrival(name, options.timeout), timeout=options.timeout)
    tools = host.catalog.tools
    if name in tools:
        return tools[name]
    if (changed := runtime.withheld(name)) is not None:
        raise changed
    near, absent = nearest(name, tools), runtime.absence(name)
    if absent is not None:
        raise UnknownTool(name, near, hint=absent.hint, server=absent.server, state=absent.state)
    raise UnknownTool(name, near, hint="`mooring tools` lists what there is.")


def _document(result: Result) -> dict[str, object]:
    return {
        "server": result.server,
        "tool": result.tool,
        "is_error": result.is_error,
        "text": result.text,
        "structured": result.structured,
        "content": [dict(block) for block in result.content],
        "duration_ms": round(result.duration * 1000, 2),
    }


async def _shown(result: Result, out: Output, host: Host) -> list[str]:
    """The result as lines: laid out on a terminal, the plain text in a pipe."""
    from mooring.core.tokens import dumps

    shown = [await _line(block, host) for block in result.blocks]
    if out.width is None:
        return shown
    if result.structured is not None and result.text == dumps(result.structured):
        shown = [json.dumps(result.structured, indent=2, ensure_ascii=False)]
    return [clean(text) for text in shown]


async def _line(block: Block, host: Host) -> str:
    """A block as text: pictures and sounds are saved and named, links are shown and left alone."""
    if block.text is not None:
        return block.text
    if block.data is not None:
        from mooring.host import runtime_of

        return await runtime_of(host).results.save(block)
    what = clean_line(f"{block.type} {block.mime_type or ''} {block.uri or ''}")
    return f"[{what}]" if block.uri else f"[{what}: --json shows it]"
