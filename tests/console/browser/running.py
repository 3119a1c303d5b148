"""`mooring console` as a child process, with the address that it prints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mooring.demo import command

BOUND = 60.0


class Console:
    """A running console.

    Attributes:
        url: The address with its one-time token.
        base: The address without it.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url
        self.base = url.split("?")[0]
        self.origin = url.split("/console")[0]
        self.port = int(self.origin.rsplit(":", 1)[1])


@asynccontextmanager
async def console(
    directory: Path, config: Path | None = None, *arguments: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[Console]:
    """Run `mooring console` in a directory; it is ended when the block ends, and must end cleanly."""
    chosen = ("--config", str(config)) if config else ()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", *chosen, "--json", "console", "--no-browser", *arguments),
        cwd=directory,
        env={**os.environ, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    errors: list[bytes] = []

    async def drain() -> None:
        assert process.stderr
        async for line in process.stderr:
            errors.append(line)
            del errors[:-200]

    reading = asyncio.create_task(drain())
    try:
        async with asyncio.timeout(BOUND):
            line = await process.stdout.readline()
        if not line:
            await asyncio.wait([reading], timeout=5)
            raise AssertionError(f"the console did not start: {b''.join(errors).decode()}")
        yield Console(process, json.loads(line)["url"])
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(BOUND):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        finally:
            reading.cancel()


def demo(*names: str, **settings: Any) -> dict[str, Any]:
    """A configuration with bundled servers."""
    commands = {name: command(name) for name in names}
    found = {name: {"command": words[0], "args": list(words[1:])} for name, words in commands.items()}
    return {"mcpServers": found, **settings}
