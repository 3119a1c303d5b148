"""`mooring completion`: shell completion of commands, options, servers and tools."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.core.types import Tool

USAGE = "mooring completion bash|zsh|fish [options]"
DETAILS = """

Prints a script that completes commands, options, servers, tools and their
arguments. Completion starts no server: tools come from the lock or the cache."""
EXAMPLES = """\
  mooring completion bash >> ~/.bashrc
  mooring completion zsh > "${fpath[1]}/_mooring"
  mooring completion fish > ~/.config/fish/completions/mooring.fish"""

_SCRIPTS = {
    "bash": """\
_mooring() {
  # Bash splits words at = and : too, and replaces only what follows the last one.
  local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} word before
  local -a words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=${words[${#words[@]}-1]}
  before=${word%"${word##*[=:]}"}
  IFS=$'\\n'
  COMPREPLY=($(mooring completion --words -- "${words[@]:1}" 2>/dev/null))
  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -F _mooring mooring
""",
    "zsh": """\
#compdef mooring
_mooring() {
  local -a found
  found=("${(@f)$(mooring completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ ${found[1]-} == *= ]]; then compadd -S '' -- $found
  elif [[ -n ${found[1]-} ]]; then compadd -- $found
  else _files; fi
}
# Loaded from fpath, this file is the body of the first call.
if [[ ${funcstack[1]-} == _mooring ]]; then _mooring "$@"; else compdef _mooring mooring; fi
""",
    "fish": """\
function __mooring_words
  mooring completion --words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c mooring -a '(__mooring_words)'
""",
}

_SERVERS = frozenset(("remove", "enable", "disable", "approve", "login", "logout", "prompt", "--server"))
"""Commands and options that take the name of a server."""
_SEVERAL = frozenset(("ping", "logs"))
"""Commands that take the names of several servers."""
_CATALOG = frozenset(("call", "tool", "read", "prompt", "skill", "approve"))
"""Commands whose further arguments come from the catalog."""


def configure(parser: Parser) -> None:
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=list(_SCRIPTS), help="bash, zsh or fish")
    parser.add_argument("--words", action="store_true", help="print completions of the words after --")
    parser.takes_command("typed")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.options import UsageError

    if args.words:
        typed = list(args.typed) or [""]
        with suppress(MooringError):  # no error messages while the user types
            out.lines(await _candidates(typed))
        return 0
    if args.shell is None:
        raise UsageError("Name a shell: bash, zsh or fish, as in `mooring completion bash`.")
    if options.json:
        out.document({"shell": args.shell, "script": _SCRIPTS[args.shell]})
    else:
        out.lines(_SCRIPTS[args.shell].splitlines())
    return 0


async def _candidates(typed: Sequence[str]) -> list[str]:
    """Completions of the last word."""
    from mooring.cli.app import COMMANDS
    from mooring.cli.options import split_options

    *before, start = typed
    options, rest = split_options(before[:-1] if before[-1:] == ["--config"] else before)
    command = rest[0] if rest and rest[0] in COMMANDS else None
    if before[-1:] == ["--config"]:
        found: Sequence[str] = ()  # the shell completes files
    elif start.startswith("-"):
        found = _options_of(command)
    elif command is None:
        found = list(COMMANDS)
    elif before[-1] in _SERVERS and not (command == "approve" and "/" in start):
        found = _servers(options)
    elif command in _SEVERAL:
        found = [name for name in _servers(options) if name not in rest[1:]]
    elif (choices := _choices(command, before[-1])) is not None:
        found = choices
    elif command == "token":
        found = _tokens(options, before[-1], rest[1:])
    elif command in _CATALOG:
        found = await _from_catalog(options, command, rest[1:], start)
    else:
        found = _fixed(command, rest[1:])
    return [word for word in found if word.startswith(start)]


def _fixed(command: str, words: Sequence[str]) -> Sequence[str]:
    """Values of an argument that do not depend on the configuration."""
    from mooring.cli.app import COMMANDS

    if [word for word in words if not word.startswith("-")]:
        return ()
    match command:
        case "help":
            return list(COMMANDS)
        case "explain":
            from mooring.cli.explain import explanations

            return list(explanations())
        case "import" | "export":
            from mooring.config.programs.table import PROGRAMS, WRITABLE

            return sorted(PROGRAMS if command == "import" else (one.name for one in WRITABLE))
        case _:
            return ()


def _options_of(command: str | None) -> list[str]:
    import re

    from mooring.cli.app import help_text

    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_text(command))))


def _choices(command: str, option: str) -> list[str] | None:
    """The choices of an option; None if it has none."""
    from mooring.cli.app import parser_of

    parser: Any = parser_of(command)
    for action in parser._actions:
        named = option in action.option_strings or (not action.option_strings and option == command)
        if named and action.choices:
            return [str(choice) for choice in action.choices]
    return None


def _servers(options: Options) -> list[str]:
    from mooring.config import load

    return sorted(server.name for server in load(options.files).servers)


def _tokens(options: Options, last: str, words: Sequence[str]) -> list[str]:
    """The profiles of the gateway, the scopes in use, or the tokens that can be replaced or ended."""
    from mooring.config import load
    from mooring.gateway.admin import SCOPE
    from mooring.gateway.tokens import TokenFile, token_path

    gateway = load(options.files).gateway
    if last == "--profile":
        return list(gateway.profiles)
    stored = TokenFile(token_path(gateway)).read()
    if last == "--scope":
        return sorted({SCOPE, *(scope for entry in stored for scope in entry.scopes)})
    if last not in ("rotate", "revoke"):
        return []
    return sorted(entry.name for entry in stored if entry.revoked is None)


async def _from_catalog(options: Options, command: str, words: Sequence[str], start: str) -> list[str]:
    """Names in the catalog or, after the tool of `call`, its arguments and their values."""
    from dataclasses import replace

    from mooring.cli.hosting import open_host
    from mooring.host import runtime_of

    silent = Output(replace(options, quiet=True))
    async with open_host(options, silent, idle=True) as host:
        catalog = host.catalog
        lock = runtime_of(host).builder.pins.lock
    names = [word for word in words if not word.startswith("-")]
    match command:
        case "call" if names:
            return _arguments(catalog.tools[names[0]], names[1:], start) if names[0] in catalog.tools else []
        case "prompt" if names:
            own = {one.name: one for one in catalog.prompts if one.server == names[0]}
            if not names[1:]:
                return list(own)
            typed = {word.partition("=")[0] for word in names[2:]}
            known = own[names[1]].arguments if names[1] in own else ()
            return [f"{one['name']}=" for one in known if one["name"] not in typed]
        case _ if names:
            return []
        case "read":
            pins = () if lock is None else lock.servers.values()
            listed = [one.uri for pin in pins for one in pin.snapshot.resources]
            return [*listed, *(one.uri_template.partition("{")[0] for one in catalog.templates)]
        case "skill":
            return [skill.name for skill in catalog.skills]
        case "approve":
            return [f"{tool.server}/{tool.remote_name}" for tool in catalog.tools.values()]
        case _:
            return list(catalog.tools)


def _arguments(tool: Tool, words: Sequence[str], start: str) -> list[str]:
    from mooring.cli.arguments import names_of

    name, given, _ = start.partition("=")
    if given:
        return [f"{name}={value}" for value in _values(tool, name)]
    typed = {word.partition("=")[0].rstrip(":") for word in words}
    return [f"{name}=" for name in names_of(tool.input_schema) if name not in typed]


def _values(tool: Tool, name: str) -> list[str]:
    """The values that the schema of an argument lists."""
    about = _mapping(_mapping(tool.input_schema.get("properties")).get(name))
    listed = about.get("enum", [True, False] if about.get("type") == "boolean" else [])
    if not isinstance(listed, list):
        return []
    values = cast("list[Any]", listed)[:100]
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
