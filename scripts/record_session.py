"""Write docs/session.svg: commands typed at a real terminal, and what they print.

python scripts/record_session.py            write it
python scripts/record_session.py --check    exit code 1 if it no longer shows what the commands print
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import pyte

from mooring import demo

TARGET = Path(__file__).parents[1] / "docs" / "session.svg"
COLUMNS, ROWS = 80, 40
COMMANDS = (
    "mooring list",
    'mooring search "read a note"',
    "mooring call mcp_notes_read_note title=welcome",
    "mooring call mcp_notes_read_note titel=welcome",
    "mooring lock",
)
CHAR, LINE, MARGIN = 8.43, 18, 16
SECONDS = 1.6
"""Between two commands, when the picture is played."""
COLOURS = {"default": "#d8dee9", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "cyan": "#56b6c2"}


def main() -> int:
    picture = svg(list(recorded()))
    if "--check" in sys.argv:
        return int(not TARGET.exists() or TARGET.read_text("utf-8") != picture)
    TARGET.write_text(picture, "utf-8")
    return 0


def recorded() -> Iterator[tuple[str, list[list[pyte.screens.Char]]]]:
    """Each command with the lines it leaves on the screen."""
    with tempfile.TemporaryDirectory() as folder:
        entries = {}
        for name in ("notes", "clock", "broken"):
            command, *args = demo.command(name)
            entries[name] = {"command": command, "args": args}
        Path(folder, "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        for command in COMMANDS:
            yield command, typed(command, folder)


def typed(command: str, folder: str) -> list[list[pyte.screens.Char]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": folder,
        "MOORING_HOME": f"{folder}/home",
        "MOORING_CONFIG": "mcp.json",
        "TERM": "xterm-256color",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        raw = b""
        try:
            while chunk := os.read(ours, 65536):
                raw += chunk
        except OSError:  # how Linux tells that the other end is closed
            pass
        child.wait()
    os.close(ours)
    screen = pyte.Screen(COLUMNS, ROWS)
    # Where it was recorded, and how long a server rests, would differ each time.
    shown = re.sub(
        r"next attempt in [\d.]+ s", "next attempt in 1.0 s", raw.decode().replace(f"{folder}/", "")
    )
    pyte.Stream(screen).feed(shown)
    lines = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(ROWS)]
    while lines and not "".join(char.data for char in lines[-1]).strip():
        lines.pop()
    return lines


def svg(session: Sequence[tuple[str, list[list[pyte.screens.Char]]]]) -> str:
    body: list[str] = []
    row = 0
    for number, (command, lines) in enumerate(session):
        begin = number * SECONDS
        body.append(group(begin, [text(row, [("$ ", "green", False), (command, "default", True)])]))
        row += 1
        body.append(group(begin + SECONDS / 2, [text(row + at, runs(line)) for at, line in enumerate(lines)]))
        row += len(lines) + 1
    width, height = round(COLUMNS * CHAR + 2 * MARGIN), row * LINE + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'xml:space="preserve" role="img" aria-label="A terminal session with mooring">',
            "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}"
            ".b{font-weight:bold}g{opacity:0;animation:show .1s linear forwards}"
            "@keyframes show{to{opacity:1}}"
            "@media(prefers-reduced-motion){g{opacity:1;animation:none}}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#22272e"/>',
            *body,
            "</svg>\n",
        ]
    )


def group(begin: float, lines: Sequence[str]) -> str:
    return f'<g style="animation-delay:{begin:g}s">' + "".join(lines) + "</g>"


def runs(line: Sequence[pyte.screens.Char]) -> list[tuple[str, str, bool]]:
    """The line as stretches of one colour and weight."""
    found: list[tuple[str, str, bool]] = []
    for char in line:
        if found and found[-1][1:] == (char.fg, char.bold):
            found[-1] = (found[-1][0] + char.data, char.fg, char.bold)
        else:
            found.append((char.data, char.fg, char.bold))
    return found


def text(row: int, stretches: Sequence[tuple[str, str, bool]]) -> str:
    spans: list[str] = []
    column = 0
    for words, colour, bold in stretches:
        if words.strip():
            weight = ' class="b"' if bold else ""
            fill = COLOURS.get(colour, COLOURS["default"])
            x = MARGIN + column * CHAR
            spans.append(f'<tspan x="{x:.1f}" fill="{fill}"{weight}>{escape(words.rstrip())}</tspan>')
        column += len(words)
    return f'<text y="{MARGIN + (row + 1) * LINE - 4}">{"".join(spans)}</text>' if spans else ""


if __name__ == "__main__":
    sys.exit(main())
