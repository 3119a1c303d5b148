"""Configurations for the scripted stdio server, and its log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from mooring import ServerConfig

SCRIPT = Path(__file__).with_name("server.py")
# Not `sys.executable` alone: without site-packages the server starts in some 20 ms.
COMMAND = (sys.executable, "-I", "-S", str(SCRIPT))


def lab_server(
    name: str = "lab", /, *, settings: dict[str, Any] | None = None, **script: Any
) -> ServerConfig:
    """A server that follows `script`; `settings` go into its configuration."""
    return ServerConfig(
        name=name, command=COMMAND[0], args=(*COMMAND[1:], json.dumps(script)), **(settings or {})
    )


def cue(
    data: bytes = b"",
    *,
    times: int = 1,
    then: Literal["answer", "silence", "exit", "mute", "deaf"] = "answer",
) -> dict[str, Any]:
    """What the tool `say` or a method in `cues` writes to stdout, and how the server goes on."""
    return {"bytes": data.decode("latin-1"), "times": times, "then": then}


def wire_log(path: Path) -> list[dict[str, Any]]:
    """Everything the server read or noted, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def methods(path: Path) -> list[str]:
    return [entry["method"] for entry in wire_log(path) if "method" in entry]


def starts(path: Path) -> list[int]:
    """Process ids of every start."""
    return [entry["started"] for entry in wire_log(path) if "started" in entry]
