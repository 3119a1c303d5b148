"""From `sys.argv` to an exit code: find the command, run it, and report every failure as one paragraph."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any

from mooring.cli.options import Options, Parser, UsageError, did_you_mean, split_options, wants_json
from mooring.cli.output import Output
from mooring.errors import (
    AuthNeeded,
    CallError,
    ConfigError,
    ConnectError,
    MooringError,
    NotTrusted,
    PolicyDenied,
    ToolChanged,
    UnknownPrompt,
    UnknownResource,
    UnknownServer,
    UnknownTool,
)

_NAMED = re.compile(r"`(mooring [^`\n]{1,200})`")
_FIELDS = ("server", "tool", "file", "place", "suggestions", "url", "outcome")


def error_document(message: str, code: int, problem: BaseException | None = None) -> dict[str, Any]:
    """`{"error": {"kind", "message", "exit_code", "next", ...}}`; what an error knows besides is added.

    Args:
        message: What standard error says.
        code: The exit code.
        problem: The exception; None when the command reported the failure itself.
    """
    kind = "Failed" if problem is None else type(problem).__name__
    if problem is None and code > 128:
        kind, message = "Interrupted", message or "A signal ended the command."
    known = {name: value for name in _FIELDS if (value := getattr(problem, name, None)) not in (None, "", ())}
    return {
        "error": {
            "kind": kind,
            "message": message or "The command failed.",
            "exit_code": code,
            "next": _next(message, problem),
            **known,
        }
    }


def _next(message: str, problem: BaseException | None) -> str | None:
    """The command to try next: the one that the message names, or the usual one for this kind of error."""
    if found := _NAMED.search(message):
        return found[1]
    match problem:
        case AuthNeeded():
            return f"mooring login {problem.server}"
        case NotTrusted():
            return f"mooring trust {problem.file}" if problem.file else "mooring trust"
        case ToolChanged():
            return f"mooring approve {problem.server}/{problem.tool}"
        case UnknownServer():
            return "mooring list"
        case UnknownTool():
            return "mooring tools"
        case UnknownResource():
            return "mooring resources"
        case UnknownPrompt():
            return "mooring prompts"
        case ConfigError() | ConnectError() | CallError():
            return "mooring doctor"
        case _:
            return None


COMMANDS = {
    "list": "Servers and their states",
    "tools": "The merged catalog of all servers",
    "search": "Tools that fit some words",
    "groups": "Bundles of tools, one line each",
    "call": "Call one tool",
    "resources": "What the servers offer to read",
    "read": "Read one resource",
    "prompts": "The prompts of all servers",
    "prompt": "Show one prompt, filled in",
    "ping": "Round trip to each server",
    "login": "Log in to a server",
    "logout": "Forget a login",
    "add": "Try a server and write it into the configuration",
    "remove": "Take a server out of the configuration",
    "enable": "Turn a server on in the configuration",
    "disable": "Turn a server off in the configuration",
    "import": "Take over servers from other programs",
    "export": "Give the servers to another program",
    "lock": "Write down what the servers offer now",
    "check": "Compare the servers with mooring.lock",
    "approve": "Accept what a server changed",
    "trust": "Approve what a project's file would run",
    "cost": "What the tools take of a model's context",
    "eval": "How well the search finds what people meant",
    "watch": "The servers, live",
    "doctor": "What is wrong and what to do next",
    "serve": "The catalog as one MCP server",
    "completion": "Teach your shell what can be typed",
    "demo": "See the main job done on bundled servers",
}
"""Each is a module of this package with `USAGE`, `EXAMPLES`, `configure` and `run`."""

_EXAMPLES = """\
  mooring demo
  mooring --config mcp.json list
  mooring call mcp_time_get_current_time timezone=UTC"""

DONE, FAILED, MISUSED, NEEDS_LOGIN, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a traceback is shown only for MOORING_DEBUG."""
    words = sys.argv[1:] if argv is None else argv
    out = Output(Options(json=wants_json(words)))
    try:
        options, rest = split_options(words)
        out = Output(options)
        code = _dispatch(rest, options, out)
        if code:
            _document_error(out, code)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        out.error("Interrupted: the servers that were started have been ended.", label="")
        _document_error(out, INTERRUPTED)
        return INTERRUPTED
    except Exception as problem:
        if os.environ.get("MOORING_DEBUG"):
            raise
        return _explain(problem, out)
    return code


