"""Descendants of child processes: marked, found, and ended, also when the host is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress

if sys.platform == "linux":
    import resource


MARKER = "MOORING_CHILD"
"""Variable in the environment of every child: for systems on which limits cannot be set, for `mooring doctor`
and for tests."""
RLIMIT_LOCKS = 10
DIGITS = 19
OUTER = (8, 4)
"""Numbers of digits for the host and for the server; the rest is for hosts that run as servers (`INNER`)."""
INNER = (4, 3)
ROUNDS = 50
"""How often callers search again for processes that were forked while others were killed."""

_marked_by = 0
_host = ""
_numbers = itertools.count(1)
_marking = threading.Lock()


def host_mark() -> str:
    """Return the digits that all marks of this host begin with; empty if marks are not supported."""
    global _marked_by, _host, _numbers
    if sys.platform != "linux":
        return ""
    if _marked_by != os.getpid():  # a forked process needs its own mark
        _marked_by, _host, _numbers = os.getpid(), _chosen(), itertools.count(1)
    return _host


def new_mark() -> str:
    """Return the mark for one more server of this host; empty if marks are not supported."""
    host = host_mark()
    if not host:
        return ""
    width = (OUTER if len(host) == OUTER[0] else INNER)[1]
    return f"{host}{next(_numbers) % (10**width - 1) + 1:0{width}}"


@contextlib.contextmanager
def inherited_mark(mark: str) -> Generator[None]:
    """Let processes that are started in the block inherit the mark: a child can start others, and leave them,
    before `put_mark` reaches it."""
    if not mark or sys.platform != "linux":
        yield
        return
    with _marking:
        before = resource.getrlimit(RLIMIT_LOCKS)
        try:
            with suppress(OSError, ValueError):
                resource.setrlimit(RLIMIT_LOCKS, (int(mark.ljust(DIGITS, "0")), before[1]))
            yield
        finally:
            resource.setrlimit(RLIMIT_LOCKS, before)


def put_mark(pid: int, mark: str) -> bool:
    """Mark a process that was just started and its descendants; return whether that succeeded."""
    if not mark or sys.platform != "linux":
        return False
    value = int(mark.ljust(DIGITS, "0"))
    waiting, marked = [pid], 0
    while waiting:
        one = waiting.pop()
        with suppress(OSError, ValueError):  # it has ended, or has another user, such as a setuid program
            resource.prlimit(one, RLIMIT_LOCKS, (value, resource.prlimit(one, RLIMIT_LOCKS)[1]))
            marked += 1
            waiting += _children(one)
    return marked > 0


def kill_marked(mark: str) -> bool:
    """Kill every process whose mark begins with `mark`; return whether there were any."""
    return kill_all(_marked(mark) if mark else ())


def kill_all(processes: Iterable[int]) -> bool:
    """Kill these processes; return whether there were any."""
    found = False
    if sys.platform == "win32":
        return found
    for pid in processes:
        found = True
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


def descendants(marker: str) -> list[int]:
    """Return the processes with `marker` in their environment: descendants of a child. Linux only."""
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
    return ""  # a limit set by another program, or a third nested host: the outer hosts end its servers


def _marked(mark: str) -> list[int]:
    if sys.platform != "linux":
        return []
    found: list[int] = []
    for pid in _others():
        with suppress(OSError, ValueError):
            soft = str(resource.prlimit(pid, RLIMIT_LOCKS)[0])
            if len(soft) == DIGITS and soft.startswith(mark) and _is_alive(pid):
                found.append(pid)
    return found


def _others() -> list[int]:
    """Return the ids of all other processes; empty if no file descriptor is free."""
    with suppress(OSError):
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]
    return []


def _is_alive(pid: int) -> bool:
    """Whether the process still runs. A zombie has ended, but its parent has not waited for it."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _children(pid: int) -> list[int]:
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        return [int(child) for child in file.read().split()]
    return []


_SCRIPT = """
trap '' INT TERM HUP
groups=
while read -r word group; do
  case $word in
    add) groups="$groups $group" ;;
    del) kept=; for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done; groups=$kept ;;
  esac
done
[ -z "$groups" ] && exit
sleep 1
for one in $groups; do kill -s KILL -- "-$one" 2>/dev/null; done
[ -z "$1" ] && exit
tries=0
while [ $tries -lt 50 ]; do
  found=$(grep -lsE "^Max file locks +$1" /proc/[0-9]*/limits)
  [ -z "$found" ] && exit
  for one in $found; do one=${one#/proc/}; kill -s KILL "${one%/limits}" 2>/dev/null; done
  tries=$((tries + 1))
  sleep 0.1
done
"""

