"""`mooring enable`, `disable` and `remove`: change the entry of one server in the configuration."""

from __future__ import annotations

from argparse import Namespace

from mooring.cli.options import Options, Parser, add_scope
from mooring.cli.output import Output

USAGE = "mooring enable NAME [options]"
DETAILS = """

Changes the entry in the file that defines the server. Does not start it."""
EXAMPLES = """\
  mooring enable github"""


def configure(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the server")
    add_scope(parser)


async def run(args: Namespace, options: Options, out: Output) -> int:
    return await _switch(args, options, out, on=True)


class DisableCommand:
    """The command `mooring disable`."""

    USAGE = "mooring disable NAME [options]"
    DETAILS = """

Changes the entry in the file that defines the server. The entry stays, and
the server is listed as disabled."""
    EXAMPLES = """\
  mooring disable github"""
    configure = staticmethod(configure)

    @staticmethod
    async def run(args: Namespace, options: Options, out: Output) -> int:
        return await _switch(args, options, out, on=False)


class RemoveCommand:
    """The command `mooring remove`."""

    USAGE = "mooring remove NAME [options]"
    DETAILS = """

Removes the entry from the file that defines it; of several files, from the one
that takes effect. The rest of the file stays, and a backup is written."""
    EXAMPLES = """\
  mooring remove github
  mooring remove github --scope user"""
    configure = staticmethod(configure)

    @staticmethod
    async def run(args: Namespace, options: Options, out: Output) -> int:
        from mooring.cli.editing import entry_document, wrote
        from mooring.config.edit.target import find_entry
        from mooring.config.edit.text import Drop
        from mooring.errors import UnknownServer

        target, place = find_entry(options.files, args.scope, args.name)
        backup = target.save(target.changed([Drop(path=place.path)]))
        if options.json:
            out.document(entry_document(args.name, place.entry, target))
        wrote(f"Removed {args.name} from", target, backup, out)
        try:
            other, _ = find_entry(options.files, None, args.name)
        except UnknownServer:
            return 0
        out.note(f"{args.name} is also defined in {other.path}: that entry takes effect now.")
        return 0


async def _switch(args: Namespace, options: Options, out: Output, *, on: bool) -> int:
    from mooring.cli.editing import entry_document, short, wrote
    from mooring.config.edit.target import find_entry
    from mooring.config.edit.text import switch
    from mooring.config.formats import server_fields

    target, place = find_entry(options.files, args.scope, args.name)
    word = "enabled" if on else "disabled"
    already = bool(server_fields(place.entry, own=False).fields.get("disabled")) != on
    if not already:
        backup = target.save(target.changed([switch(place, on=on)]))
        wrote(f"{word.capitalize()} {args.name} in", target, backup, out)
    else:
        out.note(f"{args.name} is already {word} in {short(target.path)}.")
    if options.json:
        entry = {key: value for key, value in place.entry.items() if key not in ("enabled", "active")}
        out.document(entry_document(args.name, {**entry, "disabled": not on}, target))
    if on:
        _warn_still_off(args.name, options, out)
    return 0


def _warn_still_off(name: str, options: Options, out: Output) -> None:
    from mooring.config import load
    from mooring.config.trust import Approval

    files = options.files
    config = load(files, approval=lambda file: Approval(everything=True))
    if not config.enabled:
        out.warning("All servers are off, because `enabled` is false in the settings.")
    elif config.enabled_servers is not None and name not in config.enabled_servers:
        out.warning(f"{name} stays off, because `enabled_servers` does not list it.")
