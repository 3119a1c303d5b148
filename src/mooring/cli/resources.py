"""`mooring resources` and `mooring read`: resources and templates of the servers."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output, by_server, fields
from mooring.core.text import clean, clean_line, without_controls

if TYPE_CHECKING:
    from mooring.core.types import Block, Contents

USAGE = "mooring resources [--server S] [options]"
DETAILS = """

Lists the resources of every server, or of one. A template such as
`memo:///{id}` stands for all URIs that match it."""
EXAMPLES = """\
  mooring resources
  mooring resources --server files
  mooring resources --json | jq -r '.resources[].uri'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--server", metavar="S", help="only this server")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import listed, open_host, report_failed

    named = [args.server] if args.server else []
    async with open_host(options, out, servers=named, idle=bool(named)) as host:
        found = await listed(host, out, host.resources, args.server, options.timeout)
        report_failed(found.errors, out)
    if options.json:
        about = ("server", "name", "title", "description", "mime_type")
        resources = [fields(entry, "uri", *about, "size") for entry in found.resources]
        templates = [fields(entry, "uri_template", *about) for entry in found.templates]
        out.document({"resources": resources, "templates": templates, "errors": dict(found.errors)})
    else:
        rows = [(r.server, r.uri, r.description or r.title or r.name) for r in found.resources]
        rows += [(t.server, t.uri_template, t.description or t.title or t.name) for t in found.templates]
        out.lines(by_server([tuple(map(clean_line, row)) for row in rows], out.width, out.paint))
        if not rows and not found.errors and host.config.servers:
            out.note(f"{args.server} has no resources." if args.server else "No server has resources.")
    return int(args.server in found.errors)


class ReadCommand:
    """The command `mooring read`."""

    USAGE = "mooring read URI [--server S] [--output FILE] [options]"
    DETAILS = """

Without --server, mooring finds the server that lists the URI or has a template
for it. Text goes to standard output, with control characters other than
newline and tab written as \\x1b. Binary content is written to a pipe unchanged,
and never to a terminal. --output FILE writes the content exactly as sent."""
    EXAMPLES = """\
  mooring read memo:///shopping
  mooring read file:///notes.md --server files | less
  mooring read img:///logo --output logo.png"""

    @staticmethod
    def configure(parser: Parser) -> None:
        parser.add_argument("uri", metavar="URI", help="a URI from `mooring resources`, or of a template")
        parser.add_argument("--server", metavar="S", help="name of the server")
        parser.add_argument("--output", metavar="FILE", help="write the content to this file")

    @staticmethod
    async def run(args: Namespace, options: Options, out: Output) -> int:
        from mooring.cli.ask import elicitation_handler
        from mooring.cli.hosting import open_host

        named = [args.server] if args.server else []
        async with open_host(
            options, out, servers=named, idle=True, on_elicit=elicitation_handler(out)
        ) as host:
            contents = await host.read(args.uri, args.server, timeout=options.timeout)
        if args.output:
            _save(contents, Path(args.output), out)
        elif options.json:
            out.document(_contents_document(contents))
        elif contents.is_binary and out.width is not None:
            raise UsageError(
                f"{contents.uri} is binary ({_summary(contents)}). "
                "Write it to a file with `--output FILE`, or to a pipe."
            )
        elif out.width is not None:
            out.line(clean(contents.text))
        else:
            shown = contents.data if contents.is_binary else _encoded(without_controls(contents.text))
            sys.stdout.flush()
            sys.stdout.buffer.write(shown)
            sys.stdout.buffer.flush()
        return 0


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _save(contents: Contents, file: Path, out: Output) -> None:
    data = contents.data if contents.is_binary else _encoded(contents.text)
    try:
        file.write_bytes(data)
    except OSError as problem:
        raise UsageError(f"Cannot write {str(file)!r}: {problem.strerror or problem}.") from None
    out.note(f"Wrote {len(data):,} bytes to {file}.")


def _contents_document(contents: Contents) -> dict[str, Any]:
    return {
        "uri": contents.uri,
        "server": contents.server,
        "contents": [_piece(block) for block in contents.blocks],
    }


def _piece(block: Block) -> dict[str, Any]:
    held = {"text": block.text} if block.text is not None else {"blob": block.data}
    return {"uri": block.uri, "mime_type": block.mime_type, **held}


def _summary(contents: Contents) -> str:
    kinds = sorted({block.mime_type or "unknown type" for block in contents.blocks})
    return clean_line(f"{', '.join(kinds)}, {len(contents.data):,} bytes")
