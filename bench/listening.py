"""A program that listens, for as long as a block runs."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

PATIENCE = 60.0


def free_port() -> int:
    """A port of this machine that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def listening(
    command: Sequence[str], ready: Callable[[], bool], env: Mapping[str, str], *, quiet: bool = True
) -> Iterator[None]:
    """Run `command`, wait until it is `ready`, and end it after the block."""
    out = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        end = time.monotonic() + PATIENCE
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} does not listen (exit code: {process.returncode})")
            time.sleep(0.1)  # no event tells that a port is open
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
