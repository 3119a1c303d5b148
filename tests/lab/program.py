"""A program with its own host that tests end in every possible way, and a search for processes that are
left."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.lab.stdio import wire_log

PROGRAM = """
import asyncio, os, sys, threading
from mooring import Host, ServerConfig
from tests.lab.stdio import lab_server

async def main():
    async with Host([{servers}]) as host:
        await host.ready(10)
        print("ready", flush=True)
        {body}

asyncio.run(main())
"""


def program(body: str, *servers: str, stdin: int | None = None) -> subprocess.Popen[str]:
    """The program, when its servers are ready and it has come to `body`; both are Python source."""
    code = textwrap.dedent(PROGRAM).format(servers=", ".join(servers), body=body)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def processes(log: Path) -> list[int]:
    """The servers that noted their start, and their children."""
    return [entry[key] for entry in wire_log(log) for key in ("started", "grandchild") if key in entry]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between opening and reading
        return False
