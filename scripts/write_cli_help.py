"""Writes docs/cli.md from the commands' own help, so that the two cannot differ."""

import os
from pathlib import Path

from mooring.cli.app import COMMANDS, help_text

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# Command line

Written by `make format` from the commands' own `--help`; a test compares the two.

Results go to standard output, everything else to standard error. With `--json`, standard output holds one
JSON document and nothing else. Colour and progress appear on terminals only; `NO_COLOR` is honoured.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the tool or a server reported failure |
| 2 | usage or configuration |
| 3 | needs a login or an approval |
| 130 | interrupted |
"""


def page() -> str:
    """The whole page, laid out for 80 columns whatever the terminal is."""
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    sections = [("mooring", None), *((f"mooring {name}", name) for name in COMMANDS)]
    blocks = [f"## {title}\n\n```text\n{help_text(command).rstrip()}\n```\n" for title, command in sections]
    return "\n".join([INTRODUCTION, *blocks])


if __name__ == "__main__":
    PAGE.write_text(page())
