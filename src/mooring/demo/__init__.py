"""Bundled servers for demonstrations: child processes without network access or dependencies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["command", "weather"]

_SERVERS = Path(__file__).parent / "servers"
STDIO = ("notes", "clock", "silent", "broken")
"""Names of the bundled stdio servers."""
_FAULTY = {
    "silent": "import sys\nfor _ in sys.stdin.buffer: pass",
    "broken": "import sys\nsys.exit('broken: cannot read /etc/broken.conf: no such file')",
}
"""Servers that never answer, and that exit at once with an error message."""


def command(server: str) -> tuple[str, ...]:
    """The command of a bundled stdio server: `notes`, `clock`, `silent` or `broken`."""
    # Without site-packages, which these servers do not need, Python starts twice as fast.
    if server in _FAULTY:
        return sys.executable, "-S", "-c", _FAULTY[server]
    return sys.executable, "-S", str(_SERVERS / f"{server}.py")


@contextmanager
def weather() -> Generator[str]:
    """Run the weather server during the block and return its URL."""
    # Ctrl-C on the terminal is for this program, not for the child.
    with subprocess.Popen(
        command("weather"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        # On exit, Popen closes the child's standard input, which ends it, and waits for it.
        yield child.stdout.readline().strip()
