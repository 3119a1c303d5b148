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
In a pipe or a file, text of servers has no control characters other than newline and tab.

A command that fails prints a paragraph on standard error. With `--json` it also prints the error as its one
document: `{"error": {"kind": "UnknownTool", "message": "…", "exit_code": 2, "next": "mooring tools"}}`.
`next` is a command to try, or null; `server`, `tool`, `file`, `suggestions` and others are added where
they are known.
`mooring call` prints its usual document with `is_error` when the tool was called and failed.

Commands start only the servers that they need. What a lock or an earlier run knows of a server is not asked
again; `call`, `read`, `prompt` and `ping SERVER` start the one server that they are about.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the tool or a server reported failure |
| 2 | usage or configuration |
| 3 | needs a login or an approval |
| 10 | a server is not what the lock says (`check`, `lock --check-only`) |
| 11 | a server could not be reached (`check`, `lock`) |
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
