"""Write docs/cli.md from the help of the commands."""

import os
from pathlib import Path

from mooring.cli.app import COMMANDS, help_text

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# Command line

`make format` generates this page from `--help`; a test compares the two.

Results go to standard output, everything else to standard error. With `--json`, standard output contains one
JSON document and nothing else. Colours and progress appear only on terminals; `NO_COLOR` is honoured.
In a pipe or a file, control characters in the text of servers are escaped, except newline and tab.

A command that fails prints a message on standard error. With `--json` it also prints the error as its
document: `{"error": {"kind": "UnknownTool", "message": "…", "exit_code": 2, "next": "mooring tools"}}`.
`next` is a command to try, or null; `server`, `tool`, `file`, `suggestions` and others are added if known.
`--help` with `--json` prints `{"command": "list", "help": "…"}`.
`mooring call` prints its usual document with `is_error` if the tool was called and failed.

Commands start only the servers that they need: servers in the lock or the cache are not started to list their
tools, and `call`, `read`, `prompt` and `ping SERVER` start only one server.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the tool or a server failed |
| 2 | wrong usage or configuration |
| 3 | needs a login or an approval |
| 10 | a server differs from the lock (`check`, `lock --check-only`) |
| 11 | a server could not be reached (`check`, `lock`) |
| 130 | interrupted; `serve --http` and `console` end with 0 |
"""


def page() -> str:
    """The whole page, for 80 columns."""
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    sections = [("mooring", None), *((f"mooring {name}", name) for name in COMMANDS)]
    blocks = [f"## {title}\n\n```text\n{help_text(command).rstrip()}\n```\n" for title, command in sections]
    return "\n".join([INTRODUCTION, *blocks])


if __name__ == "__main__":
    PAGE.write_text(page())
