"""`mooring schema`: the JSON Schema of configuration files."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from mooring.cli.options import Options, Parser, UsageError
from mooring.cli.output import Output

USAGE = "mooring schema [--output FILE] [options]"
DETAILS = """

Editors use it to complete and check settings. In JSON, name the file as
"$schema"; in YAML, begin with the line
`# yaml-language-server: $schema=mooring.schema.json`; in TOML, with
`#:schema ./mooring.schema.json`."""
EXAMPLES = """\
  mooring schema --output mooring.schema.json
  mooring schema | jq '.definitions.ServerConfig.properties | keys'"""


def configure(parser: Parser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write it to FILE instead of standard output")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.config.reference import json_schema

    schema = json_schema()
    if args.output is None:
        out.document(schema)
        return 0
    path = Path(args.output)
    _write(path, schema)
    if options.json:
        out.document({"file": str(path)})
    else:
        out.note(f"Wrote {path}.")
    return 0


def _write(path: Path, schema: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}.") from None
