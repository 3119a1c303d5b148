"""What stands on the command line: the options of every command, and a parser that explains itself."""

from __future__ import annotations

import argparse
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from mooring.core.text import nearest
from mooring.errors import MooringError

__all__ = [
    "Options",
    "Parser",
    "UsageError",
    "did_you_mean",
    "positive",
    "seconds",
    "split_options",
    "wants_json",
]


class UsageError(MooringError):
    """The command line cannot be understood as typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that every command takes."""

    config: tuple[str, ...] = ()
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    timeout: float | None = None
    no_lock: bool = False


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises `UsageError` instead of leaving, and knows the nearest option."""

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

    def takes_command(self, name: str) -> None:
        """Have all that stands after `--` under `name`, as it is: a program and its arguments."""
        self._command = name

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """The parsed arguments; anything left over is an error that names the nearest option."""
        command: list[str] = []
        if self._command is not None and "--" in argv:
            end = argv.index("--")
            argv, command = argv[:end], [*argv[end + 1 :]]
        args, rest = self.parse_known_args(argv)
        if self._command is not None:
            setattr(args, self._command, command)
            if rest and not command:
                raise UsageError(f"A program and its arguments stand after `--`. See `{self.prog} --help`.")
        if rest:
            near = did_you_mean(rest[0], re.findall(r"--[a-z][a-z-]*", self.format_help()))
            kind = "option" if rest[0].startswith("-") else "argument"
            raise UsageError(f"There is no {kind} {rest[0]!r} here.{near} See `{self.prog} --help`.")
        return args

    def describe_options(self) -> None:
        """List the common options in the help. They are read before this parser runs: see `split_options`."""
        group = self.add_argument_group("options of every command")
        _add_options(group)
        group.add_argument("-h", "--help", action="store_true", help="show this")


def split_options(argv: Sequence[str]) -> tuple[Options, list[str]]:
    """The common options, wherever they stand, and what is left. Nothing after `--` is an option."""
    end = argv.index("--") if "--" in argv else len(argv)
    parser = Parser(prog="mooring", usage="", description="", examples="")
    _add_options(parser)
    args, rest = parser.parse_known_args(argv[:end])
    options = Options(
        config=tuple(args.config),
        json=args.json,
        quiet=args.quiet,
        verbose=args.verbose,
        timeout=args.timeout,
        no_lock=args.no_lock,
    )
    return options, [*rest, *argv[end:]]


def wants_json(argv: Sequence[str]) -> bool:
    """Whether `--json` is given, on a line that may be wrong otherwise."""
    return "--json" in argv[: argv.index("--") if "--" in argv else len(argv)]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A sentence that offers the nearest known word, or nothing."""
    near = nearest(word, known, limit=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, not {text!r}")
    return int(text)


def _add_options(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] (no public base)
    add = parser.add_argument
    add("--config", metavar="FILE", action="append", default=[], help="read this file only; may be repeated")
    add("--json", action="store_true", help="one JSON document on standard output")
    add("-q", "--quiet", action="store_true", help="no progress and no warnings")
    add("-v", "--verbose", action="store_true", help="show the log, with what the servers print")
    add("--timeout", metavar="S", type=seconds, help="wait this many seconds at most")
    add("--no-lock", action="store_true", help="ask the servers, whatever a lock or an earlier run says")


def seconds(text: str) -> float:
    """A span of time, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds, such as 10 or 0.5, not {text!r}")
    return value


def _formatter(prog: str) -> argparse.HelpFormatter:
    columns = min(80, shutil.get_terminal_size().columns)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=22, width=columns)
