"""`mooring prompt`: show one prompt with its arguments filled in."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output
from mooring.core.text import clean, nearest
from mooring.errors import UnknownPrompt

if TYPE_CHECKING:
    from mooring.core.types import Message, Prompt
    from mooring.host import Host

USAGE = "mooring prompt SERVER NAME [key=value ...] [options]"
DETAILS = """

Shows the messages of the prompt, each under its role. All arguments are text."""
EXAMPLES = """\
  mooring prompt files summarise path=a.md
  mooring prompt files summarise path=a.md --json | jq '.messages'"""


def configure(parser: Parser) -> None:
    parser.add_argument("server", metavar="SERVER", help="name of the server")
    parser.add_argument("name", metavar="NAME", help="name, as `mooring prompts` shows it")
    parser.add_argument("arguments", metavar="key=value", nargs="*", help="arguments of the prompt")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.ask import elicitation_handler
    from mooring.cli.hosting import open_host
    from mooring.core.builtin_tools import fitting

    arguments = _arguments(args.arguments)
    async with open_host(
        options, out, servers=[args.server], idle=True, on_elicit=elicitation_handler(out)
    ) as host:
        prompt = await _find(host, args.server, args.name, options.timeout)
        try:
            fitting(prompt, arguments)
        except ValueError as problem:
            raise UsageError(f"Wrong arguments for the prompt {args.name!r}: {problem}.") from None
        messages = await host.prompt(args.server, args.name, arguments, timeout=options.timeout)
    if options.json:
        shown = [{"role": message.role, "content": dict(message.block.raw)} for message in messages]
        out.document({"server": args.server, "name": args.name, "messages": shown})
    else:
        out.lines(_shown(messages, out))
    return 0


def _arguments(words: Sequence[str]) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key:
            raise UsageError(f"{word!r} is not an argument: write key=value.")
        arguments[key] = text
    return arguments


async def _find(host: Host, server: str, name: str, timeout: float | None) -> Prompt:
    from mooring.errors import ConnectError

    found = await host.prompts(server, timeout=timeout)
    for prompt in found.prompts:
        if prompt.name == name:
            return prompt
    if server in found.errors:
        raise ConnectError(f"The prompts of {server} cannot be listed: {found.errors[server]}", server=server)
    names = [prompt.name for prompt in found.prompts]
    raise UnknownPrompt(name, nearest(name, names), hint=f"`mooring prompts --server {server}` lists them.")


def _shown(messages: Sequence[Message], out: Output) -> list[str]:
    lines: list[str] = []
    for message in messages:
        text = f"[{message.block.type}: --json shows it]" if message.text is None else message.text
        lines.append(out.paint(f"{message.role}:", "bold"))
        lines.append(text if out.width is None else clean(text))
    return lines
