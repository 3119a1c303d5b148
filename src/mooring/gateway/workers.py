"""Several processes on one port; the system distributes connections among them.

The requests of one client reach any of the processes, which share no state. Settings that need shared state
are rejected by `check_workers`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from mooring.config.models import HostConfig
from mooring.config.sections import GatewaySettings, ProfileSettings
from mooring.errors import ConfigError

__all__ = ["check_workers", "is_worker", "run_workers", "shared_key"]

_MARK = "MOORING_GATEWAY_WORKER"
RESTART_DELAY = 1.0


def check_workers(config: HostConfig, default_profile: ProfileSettings, *, sse: bool) -> None:
    """Reject settings that need state shared between processes.

    Raises:
        ConfigError: Names every setting that does not work with `--workers`.
    """
    gateway, standard = config.gateway, GatewaySettings()
    found = [
        f"server {server.name!r} has `isolation: session`: each client would get a server in every process"
        for server in config.active
        if server.isolation == "session"
    ]
    if default_profile.discovery != "never":
        found.append("`--discovery`: what a client selects would be known to one process only")
    found += [
        f"profile {name!r} has `discovery: {profile.discovery}`: "
        "what a client selects would be known to one process only"
        for name, profile in gateway.profiles.items()
        if profile.discovery != "never"
    ]
    found += [
        f"`gateway.{name}`: each process would count for itself"
        for name in ("rate", "burst", "concurrency", "max_sessions", "client_sessions")
        if getattr(gateway, name) != getattr(standard, name)
    ]
    found += [
        f"server {server.name!r} has `max_concurrency`: each process would count for itself"
        for server in config.active
        if server.max_concurrency is not None
    ]
    if sse:
        found.append(
            "`--sse`: a client of the 2024 transport needs one process for its stream and its requests"
        )
    if found:
        raise ConfigError("\n  ".join(["These settings do not work with `--workers`:", *found]))


def is_worker() -> bool:
    """Whether this process is a worker."""
    return _MARK in os.environ


def shared_key() -> bytes | None:
    """Return the key with which all workers seal request states; None outside of workers."""
    return bytes.fromhex(os.environ[_MARK]) if is_worker() else None


async def run_workers(count: int) -> int:
    """Run this command in `count` processes and restart those that exit, until SIGTERM or SIGINT. Return the
    exit code."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    running: set[asyncio.subprocess.Process] = set()

    def pass_on(number: int) -> None:
        if sys.platform == "win32" or number != signal.SIGHUP:
            ending.set()
        for process in running:
            if process.returncode is None:
                process.send_signal(number)

    if sys.platform != "win32":  # there, Ctrl-C reaches each process of the console
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, pass_on, number)
    environment = {**os.environ, _MARK: os.urandom(32).hex()}
    command = [sys.executable, "-m", "mooring", *_single(sys.argv[1:])]

    async def supervise() -> None:
        while not ending.is_set():
            # A worker ends when its standard input does, so that it does not outlive a killed parent.
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=asyncio.subprocess.PIPE
            )
            running.add(process)
            code = await process.wait()
            running.discard(process)
            if code == 2:  # invalid configuration: restarting does not help
                ending.set()
                codes.append(code)
            elif not ending.is_set():
                await asyncio.sleep(RESTART_DELAY)

    codes: list[int] = []
    await asyncio.gather(*(supervise() for _ in range(count)))
    return codes[0] if codes else 0


def _single(arguments: list[str]) -> list[str]:
    """Return the command line without `--workers`."""
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
