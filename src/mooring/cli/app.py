"""Entry point: find the command in `sys.argv`, run it, turn errors into a message and an exit code."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Coroutine, Sequence
from importlib import import_module
from itertools import chain, repeat
from keyword import iskeyword
from typing import Any

from mooring.cli.options import Options, Parser, UsageError, split_options, suggestion, wants_json
from mooring.cli.output import Output, never_block_on_stderr, wrap
from mooring.errors import (
    TELL_USER,
    AuthNeeded,
    ConfigError,
    MooringError,
    NotTrusted,
    PolicyDenied,
    UnknownPrompt,
    UnknownResource,
    UnknownServer,
    UnknownTool,
    next_command,
)

_FIELDS = ("server", "tool", "file", "place", "suggestions", "url", "outcome")


def error_document(message: str, code: int, problem: BaseException | None = None) -> dict[str, Any]:
    """The JSON form of an error: kind, message, exit code, next command, and the attributes in `_FIELDS`.

    Args:
        message: The text on standard error.
        code: The exit code.
        problem: The exception; None when the command reported the failure itself.
    """
    kind = "Failed" if problem is None else type(problem).__name__
    if problem is None and code > 128:
        kind, message = "Interrupted", message or "A signal ended the command."
    details = {
        name: value for name in _FIELDS if (value := getattr(problem, name, None)) not in (None, "", ())
    }
    return {
        "error": {
            "kind": kind,
            "message": message or "The command failed.",
            "exit_code": code,
            "next": next_command(message, problem),
            **details,
        }
    }


COMMANDS = {
    "init": "Write a first configuration file",
    "list": "Servers and their states",
    "tools": "Tools of all servers, in one catalog",
    "tool": "Signature, arguments, origin and cost of one tool",
    "search": "Search the tools",
    "groups": "Groups of tools, one line each",
    "call": "Call one tool",
    "run": "Run a script that calls tools",
    "resources": "Resources of all servers",
    "read": "Read one resource",
    "prompts": "Prompts of all servers",
    "prompt": "Show one prompt with its arguments filled in",
    "skills": "Skills of all servers",
    "skill": "Read one skill",
    "ping": "Round-trip time of each server",
    "login": "Log in to a server",
    "logout": "Remove a stored login",
    "add": "Test a server and add it to the configuration",
    "remove": "Remove a server from the configuration",
    "enable": "Turn a server on in the configuration",
    "disable": "Turn a server off in the configuration",
    "import": "Import servers from other programs",
    "export": "Export servers to another program",
    "lock": "Record the current tools of the servers in mooring.lock",
    "check": "Compare the servers with mooring.lock",
    "cluster": "Show the nodes, owners and leases of a cluster",
    "approve": "Accept the changes of a server",
    "trust": "Approve the servers of a project file",
    "policy": "Test the policy, and try it on a past audit log",
    "cost": "Tokens that the tools take in a prompt",
    "eval": "Measure how well the search finds tools",
    "watch": "Live view of the servers",
    "console": "Web page with servers, tools, calls and approvals",
    "doctor": "Find problems and say what to do next",
    "explain": "What a finding of doctor means and how to solve it",
    "logs": "What the servers wrote to stderr",
    "serve": "Serve the catalog as one MCP server",
    "sessions": "Sessions of a running gateway",
    "token": "Create and revoke tokens of the gateway",
    "schema": "JSON Schema of configuration files, for editors",
    "completion": "Print a completion script for your shell",
    "demo": "Try mooring on bundled servers, without a network",
    "help": "Help on a command",
    "version": "Versions of mooring, Python and the protocol",
}
"""Summaries by name. A command is a module with USAGE, DETAILS, EXAMPLES, `run` and maybe `configure`."""

REMOTE = ("list", "watch", "approve", "sessions", "logs")
"""Commands that work with `--gateway`."""

_HOMES = {
    "check": "lock",
    "disable": "enable",
    "groups": "tools",
    "logout": "login",
    "prompt": "prompts",
    "read": "resources",
    "remove": "enable",
    "search": "tools",
}
"""Commands that are a class in the module of another command, such as `CheckCommand` in lock.py."""

_EXAMPLES = """\
  mooring demo
  mooring --config mcp.json list
  mooring call mcp_time_get_current_time timezone=UTC"""

DONE, FAILED, MISUSED, NEEDS_LOGIN, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a traceback is shown only if MOORING_DEBUG is set."""
    _open_closed_streams()
    words = sys.argv[1:] if argv is None else argv
    out = Output(Options(json=wants_json(words)))
    try:
        options, rest = split_options(words)
        out = Output(options)
        code = _dispatch(rest, options, out)
        if code:
            _document_error(out, code)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _discard_stdout()
        return DONE
    except KeyboardInterrupt:
        started = "mooring.host" in sys.modules  # a command such as `logs` starts no servers
        out.error(f"Interrupted.{' All servers that were started have been stopped.' * started}", label="")
        _document_error(out, INTERRUPTED)
        return INTERRUPTED
    except Exception as problem:
        if os.environ.get("MOORING_DEBUG"):
            raise
        return _explain(problem, out)
    return code


