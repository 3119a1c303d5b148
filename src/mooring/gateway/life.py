"""Signals: SIGTERM ends the gateway gracefully, SIGHUP has it read its configuration again."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

from mooring.config.logs import logger
from mooring.core.events import ConfigRejected
from mooring.errors import ConfigError
from mooring.host import Host

__all__ = ["follow_hangups", "until_told"]

log = logger("mooring.gateway")

GARBAGE = 50_000
"""New objects between two collections; a call makes some hundreds, and nearly all end with it."""


async def until_told(host: Host, warn: Callable[[str], None]) -> None:
    """Wait for SIGTERM or SIGINT; SIGHUP reloads the configuration, and clients notice only what changed.

    A configuration that is not taken, by a signal or by its files being followed, is told to `warn`.
    """
    loop = asyncio.get_running_loop()
    # What is there by now stays: the collector need not look at it between calls.
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 50)
    told = asyncio.Event()
    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, told.set)
        loop.add_signal_handler(signal.SIGINT, told.set)
    reloading = asyncio.create_task(follow_hangups(host, warn))
    try:
        await told.wait()
    finally:
        reloading.cancel()


async def follow_hangups(host: Host, warn: Callable[[str], None]) -> None:
    """Read the configuration again at each SIGHUP, until cancelled; `warn` gets each one that is refused."""
    reload = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    refused = asyncio.create_task(_tell_refused(host, warn))
    try:
        while True:
            await reload.wait()
            reload.clear()
            try:
                await host.reload()
            except (ConfigError, OSError) as problem:
                _refused(str(problem), warn)
    finally:
        refused.cancel()


async def _tell_refused(host: Host, warn: Callable[[str], None]) -> None:
    async for event in host.events(ConfigRejected):
        if isinstance(event, ConfigRejected):
            _refused(event.problem, warn)


def _refused(problem: str, warn: Callable[[str], None]) -> None:
    log.error("the configuration stays as it was: %s", problem)
    warn(f"The configuration stays as it was: {problem}")
