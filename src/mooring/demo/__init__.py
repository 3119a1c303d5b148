"""Bundled servers that show what mooring does: real child processes, no network, no dependencies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["command", "weather"]

_SERVERS = Path(__file__).parent / "servers"


def command(server: str) -> tuple[str, ...]:
    """How to start a bundled server: `notes`, `clock`, `silent` or `broken`; for `weather`, see there."""
    # Without site-packages an interpreter starts twice as fast, and these need none.
    return sys.executable, "-S", str(_SERVERS / f"{server}.py")


@contextmanager
def weather() -> Generator[str]:
    """Runs the weather station and gives its address; it ends with the block."""
    with subprocess.Popen(
        command("weather"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        # Popen's own exit closes the child's standard input, on which it ends, and waits for it.
        yield child.stdout.readline().strip()
