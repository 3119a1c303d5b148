"""The real program, in a pipe or on a pseudo-terminal, with the bundled servers as real children."""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyte
import pytest

import mooring
from mooring import demo
from mooring.cli import main
from tests.lab.stdio import COMMAND, starts


@dataclass(frozen=True)
class Shown:
    """What a person sees on the terminal when the program has ended."""

    text: str
    raw: str
    code: int


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of the developer's own configuration."""
    keep = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    home = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MOORING_HOME": str(tmp_path / "home"),
    }
    source = {"PYTHONPATH": str(Path(mooring.__file__).parents[1])}
    return keep | home | source | {"TERM": "xterm-256color", "PYTHONWARNINGS": "error"}


@pytest.fixture
def config(tmp_path: Path) -> Callable[[Mapping[str, Any]], str]:
    """Writes a configuration with these servers: entries of the file, where `bundled` names a command."""

    def write(servers: Mapping[str, Any]) -> str:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {name: entry(given) for name, given in servers.items()}}))
        return str(file)

    return write


def entry(given: str | Mapping[str, Any]) -> dict[str, Any]:
    written = {"bundled": given} if isinstance(given, str) else dict(given)
    if "bundled" in written:
        command, *args = demo.command(written.pop("bundled"))
        written |= {"command": command, "args": args}
    return written


@pytest.fixture
def mixed_config(config: Callable[[Mapping[str, Any]], str]) -> str:
    """Two good servers, one broken, one disabled."""
    off = {"bundled": "notes", "disabled": True}
    return config({"notes": "notes", "clock": "clock", "broken": "broken", "spare": off})


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs `mooring` inside this process, without a terminal: the same code, a second quicker."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(words)
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return run


@pytest.fixture
def piped(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `mooring` as a process with its output in pipes."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mooring", *words],
            cwd=tmp_path,
            env=environment | env,
            capture_output=True,
            text=True,
            timeout=30,
        )

    return run


@pytest.fixture
def terminal(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Shown]:
    """Runs `mooring` on a pseudo-terminal and returns the screen that is left."""

    def run(*words: str, columns: int = 80, typed: str = "", **env: str) -> Shown:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-m", "mooring", *words],
            cwd=tmp_path,
            env=environment | env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as child:
            os.close(theirs)
            os.write(ours, typed.encode())
            raw = read_all(ours)
        os.close(ours)
        return Shown(text=screen(raw, columns), raw=raw, code=child.returncode)

    return run


def read_all(descriptor: int) -> str:
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as an error
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()


def screen(raw: str, columns: int) -> str:
    """The lines on the screen; one that was too long for it shows up broken in two."""
    emulator = pyte.Screen(columns, 50)
    pyte.Stream(emulator).feed(raw)
    return "\n".join(line.rstrip() for line in emulator.display).rstrip() + "\n"


class Lab:
    """A scripted server whose offer can be changed between two starts without touching its entry."""

    def __init__(self, folder: Path) -> None:
        self.script, self.log = folder / "script.json", folder / "lab.log"
        self.entry = {"command": COMMAND[0], "args": [*COMMAND[1:], f"@{self.script}"]}

    def offers(self, **descriptions: str) -> None:
        """From its next start on, the server has these tools."""
        schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}
        tools = [
            {"name": name, "description": text, "inputSchema": schema} for name, text in descriptions.items()
        ]
        self.script.write_text(json.dumps({"tools": [], "definitions": tools, "log": str(self.log)}))

    def takes(self, tool: str, schema: Mapping[str, Any]) -> None:
        """From its next start on, the tool takes these arguments."""
        script = json.loads(self.script.read_text())
        for definition in script["definitions"]:
            if definition["name"] == tool:
                definition["inputSchema"] = schema
        self.script.write_text(json.dumps(script))

    @property
    def starts(self) -> int:
        return len(starts(self.log))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    made.offers(read="Read a file.", send="Send a letter.")
    return made