_pipe: int | None = None
_owner = 0
_process: subprocess.Popen[bytes] | None = None


def guard(group: int) -> None:
    """Have the watchdog end `group` if this process dies without a `release`."""
    global _pipe, _owner, _process
    if sys.platform == "win32":
        return  # the job object of the children ends with this process
    if _pipe is None or _owner != os.getpid():
        try:
            read, write = os.pipe()
        except OSError:
            return  # the child can run without a watchdog
        try:
            _process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "mooring-watchdog", host_mark()],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": "/usr/bin:/bin"},
            )
        except OSError:
            os.close(write)
            return
        finally:
            os.close(read)
        _pipe, _owner = write, os.getpid()
        os.set_blocking(_pipe, False)
    _say(f"add {group}\n")


def release(group: int) -> None:
    """Report the end of `group`. The watchdog exits with the last one."""
    if _owner == os.getpid():
        _say(f"del {group}\n")


def dismiss() -> None:
    """End the watchdog, when no group is left."""
    global _pipe, _process
    if _pipe is not None and _owner == os.getpid():
        os.close(_pipe)
        if _process is not None:
            # It exits at the end of its input.
            with contextlib.suppress(subprocess.TimeoutExpired):
                _process.wait(1)
        _pipe = _process = None


def _say(line: str) -> None:
    if _pipe is not None:
        # The watchdog may have been killed. It is only a fallback, so that is no error.
        with contextlib.suppress(OSError):
            os.write(_pipe, line.encode())


READER_GONE = 5
"""Milliseconds to wait for the reader of a pipe to close it. The wait blocks the event loop."""


def watch_exit(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], exited: Callable[[int | None], None]
) -> Callable[[], None]:
    """Call `exited` with the exit code when the process ends. Return a function that stops watching."""
    if sys.platform == "linux":
        with suppress(OSError):  # before Linux 5.3
            return _watch_descriptor(loop, os.pidfd_open(process.pid), process, exited)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(exited, code)

    threading.Thread(target=wait, name=f"mooring-wait-{process.pid}", daemon=True).start()
    return lambda: None


def _watch_descriptor(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    process: subprocess.Popen[bytes],
    exited: Callable[[int | None], None],
) -> Callable[[], None]:
    watching = True

    def stop() -> None:
        nonlocal watching
        if watching:
            watching = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def check() -> None:
        if process.poll() is not None:
            stop()
            exited(process.returncode)

    loop.add_reader(descriptor, check)
    return stop


class ProcessProbe:
    """State of a child on POSIX, as the system reports it. Close it before closing stdin: it holds that pipe
    open.

    Args:
        pid: the child.
        stdin: the descriptor of the pipe to its stdin. The probe keeps a duplicate, because the event loop
            closes its own as soon as the child has ended.
    """

    def __init__(self, pid: int, stdin: int) -> None:
        self._stdin: int | None = os.dup(stdin)
        self._stat, self._syscall = _open_proc(pid, "stat"), _open_proc(pid, "syscall")

    @property
    def kill_pending(self) -> bool:
        """Whether a SIGKILL is pending: the child may still take input, but never acts on it. Linux only."""
        if sys.platform != "linux" or self._stat is None:
            return False
        try:
            # A fatal signal wakes a sleeping process: one that sleeps in a system call has none pending. Its
            # state is faster to read than its signals.
            if self._syscall is not None and not os.pread(self._syscall, 8, 0).startswith(b"running"):
                return False
            stat = os.pread(self._stat, 4096, 0)
        except OSError:
            return False  # the process has ended, which closes the pipe
        pending = stat.rpartition(b")")[2].split()[28]
        return bool(int(pending) & 1 << signal.SIGKILL - 1)

    @property
    def unread(self) -> int:
        """Number of bytes in the pipe to stdin that were never read; 0 while the pipe has a reader."""
        if sys.platform == "win32" or self._stdin is None:
            return 0
        import fcntl
        import select
        import termios

        poll = select.poll()
        poll.register(self._stdin, 0)
        # A process that ends closes its descriptors one by one, in any order: wait a moment for this one.
        if not any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(READER_GONE)):
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(self._stdin, termios.FIONREAD, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._stdin, self._stat, self._syscall):
            if descriptor is not None:
                os.close(descriptor)
        self._stdin = self._stat = self._syscall = None


def _open_proc(pid: int, name: str) -> int | None:
    """Open /proc/PID/NAME; None if it does not exist or may not be read."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
