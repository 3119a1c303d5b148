"""The event loop of one command: signals cancel the command, so that hosts are closed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any


def run_to_end(command: Coroutine[Any, Any, int], *, hangup: bool = True) -> int:
    """Run the command and return its exit code. Ctrl-C, SIGTERM and SIGHUP cancel it; clean-up still runs.

    Without `hangup`, SIGHUP does not cancel it: `mooring serve` reloads its configuration then.
    """
    return asyncio.run(_cancelled_by_signals(command, hangup))


async def _cancelled_by_signals(command: Coroutine[Any, Any, int], hangup: bool) -> int:
    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGHUP) if hangup else (signal.SIGTERM,):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await command
    except asyncio.CancelledError:
        if not received:  # Ctrl-C: asyncio turns it into KeyboardInterrupt
            raise
        return 128 + received[0]
