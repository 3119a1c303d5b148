"""`mooring call`: call one tool."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, add_one_off, add_style
from mooring.cli.output import Output
from mooring.core.text import clean, clean_line

if TYPE_CHECKING:
    from mooring.core.types import Block, Result
    from mooring.host import Host
    from mooring.policy import ApprovalRequest

USAGE = "mooring call TOOL [key=value ...] [--yes] [--url U | -- CMD] [options]"
DETAILS = """

A value is converted to the type in the tool's schema; `key:=json` is always
JSON. `key=@file` reads the value from a file, `key=@-` from standard input. On
a terminal, mooring asks for missing required arguments. The result goes to
standard output. An error of the tool goes to standard error, with exit code
1. Control characters in text, such as terminal escapes, are written as \\x1b;
`--json` keeps them. Ctrl-C cancels the call at the server. Elicitations of the
server are asked on a terminal, and declined elsewhere.

`mooring call TOOL --help` shows the arguments of the tool. A server that is in
no file is named with `--url U`, or with its program after `--`.

If the policy requires approval for the tool, mooring asks on the terminal.
Exit code 3: the call was not approved, or the policy denies it."""
EXAMPLES = """\
  mooring call mcp_time_get_current_time timezone=UTC
  mooring call mcp_files_read_file path=README.md > copy.md
  mooring call mcp_db_query sql=@report.sql limit=10 options:='{"raw": true}'
  echo '{"path": "."}' | mooring call mcp_files_list_directory --args -
  mooring call echo message=hi -- npx -y @modelcontextprotocol/server-everything"""


def configure(parser: Parser) -> None:
    parser.add_argument("tool", metavar="TOOL", help="name, as `mooring tools` shows it")
    parser.add_argument("arguments", metavar="key=value", nargs="*", help="arguments of the tool")
    parser.add_argument(
        "--args", metavar="JSON", help="all arguments as a JSON object; - reads standard input"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="approve the call without asking")
    add_style(parser)
    add_one_off(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    import asyncio

    from mooring.cli.app import exit_code, message_of
    from mooring.cli.arguments import read_arguments, read_stdin
    from mooring.cli.ask import elicitation_handler
    from mooring.cli.hosting import find_tool, one_off_server, open_host
    from mooring.cli.progress import progress_bar

    document = await read_stdin("--args", "the arguments as JSON", out) if args.args == "-" else args.args

    declined = False

    async def approve(request: ApprovalRequest) -> bool:
        nonlocal declined
        declined = not (args.yes or await _approved(request, out))
        return not declined

    async with open_host(
        options,
        out,
        style=args.style,
        idle=True,
        on_approval=approve,
        on_elicit=elicitation_handler(out),
        one_off=one_off_server(args),
    ) as host:
        tool = await find_tool(host, args.tool, options, out)
        arguments = await read_arguments(args.arguments, document, tool, out)

        try:
            with progress_bar(out) as bar:
                # The budget limits results for models; a person gets the whole result.
                result = await host.call(
                    tool.name, arguments, timeout=options.timeout, on_progress=bar, budget=0
                )
        except asyncio.CancelledError:
            out.error(
                f"{tool.name} was cancelled, and a cancellation was sent to server {tool.server!r}.", label=""
            )
            raise
        shown = [] if options.json or result.is_error else await _shown(result, out, host)
        if result.is_error and not options.json and not declined:
            text = message_of(result.error) if result.error else result.text
            out.error(text or f"{tool.name} failed without an error message.")
    if options.json:
        out.document(_document(result))
    else:
        out.lines(shown)
    return exit_code(result.error) if result.error else int(result.is_error)


async def _approved(request: ApprovalRequest, out: Output) -> bool:
    from mooring.cli.ask import confirm, on_terminal

    if not on_terminal():
        out.error(
            f"{request.name!r} was not called: approval is required ({request.reason}). "
            "There is no terminal to ask on: review the arguments, then use --yes."
        )
        return False
    title = f" ({request.title})" if request.title else ""
    arguments = json.dumps(dict(request.arguments), ensure_ascii=False)
    question = f"Call {request.tool!r}{title} of server {request.server!r} with {arguments}?"
    return await confirm(
        f"{question} Approval is required: {request.reason}.", "The tool was not called.", out
    )


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
    """The result as lines: formatted for a terminal, with images if it draws them; text in a pipe."""
    from mooring.cli.terminal import has_links, image_protocol, linked, picture
    from mooring.core.text import dumps

    shown = [await _line(block, host) for block in result.blocks]
    if out.width is None:
        return shown
    if result.structured is not None and result.text == dumps(result.structured):
        shown = [json.dumps(result.structured, indent=2, ensure_ascii=False)]
    lines = [clean(text) for text in shown]
    if has_links():
        lines = [linked(text) for text in lines]
    drawing = image_protocol()
    pictures = [picture(block.data, block.mime_type, drawing) for block in result.blocks if block.data]
    return [*(drawn for drawn in pictures if drawn), *lines]


async def _line(block: Block, host: Host) -> str:
    """A block as text: images and audio are saved to a file, links are not followed."""
    if block.text is not None:
        return block.text
    if block.data is not None:
        from mooring.host import runtime_of

        return await runtime_of(host).results.save(block)
    what = clean_line(f"{block.type} {block.mime_type or ''} {block.uri or ''}")
    return f"[{what}]" if block.uri else f"[{what}: --json shows it]"