def _open_closed_streams() -> None:
    """Replace standard streams that the caller has closed (`mooring list <&-`), which are None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (until the end)


def exit_code(error: BaseException) -> int:
    """The exit code for an error."""
    match error:
        case UsageError() | ConfigError():
            return MISUSED
        case UnknownTool(state="needs-auth") | UnknownResource(state="needs-auth"):
            return NEEDS_LOGIN
        case UnknownTool(state="failed" | "pending"):
            return FAILED  # the name of a tool names its server; a URI does not
        case UnknownTool() | UnknownServer() | UnknownResource() | UnknownPrompt():
            return MISUSED
        case AuthNeeded() | PolicyDenied() | NotTrusted():
            return NEEDS_LOGIN
        case _:
            return FAILED


def message_of(error: BaseException) -> str:
    """The message of an error for a person, without advice to a model."""
    return str(error).removesuffix(f" {TELL_USER}")


def help_text(command: str | None = None) -> str:
    """The help of one command, or of the whole program; imports only the module of that command."""
    if command is not None:
        return parser_of(command).format_help()
    width = max(map(len, COMMANDS))
    room = max(shutil.get_terminal_size().columns - width - 4, 20)
    lines = "\n".join(
        f"  {start.ljust(width)}  {line}"
        for name, summary in COMMANDS.items()
        for start, line in zip(chain([name], repeat("")), wrap(summary, room), strict=False)
    )
    parser = Parser(
        prog="mooring",
        usage="mooring COMMAND [options]",
        description=f"Use many MCP servers through one catalog of tools.\n\ncommands:\n{lines}",
        examples=f"{_EXAMPLES}\n\nHelp on a command: mooring COMMAND --help",
    )
    parser.describe_options(gateway=True)
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser.format_help()


def show_help(command: str | None, out: Output) -> int:
    """Print the help of one command, or of the whole program."""
    if out.options.json:
        out.document({"command": command, "help": help_text(command)})
    else:
        out.line(help_text(command).rstrip("\n"))
    return DONE


def _dispatch(argv: list[str], options: Options, out: Output) -> int:
    command = next((word for word in argv if not word.startswith("-")), None)
    end = argv.index("--") if "--" in argv else len(argv)
    if {"-h", "--help"} & set(argv[:end]) and _names_tool(argv[:end]):
        return _show_arguments(argv, options, out)
    if not argv or ({"-h", "--help"} & set(argv[:end]) and (command is None or command in COMMANDS)):
        return show_help(command, out)
    if argv[0] in ("--version", "-V"):
        return _version(out)
    if argv[0] not in COMMANDS:
        kind = "option" if argv[0].startswith("-") else "command"
        options_ = re.findall(r"--[a-z][a-z-]*", help_text()) if kind == "option" else []
        near = suggestion(argv[0], options_ or list(COMMANDS))
        raise UsageError(f"Unknown {kind} {argv[0]!r}.{near} See `mooring --help`.")
    if options.gateway is not None and argv[0] not in REMOTE:
        raise UsageError(f"`mooring {argv[0]}` does not work with --gateway. These do: {', '.join(REMOTE)}.")
    if argv[0] in ("serve", "console"):
        never_block_on_stderr()
    serves = argv[0] == "serve"
    if serves and sys.platform != "win32":
        import signal

        # Until it can reload. Not SIG_IGN, which child processes would inherit.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    args = parser_of(argv[0]).parse_strictly(argv[1:])

    return run_to_end(_command(argv[0]).run(args, options, out), hangup=not serves)


def _names_tool(words: Sequence[str]) -> bool:
    """Whether these words are `call TOOL … --help`."""
    return words[:1] == ["call"] and any(not word.startswith("-") for word in words[1:2])


def _show_arguments(argv: list[str], options: Options, out: Output) -> int:
    from mooring.cli.tool import show_arguments

    args = parser_of("call").parse_strictly([word for word in argv[1:] if word not in ("-h", "--help")])
    return run_to_end(show_arguments(args, options, out))


def parser_of(command: str) -> Parser:
    """The argument parser of one command."""
    found = _command(command)
    parser = Parser(
        prog=f"mooring {command}",
        usage=found.USAGE,
        description=f"{COMMANDS[command]}.{found.DETAILS}",
        examples=found.EXAMPLES,
    )
    if hasattr(found, "configure"):
        found.configure(parser)
    parser.describe_options(gateway=command in REMOTE)
    return parser


def _command(name: str) -> Any:
    """The module or class of a command."""
    if name in _HOMES:
        return getattr(import_module(f"mooring.cli.{_HOMES[name]}"), f"{name.capitalize()}Command")
    # A module cannot be named `import`.
    return import_module(f"mooring.cli.{name}{'_' if iskeyword(name) else ''}")


def _version(out: Output) -> int:
    from mooring import __version__

    if out.options.json:
        out.document({"version": __version__})
    else:
        out.line(f"mooring {__version__}")
    return DONE


def _explain(problem: BaseException, out: Output) -> int:
    problem = _innermost(problem)
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        _discard_stdout()
        out.error(f"The output was not written completely: {problem.strerror}.")
        return FAILED
    if isinstance(problem, MooringError):
        out.error(message_of(problem))
    else:
        out.error(
            f"{type(problem).__name__}: {problem}. This is a bug in mooring. "
            "Run the command again with MOORING_DEBUG=1 and report the traceback."
        )
    code = exit_code(problem)
    _document_error(out, code, problem)
    return code


def _discard_stdout() -> None:
    """Drop what is still in the buffer: Python would report the same error again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _document_error(out: Output, code: int, problem: BaseException | None = None) -> None:
    """With `--json`, also write the error to standard output, unless a result was written there."""
    stopped = out.wrote == "lines" and code > 128  # a stream of lines normally ends by a signal
    if not out.options.json or out.wrote == "document" or stopped:
        return

    document = error_document(out.reported, code, problem)
    if out.wrote == "lines":
        out.json_line(document)
    else:
        out.document(document)
    sys.stdout.flush()


def _innermost(problem: BaseException) -> BaseException:
    """The error inside exception groups of one: task groups wrap what their bodies raise."""
    nested: Sequence[BaseException] = getattr(problem, "exceptions", ())
    return _innermost(nested[0]) if len(nested) == 1 else problem


def run_to_end(command: Coroutine[Any, Any, int], *, hangup: bool = True) -> int:
    """Run the command and return its exit code. Ctrl-C, SIGTERM and SIGHUP cancel it; clean-up still runs.

    Without `hangup`, SIGHUP does not cancel it: `mooring serve` reloads its configuration then.
    """
    running = _cancelled_by_signals(command, hangup)
    try:
        import asyncio

        return asyncio.run(running)
    finally:  # Ctrl-C may come before they are awaited
        running.close()
        command.close()


async def _cancelled_by_signals(command: Coroutine[Any, Any, int], hangup: bool) -> int:
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGHUP) if hangup else (signal.SIGTERM,):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await command
    except asyncio.CancelledError:
        if not received:  # Ctrl-C: asyncio turns it into KeyboardInterrupt
            raise
        return 128 + received[0]
