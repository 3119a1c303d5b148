"""`mooring add`: test a server, then add it to the configuration."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError, add_scope, pair
from mooring.cli.output import Output, fields, plural
from mooring.core.text import clean, clean_line
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.edit.target import EditTarget
    from mooring.core.types import ServerStatus

USAGE = "mooring add NAME [--url U | -- CMD ARG …] [options]"
DETAILS = """

Connects to the server, lists its tools, then writes the entry: into the file
named with --config, else the project's, else the user's. Comments and order
of the file stay, and the old text is saved as a backup. A server that cannot
be reached is not written; one that needs a login is.

Do not write secrets: use '${NAME}', in quotes, and set NAME in the environment."""
EXAMPLES = """\
  mooring add time -- uvx mcp-server-time
  mooring add github --url https://api.githubcopilot.com/mcp/ \\
      --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  mooring add db --env 'DB_PASSWORD=${DB_PASSWORD}' --scope user -- db-mcp"""

_SHOWN = 8
"""Number of tools that are listed by name."""


def configure(parser: Parser) -> None:
    parser.takes_command("command")
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the server")
    add("--url", metavar="U", help="URL of a remote server")
    add("--env", metavar="K=V", action="append", default=[], help="environment variable; repeatable")
    add("--header", metavar="'K: V'", action="append", default=[], help="HTTP header; repeatable")
    add(
        "--transport",
        choices=["stdio", "http", "streamable-http", "sse"],
        help="transport, if the URL does not determine it",
    )
    add("--cwd", metavar="DIR", help="working directory of the program")
    add("--no-probe", action="store_true", help="add it without testing it")
    add("--force", action="store_true", help="replace a server with the same name")
    add_scope(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.editing import entry_document, wrote
    from mooring.config.edit.target import open_target
    from mooring.config.edit.text import canonical_entry, find, put_entry
    from mooring.config.trust_review import approve_entries

    target = open_target(options.files, args.scope)
    fields = _fields(args)
    entry = canonical_entry({**fields, "name": args.name})
    if find(target.data, args.name) is not None and not args.force:
        raise ConfigError(
            f"already has a server {args.name!r}; choose another name, or use --force to replace it",
            file=str(target.path),
        )
    _warn_similar_name(args.name, target, out)
    _warn_secrets(fields, target, out)
    text = target.changed([put_entry(target.data, args.name, entry, own=target.found.own)])
    status, tools = (None, ()) if args.no_probe else await _probe(args.name, fields, target, options, out)
    failed = status is not None and status.state not in ("connected", "needs-auth")
    backup = None if failed else target.save(text)
    if not failed and target.found.scope == "project":
        approve_entries(target.path, [args.name])
    if options.json:
        document = entry_document(args.name, entry, target)
        out.document({**document, "written": not failed, "probe": _document(status, tools)})
    elif status is not None:
        out.lines(_lines(status, tools, out))
    if failed:
        out.error(
            f"{args.name} was not added to {target.path}. Fix the server, or add it anyway with --no-probe."
        )
        return 1
    if status is not None and status.state == "needs-auth":
        out.note(f"{args.name} needs a login before its tools can be used: `mooring login {args.name}`.")
    wrote(f"Added {args.name} to", target, backup, out)
    return 0


def _fields(args: Namespace) -> dict[str, Any]:
    from mooring.config.models import ServerConfig

    if bool(args.url) == bool(args.command):
        raise UsageError(
            f"Use either --url, or a program after `--`: mooring add {args.name} -- uvx mcp-server-time."
        )
    fields: dict[str, Any] = {"url": args.url} if args.url else {"command": args.command[0]}
    if args.command[1:]:
        fields["args"] = args.command[1:]
    if args.env:
        fields["env"] = dict(pair(word, "=", "--env", "NAME=value") for word in args.env)
    if args.header:
        fields["headers"] = dict(pair(word, ":", "--header", "'Name: value'") for word in args.header)
    for word, excluded in (("env", args.url), ("cwd", args.url), ("header", args.command)):
        if excluded and getattr(args, word):
            raise UsageError(f"--{word} cannot be used with {'--url' if args.url else 'a program'}.")
    fields |= {word: getattr(args, word) for word in ("cwd", "transport") if getattr(args, word)}
    ServerConfig(name=args.name, **fields)
    return fields


def _warn_similar_name(name: str, target: EditTarget, out: Output) -> None:
    from mooring.config.formats import read_shape
    from mooring.core.names import look_alikes

    others = [other for other in read_shape(target.data, own=target.found.own).servers if other != name]
    for other, _ in look_alikes([*others, name]):
        out.warning(f"The name {name!r} looks like {other!r} in {target.path}. Consider another name.")


def _warn_secrets(fields: dict[str, Any], target: EditTarget, out: Output) -> None:
    from mooring.config.programs.model import Vault

    _, notes = Vault().scrub("secret", fields)
    for note in notes:
        place = note.partition(" held ")[0]
        out.warning(
            f"{place} looks like a secret. It is stored in {target.path} and in your shell history. "
            "Write '${NAME}' instead and set NAME in the environment."
        )


async def _probe(
    name: str, fields: dict[str, Any], target: EditTarget, options: Options, out: Output
) -> tuple[ServerStatus, tuple[str, ...]]:
    """Connect to the server; return its status and the names of its tools."""
    from mooring.cli.hosting import log_to_stderr, watch
    from mooring.config.models import ConfigSource, ServerConfig
    from mooring.host import Host
    from mooring.transport.forwarding import ClientBridge

    log_to_stderr(options.verbose)
    source = ConfigSource(file=str(target.path), scope=target.found.scope)
    # The user typed the command, which approves it.
    server = ServerConfig(name=name, source=source, **fields)
    async with Host([server], lock=False, trust=True, relay=ClientBridge()) as host:
        await watch(host, out, host.ready, timeout=options.timeout)
        own = {tool.remote_name for tool in host.provider(name).snapshot.tools}  # not prompts shown as tools
        shown = (tool for tool in host.catalog.tools.values() if tool.server == name)
        tools = tuple(tool.remote_name for tool in shown if tool.remote_name in own)
        return host.status()[0], tools


def _document(status: ServerStatus | None, tools: tuple[str, ...]) -> dict[str, Any] | None:
    if status is None:
        return None
    about = fields(status, "state", "transport", "protocol", "resources", "prompts", "error")
    return {**about, "tools": list(tools)}


def _lines(status: ServerStatus, tools: tuple[str, ...], out: Output) -> list[str]:
    from mooring.cli.output import wrap
    from mooring.cli.progress import SYMBOLS

    symbol, style = SYMBOLS[status.state]
    name = f"{clean_line(status.name)}: {status.state}"
    if status.state != "connected":
        return [
            f"{out.paint(symbol, style)} {name}",
            *wrap(clean(status.error or ""), out.width, indent="    "),
        ]
    counts = [
        plural(status.tools, "tool"),
        plural(status.resources, "resource"),
        plural(status.prompts, "prompt"),
    ]
    about = f"{name}, protocol {clean_line(status.protocol or 'unknown')}, {', '.join(counts)}"
    first, *rest = wrap(about, out.width, indent="    ")
    named = [clean_line(tool) for tool in tools[:_SHOWN]]
    more = [f"and {len(tools) - _SHOWN} more"] if len(tools) > _SHOWN else []
    head = f"{out.paint(symbol, style)} {first.lstrip()}"
    return [head, *rest, *wrap(", ".join([*named, *more]), out.width, indent="    ")]
