"""Command line options that every command takes, and the argument parser."""

from __future__ import annotations

import argparse
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mooring.core.text import nearest
from mooring.errors import MooringError


class UsageError(MooringError):
    """The command line is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that every command takes."""

    config: tuple[str, ...] = ()
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    timeout: float | None = None
    no_lock: bool = False
    gateway: str | None = None
    """URL of a running gateway that the command asks instead of the servers."""

    @property
    def files(self) -> list[Path] | None:
        """The files of `--config`; None if there are none, so that the usual places are searched."""
        return [Path(file) for file in self.config] or None


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises `UsageError` instead of exiting, and suggests the nearest option."""

    def __init__(self, *, prog: str, usage: str, description: str, examples: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=_formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._command: str | None = None
        self._command_expected = False

    def takes_command(self, name: str, *, expected: bool = True) -> None:
        """Store the words after `--` under `name`, unparsed: a program and its arguments.

        `expected`: other words are probably such a program, written without `--`.
        """
        self._command, self._command_expected = name, expected

    def error(self, message: str) -> NoReturn:
        message = message.replace(", key=value", "")  # optional, which argparse does not know
        for pattern, plain in _PLAIN:
            message = pattern.sub(plain, message)
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Report a value that is not among the choices, with the nearest of them."""
        if action.choices is None or value in action.choices:
            return
        name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        known = [str(choice) for choice in action.choices]
        allowed = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) > 1 else known[0]
        raise UsageError(
            f"{name} must be {allowed}, not {str(value)!r}."
            f"{suggestion(str(value), known)} See `{self.prog} --help`."
        )

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments; an unknown one is an error that names the nearest option."""
        command: list[str] = []
        if self._command is not None and "--" in argv:
            end = argv.index("--")
            argv, command = argv[:end], [*argv[end + 1 :]]
        args, rest = self.parse_known_args(argv)
        if self._command is not None:
            setattr(args, self._command, command)
            if rest and not command and self._command_expected:
                raise UsageError(f"Write the program and its arguments after `--`. See `{self.prog} --help`.")
        if rest:
            word = rest[0].partition("=")[0] if rest[0].startswith("--") else rest[0]
            known = re.findall(r"--[a-z][a-z-]*", self.format_help())
            near = self._as_key_value(word, argv, known) or suggestion(word, known)
            kind = "option" if word.startswith("-") else "argument"
            raise UsageError(f"Unknown {kind} {word!r}.{near} See `{self.prog} --help`.")
        return args

    def _as_key_value(self, option: str, argv: Sequence[str], known: Sequence[str]) -> str:
        """How to write an option that is probably an argument of the tool or prompt; "" for others."""
        from difflib import get_close_matches
        from shlex import quote

        takes_pairs = any(action.metavar == "key=value" for action in self._actions)
        if not takes_pairs or not option.startswith("--") or get_close_matches(option, known, cutoff=0.8):
            return ""
        at, word = next((at, word) for at, word in enumerate(argv) if word.partition("=")[0] == option)
        after = word.partition("=")[2] or next(iter(argv[at + 1 : at + 2]), "")
        value = "VALUE" if not after or after.startswith("-") else quote(after)
        return f" Arguments are written key=value, such as {option[2:]}={value}."

    def describe_options(self, *, gateway: bool = False) -> None:
        """List the common options in the help. `split_options` reads them before this parser runs.

        `gateway`: whether the command also works with `--gateway`.
        """
        group = self.add_argument_group("common options")
        _add_options(group)
        if gateway:
            _add_gateway(group)
        group.add_argument("-h", "--help", action="store_true", help="show this help")


_PLAIN = (
    (re.compile(r"^the following arguments are required: (.+)$"), r"Missing: \1"),
    (re.compile(r"^argument (?:-\w/)?(\S+): expected one argument$"), r"\1 needs a value"),
    (
        re.compile(r"^argument (?:-\w/)?(\S+): expected at least one argument$"),
        r"\1 needs at least one value",
    ),
    (re.compile(r"^argument (?:-\w/)?(\S+): ignored explicit argument (.+)$"), r"\1 takes no value, not \2"),
    (re.compile(r"^argument (?:-\w/)?(\S+): not allowed with argument (\S+)$"), r"\1 cannot be used with \2"),
    (re.compile(r"^argument (?:-\w/)?(\S+): "), r"\1: "),
)
"""Messages of argparse, and ours."""

STYLES = ("mcp", "double", "server", "raw")


def add_style(parser: Parser) -> None:
    """Add `--style`, which selects how tools are named."""
    styles = "mcp (mcp_srv_tool), double (mcp__srv__tool), server (srv_tool) or raw (tool)"
    parser.add_argument("--style", choices=STYLES, metavar="STYLE", help=f"names of tools: {styles}")


def add_one_off(parser: Parser) -> None:
    """Add `--url U` and `-- CMD ARG …`, which name a server that is in no file."""
    add = parser.add_argument
    add("--url", metavar="U", help="use the server at this URL, not the configured ones")
    add("--header", metavar="'K: V'", action="append", default=[], help="with --url: HTTP header; repeatable")
    add("--env", metavar="K=V", action="append", default=[], help="with -- CMD: a variable; repeatable")
    parser.takes_command("program", expected=False)


def pair(word: str, separator: str, option: str, example: str) -> tuple[str, str]:
    """Split the value of an option such as `--header 'Name: value'`."""
    name, found, value = word.partition(separator)
    if not found or not name.strip():
        raise UsageError(f"{option} must be {example}.")  # without the word: it may be a secret
    return name.strip(), value.strip() if separator == ":" else value


def add_scope(parser: Parser) -> None:
    """Add `--scope`, which selects the file to change."""
    parser.add_argument(
        "--scope", choices=["project", "user"], help="which file to change; default: --config, project, user"
    )


def split_options(argv: Sequence[str]) -> tuple[Options, list[str]]:
    """Separate the common options from the other words. Nothing after `--` is an option."""
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser(prog="mooring", usage="", description="", examples="")
    _add_options(parser)
    if "export" not in argv[:end]:  # `export` has an option of the same name
        _add_gateway(parser)
    args, rest = parser.parse_known_args(argv[:end])
    options = Options(
        config=tuple(args.config),
        json=args.json,
        quiet=args.quiet,
        verbose=args.verbose,
        timeout=args.timeout,
        no_lock=args.no_lock,
        gateway=getattr(args, "gateway", None),
    )
    return options, [*rest, *argv[end:]]


def wants_json(argv: Sequence[str]) -> bool:
    """Whether `--json` is given, on a command line that may be wrong otherwise."""
    return "--json" in argv[: argv.index("--") if "--" in argv else len(argv)]


def suggestion(word: str, known: Sequence[str]) -> str:
    """A sentence with the nearest known word, or an empty text."""
    dashes = {name.lstrip("-"): name for name in known}  # which every option has
    near = nearest(word.lstrip("-"), dashes, limit=1)
    return f" Did you mean {dashes[near[0]]!r}?" if near else ""


def positive(text: str) -> int:
    """An argparse type: a positive integer."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, not {text!r}")
    return int(text)