def exit_code(error: BaseException) -> int:
    """What the shell is told about an error."""
    match error:
        case UsageError() | ConfigError():
            return MISUSED
        case UnknownTool(state="needs-auth"):
            return NEEDS_LOGIN
        case UnknownTool() | UnknownServer() | UnknownResource() | UnknownPrompt():
            return MISUSED
        case AuthNeeded() | PolicyDenied() | NotTrusted():
            return NEEDS_LOGIN
        case _:
            return FAILED


def help_text(command: str | None = None) -> str:
    """The help of one command, or of the whole program; imports no more than that command's module."""
    if command is not None:
        return parser_of(command).format_help()
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name.ljust(width)}  {summary}" for name, summary in COMMANDS.items())
    parser = Parser(
        prog="mooring",
        usage="mooring COMMAND [options]",
        description=f"Many MCP servers, one catalog of tools.\n\ncommands:\n{lines}",
        examples=f"{_EXAMPLES}\n\nHelp on a command: mooring COMMAND --help",
    )
    parser.describe_options()
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser.format_help()


def _dispatch(argv: list[str], options: Options, out: Output) -> int:
    command = next((word for word in argv if not word.startswith("-")), None)
    end = argv.index("--") if "--" in argv else len(argv)
    if {"-h", "--help"} & set(argv[:end]) or not argv:
        out.line(help_text(command if command in COMMANDS else None).rstrip("\n"))
        return DONE
    if argv[0] in ("--version", "-V"):
        return _version(out)
    if argv[0] not in COMMANDS:
        kind = "option" if argv[0].startswith("-") else "command"
        near = did_you_mean(argv[0], [*COMMANDS, "--version", "--help"])
        raise UsageError(f"There is no {kind} {argv[0]!r}.{near} See `mooring --help`.")
    args = parser_of(argv[0]).parse_strictly(argv[1:])

    from mooring.cli.event_loop import run_to_end

    return run_to_end(_module(argv[0]).run(args, options, out))


def parser_of(command: str) -> Parser:
    """What reads the words of one command."""
    module = _module(command)
    parser = Parser(
        prog=f"mooring {command}",
        usage=module.USAGE,
        description=f"{COMMANDS[command]}.{module.DETAILS}",
        examples=module.EXAMPLES,
    )
    module.configure(parser)
    parser.describe_options()
    return parser


def _module(command: str) -> Any:
    # `import` is a word that no module can have as its name.
    return import_module(f"mooring.cli.{command}{'_' if iskeyword(command) else ''}")


def _version(out: Output) -> int:
    from mooring import __version__

    if out.options.json:
        out.document({"version": __version__})
    else:
        out.line(f"mooring {__version__}")
    return DONE


def _explain(problem: BaseException, out: Output) -> int:
    problem = _innermost(problem)
    if isinstance(problem, MooringError):
        out.error(str(problem))
    else:
        out.error(
            f"{type(problem).__name__}: {problem}. This is a defect of mooring: "
            "please report it with what MOORING_DEBUG=1 shows."
        )
    code = exit_code(problem)
    _document_error(out, code, problem)
    return code


def _document_error(out: Output, code: int, problem: BaseException | None = None) -> None:
    """With `--json`, write the error to standard output too, unless the document of the command is there."""
    endless = out.wrote == "lines" and code > 128  # ended by a signal, as such commands are
    if not out.options.json or out.wrote == "document" or endless:
        return

    document = error_document(out.reported, code, problem)
    if out.wrote == "lines":
        out.json_line(document)
    else:
        out.document(document)
    sys.stdout.flush()


def _innermost(problem: BaseException) -> BaseException:
    """The one error inside groups of one; task groups wrap what their bodies raise."""
    nested: Sequence[BaseException] = getattr(problem, "exceptions", ())
    return _innermost(nested[0]) if len(nested) == 1 else problem
