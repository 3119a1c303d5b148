"""One question to whoever sits at the terminal."""

from __future__ import annotations

import os
import sys

from mooring.cli.output import Output
from mooring.core.text import clean

__all__ = ["asked"]


async def asked(question: str, refused: str, out: Output) -> bool:
    """Whether somebody at the terminal says yes. `refused` says what did not happen otherwise."""
    from anyio import to_thread

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        out.error(f"There is no terminal to ask on. {refused} Read the change, then give --yes.")
        return False
    sys.stdout.flush()
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    # In a thread, so that Ctrl-C ends the wait; not by way of `sys.stdin`, whose lock would outlive it.
    answer = await to_thread.run_sync(os.read, sys.stdin.fileno(), 100, abandon_on_cancel=True)
    if answer.strip().lower() in (b"y", b"yes"):
        return True
    out.error(refused, label="")
    return False
