"""`mooring prompts` and `mooring prompt`: prompts of the servers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output, by_server, fields
from mooring.core.text import clean, clean_line, nearest
from mooring.errors import UnknownPrompt

if TYPE_CHECKING:
    from mooring.core.types import Message, Prompt
    from mooring.host import Host

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
        if not rows and not found.errors and host.config.servers:
            out.note(f"{args.server} has no prompts." if args.server else "No server has prompts.")
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


class PromptCommand:
    """The command `mooring prompt`."""

    USAGE = "mooring prompt SERVER NAME [key=value ...] [options]"
    DETAILS = """

Shows the messages of the prompt, each under its role. All arguments are text."""
    EXAMPLES = """\
  mooring prompt files summarise path=a.md
  mooring prompt files summarise path=a.md --json | jq '.messages'"""

    @staticmethod
    def configure(parser: Parser) -> None:
        parser.add_argument("server", metavar="SERVER", help="name of the server")
        parser.add_argument("name", metavar="NAME", help="name, as `mooring prompts` shows it")
        parser.add_argument("arguments", metavar="key=value", nargs="*", help="arguments of the prompt")

    @staticmethod
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
    from mooring.errors import AuthNeeded, ConnectError

    found = await host.prompts(server, timeout=timeout)
    for prompt in found.prompts:
        if prompt.name == name:
            return prompt
    if server in found.errors:
        waiting = any(status.name == server and status.state == "needs-auth" for status in host.status())
        error = AuthNeeded if waiting else ConnectError
        raise error(f"The prompts of {server} cannot be listed: {found.errors[server]}", server=server)
    names = [prompt.name for prompt in found.prompts]
    raise UnknownPrompt(name, nearest(name, names), hint=f"`mooring prompts --server {server}` lists them.")


def _shown(messages: Sequence[Message], out: Output) -> list[str]:
    lines: list[str] = []
    for message in messages:
        text = f"[{message.block.type}: --json shows it]" if message.text is None else message.text
        lines.append(out.paint(f"{message.role}:", "bold"))
        lines.append(text if out.width is None else clean(text))
    return lines
