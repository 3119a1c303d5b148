"""`mooring prompts`: the prompts of all servers."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, by_server, fields
from mooring.core.text import clean_line

if TYPE_CHECKING:
    from mooring.core.types import Prompt

USAGE = "mooring prompts [--server S] [options]"
DETAILS = """

Lists each prompt with its arguments; those in brackets are optional. A model
gets a prompt by calling the tool `…_get_prompt_<name>`."""
EXAMPLES = """\
  mooring prompts
  mooring prompts --json | jq -r '.prompts[].name'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only this server")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import listed, open_host, report_failed

    named = [args.server] if args.server else []
    async with open_host(options, out, servers=named, idle=bool(named)) as host:
        found = await listed(host, out, host.prompts, args.server, options.timeout)
        report_failed(found.errors, out)
    if options.json:
        prompts = [_document(prompt) for prompt in found.prompts]
        out.document({"prompts": prompts, "errors": dict(found.errors)})
    else:
        rows = [(p.server, _signature(p), p.description or p.title or "") for p in found.prompts]
        out.lines(by_server([tuple(map(clean_line, row)) for row in rows], out.width, out.paint))
    return int(args.server in found.errors)


def _signature(prompt: Prompt) -> str:
    arguments = [
        argument["name"] if argument.get("required") is True else f"[{argument['name']}]"
        for argument in prompt.arguments
    ]
    return " ".join((prompt.name, *arguments))


def _document(prompt: Prompt) -> dict[str, Any]:
    arguments = [
        {
            "name": argument["name"],
            "description": argument.get("description"),
            "required": argument.get("required") is True,
        }
        for argument in prompt.arguments
    ]
    return {**fields(prompt, "name", "server", "title", "description"), "arguments": arguments}
