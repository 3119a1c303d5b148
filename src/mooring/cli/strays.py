"""Servers that an earlier host left behind. Linux only: elsewhere nothing tells whose child a process was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mooring.net.lineage import MARKER

__all__ = ["Stray", "strays"]

_STARTED = 19
"""Place of the start time among the fields of /proc/PID/stat that follow the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    pid: int
    command: str


def strays(proc: Path = Path("/proc")) -> Iterator[Stray]:
    """Processes that a host started and that outlived it, in order of process id."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)):
        with suppress(OSError, ValueError, IndexError):  # gone meanwhile, or somebody else's
            if (host := _host_of(folder)) is not None and not _is_there(proc / str(host), folder):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                # Arguments may hold secrets: the program and what it runs is enough to know it by.
                command = b" ".join(words[:2]).decode("utf-8", "replace")
                yield Stray(pid=int(folder.name), command=command)


def _host_of(folder: Path) -> int | None:
    """The process that started this one, if that was a host."""
    mark = f"{MARKER}=".encode()
    for variable in (folder / "environ").read_bytes().split(b"\0"):
        if variable.startswith(mark) and int(folder.name) != os.getpid():
            return int(variable.removeprefix(mark).split(b"-")[0])
    return None


def _is_there(host: Path, child: Path) -> bool:
    """Whether the host still runs. Process ids are used again: a younger process is another one."""
    try:
        return _started(host) <= _started(child)
    except OSError:
        return False


def _started(folder: Path) -> int:
    return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[_STARTED])
