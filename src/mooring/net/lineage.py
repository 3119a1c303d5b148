"""A mark that every descendant of a child inherits, so that none is left running, wherever it went (Linux).

A process that calls `setsid`, forks twice or clears its environment leaves its group, its parent and the
variables it was given, but keeps its resource limits. The limit on file locks has had no effect since
Linux 2.4, so its soft value can carry a number: eight digits for the host, four for the server. A host that
runs under another mooring host adds digits to the number it was given, and so stays a part of what the outer
host ends.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

if sys.platform == "linux":
    import resource

__all__ = ["MARKER", "ROUNDS", "descendants", "host_mark", "kill_all", "kill_marked", "new_mark", "put_mark"]

MARKER = "MOORING_CHILD"
"""Set in the environment of every child: where limits cannot be set, and for `mooring doctor` and tests."""
RLIMIT_LOCKS = 10
DIGITS = 19
OUTER = (8, 4)
"""Digits of the host and of the server; the rest belongs to hosts that run as servers."""
INNER = (4, 3)
ROUNDS = 50
"""How often a caller looks again for processes that were forked while others were killed."""

_owner = 0
_host = ""
_numbers = itertools.count(1)


def host_mark() -> str:
    """The digits with which all marks of this host begin; empty where there can be none."""
    global _owner, _host, _numbers
    if sys.platform != "linux":
        return ""
    if _owner != os.getpid():  # a fork is a host of its own
        _owner, _host, _numbers = os.getpid(), _chosen(), itertools.count(1)
    return _host


def new_mark() -> str:
    """The digits for one more server of this host; empty where there can be none."""
    host = host_mark()
    if not host:
        return ""
    width = (OUTER if len(host) == OUTER[0] else INNER)[1]
    return f"{host}{next(_numbers) % (10**width - 1) + 1:0{width}}"


def put_mark(pid: int, mark: str) -> bool:
    """Mark a process that was just started, and what it has started since; False when it cannot be."""
    if not mark or sys.platform != "linux":
        return False
    value = int(mark.ljust(DIGITS, "0"))
    waiting, marked = [pid], 0
    while waiting:
        one = waiting.pop()
        with suppress(OSError, ValueError):  # it is gone, or not ours: such as a program that became root
            resource.prlimit(one, RLIMIT_LOCKS, (value, resource.prlimit(one, RLIMIT_LOCKS)[1]))
            marked += 1
            waiting += _children(one)
    return marked > 0


def kill_marked(mark: str) -> bool:
    """Kill every process whose mark begins with `mark`; False when there was none."""
    return kill_all(_marked(mark) if mark else ())


def kill_all(processes: Iterable[int]) -> bool:
    """Kill these; False when there were none."""
    found = False
    for pid in processes:
        found = True
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


def descendants(marker: str) -> list[int]:
    """Processes that carry `marker` in their environment: descendants of a child. Linux only."""
    wanted = f"{MARKER}={marker}".encode()
    found: list[int] = []
    for pid in _others() if sys.platform == "linux" else ():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def _chosen() -> str:
    if sys.platform != "linux":
        return ""
    soft, hard = resource.getrlimit(RLIMIT_LOCKS)
    if hard != resource.RLIM_INFINITY:
        return ""
    if soft == resource.RLIM_INFINITY:
        return str(secrets.randbelow(8 * 10**7) + 10**7)
    given = str(soft)
    outer = sum(OUTER)
    if len(given) == DIGITS and given.endswith("0" * (DIGITS - outer)):
        return given[:outer] + str(secrets.randbelow(9 * 10**3) + 10**3)
    return ""  # a limit that is not ours, or a third host inside each other: the outer ones end its servers


def _marked(mark: str) -> list[int]:
    if sys.platform != "linux":
        return []
    found: list[int] = []
    for pid in _others():
        with suppress(OSError, ValueError):
            soft = str(resource.prlimit(pid, RLIMIT_LOCKS)[0])
            if len(soft) == DIGITS and soft.startswith(mark) and _lives(pid):
                found.append(pid)
    return found


def _others() -> list[int]:
    """All other processes; none if no descriptor is free to look."""
    with suppress(OSError):
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]
    return []


def _lives(pid: int) -> bool:
    """Whether it still runs: one that has ended may wait for its parent to take notice."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _children(pid: int) -> list[int]:
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        return [int(child) for child in file.read().split()]
    return []