def _add_options(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] (no public base)
    add = parser.add_argument
    add("--config", metavar="FILE", action="append", default=[], help="read this file only; repeatable")
    add("--json", action="store_true", help="print one JSON document on standard output")
    add("-q", "--quiet", action="store_true", help="no progress, notes and warnings")
    add("-v", "--verbose", action="store_true", help="show the log and the stderr of the servers")
    add("--timeout", metavar="S", type=seconds, help="wait at most this many seconds")
    add("--no-lock", action="store_true", help="ask the servers instead of the lock or the cache")


def _add_gateway(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    text = "ask a running gateway; its token is in MOORING_GATEWAY_TOKEN"
    parser.add_argument("--gateway", metavar="URL", help=text)


def seconds(text: str) -> float:
    """An argparse type: a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds, such as 10 or 0.5, not {text!r}")
    return value


_COLUMNS = 80


def _formatter(prog: str) -> argparse.HelpFormatter:
    columns = min(_COLUMNS, shutil.get_terminal_size().columns)
    return _HelpFormatter(prog, max_help_position=22, width=columns)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Prints texts as they are written, but wraps their paragraphs on a narrow terminal."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `-n, --lines LINES`, as Python 3.13 and newer do."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        """Return the usage, wrapped on a narrow terminal."""
        from textwrap import fill

        whole = super()._format_usage(usage, actions, groups, prefix)
        if self._width >= _COLUMNS:
            return whole
        return fill(" ".join(whole.split()), max(self._width, 20), subsequent_indent="  ") + "\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if width >= _COLUMNS:
            return super()._fill_text(text, width, indent)
        from itertools import groupby
        from textwrap import fill

        lines: list[str] = []
        for is_prose, group in groupby(text.splitlines(), lambda line: line[:1] not in ("", " ")):
            part = list(group)
            lines += [fill(" ".join(part), max(width, 20))] if is_prose else part
        return "\n".join(indent + line for line in lines)
