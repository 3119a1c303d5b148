"""Several processes on one port: the system shares connections out among them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

__all__ = ["is_worker", "run_workers"]

_MARK = "MOORING_GATEWAY_WORKER"
AGAIN_AFTER = 1.0


def is_worker() -> bool:
    """Whether this process is one of several."""
    return _MARK in os.environ


async def run_workers(count: int) -> int:
    """Run this very command `count` times; one that dies is started again, until we are told to end."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    running: set[asyncio.subprocess.Process] = set()

    def pass_on(number: int) -> None:
        if number != signal.SIGHUP:
            ending.set()
        for process in running:
            if process.returncode is None:
                process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, pass_on, number)
    environment = {**os.environ, _MARK: os.urandom(32).hex()}
    command = [sys.executable, "-m", "mooring", *_single(sys.argv[1:])]

    async def keep() -> None:
        while not ending.is_set():
            process = await asyncio.create_subprocess_exec(*command, env=environment)
            running.add(process)
            code = await process.wait()
            running.discard(process)
            if code == 2:  # a mistake in the configuration does not go away
                ending.set()
                codes.append(code)
            elif not ending.is_set():
                await asyncio.sleep(AGAIN_AFTER)

    codes: list[int] = []
    await asyncio.gather(*(keep() for _ in range(count)))
    return codes[0] if codes else 0


def _single(arguments: list[str]) -> list[str]:
    """The command line without `--workers`."""
    kept: list[str] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word == "--workers":
            skip = True
        elif not word.startswith("--workers="):
            kept.append(word)
    return kept
