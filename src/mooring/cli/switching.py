"""A server turned on or off in the configuration: what `enable` and `disable` have in common."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output

__all__ = ["add_scope", "configure", "switch_server"]


def add_scope(parser: Parser) -> None:
    parser.add_argument(
        "--scope", choices=["project", "user"], help="which file; else --config, the project's or the user's"
    )


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="the server")
    add_scope(parser)


async def switch_server(args: Namespace, options: Options, out: Output, *, on: bool) -> int:
    from mooring.cli.editing import entry_document, holder, short, wrote
    from mooring.config.edit.text import switch
    from mooring.config.formats import server_fields

    target, place = holder(options, args.scope, args.name)
    word = "enabled" if on else "disabled"
    already = bool(server_fields(place.entry, own=False).fields.get("disabled")) != on
    if not already:
        backup = target.save(target.changed([switch(place, on=on)]))
        wrote(f"{word.capitalize()} {args.name} in", target, backup, out)
    else:
        out.note(f"{args.name} is {word} already in {short(target.path)}.")
    if options.json:
        entry = {key: value for key, value in place.entry.items() if key not in ("enabled", "active")}
        out.document(entry_document(args.name, {**entry, "disabled": not on}, target))
    if on:
        _check_allowed(args.name, options, out)
    return 0


def _check_allowed(name: str, options: Options, out: Output) -> None:
    from pathlib import Path

    from mooring.config import load
    from mooring.config.approvals import Approval

    files = [Path(file) for file in options.config] or None
    config = load(files, approval=lambda file: Approval(everything=True))
    if not config.enabled:
        out.warning("All servers are off: `enabled` is false in the settings.")
    elif config.enabled_servers is not None and name not in config.enabled_servers:
        out.warning(f"{name} stays off: `enabled_servers` does not name it.")
