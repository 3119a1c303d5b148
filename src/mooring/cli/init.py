"""`mooring init`: write a first configuration file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.errors import ConfigError

USAGE = "mooring init [FILE] [--demo] [options]"
DETAILS = """

Writes a commented file with no servers (with --demo: with the bundled ones),
and says what to type next. The file is approved, because you made it. An
existing file is not changed."""
EXAMPLES = """\
  mooring init
  mooring init mooring.toml
  mooring init --demo && mooring list"""

_TEMPLATES = {
    ".yaml": """\
# MCP servers of this project. `mooring help` lists the commands.
# For completion in editors, run `mooring schema --output mooring.schema.json` and begin this file with
# `# yaml-language-server: $schema=mooring.schema.json`.

servers:{servers}

# discovery: auto          # when models search for tools instead of seeing all of them
# policy:
#   ask: ["@destructive"]  # ask before tools that delete or overwrite
""",
    ".toml": """\
# MCP servers of this project. `mooring help` lists the commands.
# For completion in editors, run `mooring schema --output mooring.schema.json` and begin this file with
# `#:schema ./mooring.schema.json`.

# discovery = "auto"       # when models search for tools instead of seeing all of them

# [policy]
# ask = ["@destructive"]   # ask before tools that delete or overwrite
{servers}""",
    ".json": """\
{{
  "mcpServers": {{{servers}}}
}}
""",
}
_EMPTY = {
    ".yaml": """ {}
#  time:
#    command: uvx
#    args: [mcp-server-time]
#  github:
#    url: https://api.githubcopilot.com/mcp/
#    headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}""",
    ".toml": """
[servers]
# [servers.time]
# command = "uvx"
# args = ["mcp-server-time"]
""",
    ".json": "",
}


def configure(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="default: mooring.yaml in this directory")
    parser.add_argument("--demo", action="store_true", help="add the bundled servers")


async def run(args: Namespace, options: Options, out: Output) -> int:
    path = Path(args.file or (options.config[-1] if options.config else "mooring.yaml"))
    servers = _demo_servers() if args.demo else {}
    _write(path, servers)
    steps = _next(servers, path)
    if options.json:
        out.document({"file": str(path), "servers": list(servers), "next": steps})
    else:
        out.line(f"Wrote {path}. Next:")
        out.lines(f"  {step}" for step in steps)
    return 0


def _write(path: Path, servers: dict[str, list[str]]) -> None:
    from mooring.config.files import save
    from mooring.config.trust_review import approve_entries

    if path.suffix not in _TEMPLATES:
        raise ConfigError("is not a .yaml, .toml or .json file; choose such a name", file=str(path))
    if path.exists():
        raise ConfigError("exists already; add servers with `mooring add NAME -- CMD ARG …`", file=str(path))
    save(path, _text(path.suffix, servers), before=None)
    if servers:
        approve_entries(path.resolve(), list(servers))


def _demo_servers() -> dict[str, list[str]]:
    from mooring import demo

    return {name: list(demo.command(name)) for name in ("notes", "clock")}


def _next(servers: dict[str, list[str]], path: Path) -> list[str]:
    chosen = "" if path.name.startswith("mooring.") and path.parent == Path() else f"--config {path} "
    if servers:
        return [f"mooring {chosen}list", f"mooring {chosen}call mcp_notes_list_notes"]
    return [f"mooring {chosen}add time -- uvx mcp-server-time", f"mooring {chosen}import", "mooring demo"]


def _text(suffix: str, servers: dict[str, list[str]]) -> str:
    import json

    entries: list[str] = []
    for name, (command, *rest) in servers.items():
        quoted, listed = json.dumps(command), json.dumps(rest)
        match suffix:
            case ".yaml":
                entries.append(f"\n  {name}:\n    command: {quoted}\n    args: {listed}")
            case ".toml":
                entries.append(f"\n[servers.{name}]\ncommand = {quoted}\nargs = {listed}\n")
            case _:
                entries.append(f'\n    "{name}": {{"command": {quoted}, "args": {listed}}}')
    joined = (
        (",".join(entries) + "\n  " if suffix == ".json" else "".join(entries)) if entries else _EMPTY[suffix]
    )
    return _TEMPLATES[suffix].format(servers=joined)
