"""A script that starts servers and ends them with all their descendants (Linux). See `supervisor`.

It runs in an interpreter of its own, without site packages and without mooring. The first process forks one
supervisor per server. A supervisor is a child subreaper: a descendant of its server that loses its
parent becomes a child of the supervisor, regardless of its session, environment, descriptors and limits. When
the supervisor has no children left, the server and all its descendants have ended. The first process is a
subreaper as well: it kills what is left of a server whose supervisor was killed, when the host ends.

The host sends one byte with five descriptors per server: the control socket, the server's stdin, stdout and
stderr, and the working directory. Everything else is sent over the control socket; see `supervise`.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from _socket import socket
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any
else:
    import _signal as signal  # `signal`, `socket` and `contextlib` take milliseconds to import

assert sys.platform == "linux"  # in this form also for type checkers

DESCRIPTORS = 5
GRACE = 1.0
"""Seconds that servers have to end by themselves after the host died without closing them."""
HOPELESS = 30.0
"""Seconds after which descendants that cannot be killed (another user's) are left running."""
PATIENCE = 100
"""Rounds of killing without a pause."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RESTORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ")


def main() -> None:
    """Fork a supervisor for each request on stdin, a socket, until the host closes it or dies."""
    import _socket
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    host = int(sys.argv[1])
    alive = os.pidfd_open(host)
    if os.getppid() != host:
        return
    inherited = {name: signal.getsignal(getattr(signal, name)) for name in RESTORED[:4]}
    for name in inherited:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps supervisors
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.chdir("/")
    supervisors: set[int] = set()
    requests = _socket.socket(fileno=os.dup(0))
    while True:
        ready = {descriptor for descriptor, _ in _poll(requests.fileno(), alive)}
        if requests.fileno() not in ready:
            break
        data, ancillary, _, _ = requests.recvmsg(
            1, _socket.CMSG_SPACE(4 * DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            break
        given = [
            int.from_bytes(content[start : start + 4], sys.byteorder)
            for _, _, content in ancillary
            for start in range(0, len(content), 4)
        ]
        supervisor = os.fork() if len(given) == DESCRIPTORS else None
        if supervisor == 0:
            requests.close()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.close(null)
            control = _socket.socket(fileno=given[0])
            status = 1
            try:
                supervise(control, given[1:], alive, prctl, inherited)
                status = 0
            finally:
                os._exit(status)
        for descriptor in given:
            os.close(descriptor)
        supervisors = {*supervisors.intersection(_children()), supervisor or 0}
    _end_adopted(supervisors)


def _end_adopted(supervisors: set[int]) -> None:
    """Kill children that lost their supervisor, until the supervisors have ended as well."""
    began = monotonic()
    while (left := _children()) and monotonic() < began + HOPELESS:
        for pid in left:
            if pid not in supervisors:
                _kill(pid)
        sleep(0.02)


def supervise(
    control: socket, pipes: Sequence[int], alive: int, prctl: Callable[..., int], inherited: Mapping[str, Any]
) -> None:
    """Start one server and end it.

    From the host: a length of eight digits and the marshalled `(candidates, argv, env, cwd)`, then `k` to
    kill all that is left. To the host: a line with the process id, or with 0, an error number and its place;
    a line `exit CODE` when the server ends; a line `ended` when no descendant is left.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noted)
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return  # the host starts the server itself
    candidates, argv, env, cwd = marshal.loads(_receive(control, int(_receive(control, 8))))
    server, failure = _start(candidates, argv, env, cwd, pipes, prctl, inherited)
    for descriptor in pipes:
        os.close(descriptor)
    control.sendall(f"{server} {failure}\n".encode())
    control.setblocking(False)
    deadline: float | None = None
    while True:
        server, left = _reap(control, server)
        if not left:
            break
        watched = (woken,) if deadline else (woken, alive, control.fileno())
        ready = {descriptor for descriptor, _ in _poll(*watched, deadline=deadline)}
        if woken in ready:
            os.read(woken, 4096)
        if not deadline and control.fileno() in ready:
            try:
                command = control.recv(16)
            except OSError:
                command = b""
            if command:
                deadline = monotonic()
        if not deadline and ready - {woken}:
            deadline = monotonic() + GRACE
        if deadline and monotonic() >= deadline:
            _kill_all(control, server)
            break
    _send(control, "ended")


def _noted(_signal: int, _frame: object) -> None:
    """A handler, so that the signal is written to the wakeup descriptor."""


def _start(
    candidates: Iterable[bytes],
    argv: list[bytes],
    env: Mapping[bytes, bytes],
    cwd: bytes | None,
    pipes: Sequence[int],
    prctl: Callable[..., int],
    inherited: Mapping[str, Any],
) -> tuple[int, str]:
    """Run the program in a session of its own; return its process id, or 0 with an error number and its
    place."""
    failure_pipe, report = os.pipe()
    us = os.getpid()
    server = os.fork()
    if server == 0:
        place, number = "start", 0
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != us:
                os._exit(255)
            signal.set_wakeup_fd(-1)
            for name in RESTORED:
                ignored = inherited.get(name) is signal.SIG_IGN
                signal.signal(getattr(signal, name), signal.SIG_IGN if ignored else signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            place = "cwd"
            os.fchdir(pipes[3])
            if cwd is not None:
                os.chdir(cwd)
            for number, pipe in enumerate(pipes[:3]):
                os.dup2(pipe, number)
            place, number = "exec", 0
            for candidate in candidates:
                try:
                    os.execve(candidate, argv, env)
                except (FileNotFoundError, NotADirectoryError) as problem:
                    number = number or problem.errno
                except OSError as problem:
                    number = problem.errno
        except OSError as problem:
            number = problem.errno
        finally:
            os.write(report, f"{number or 2} {place}".encode())
            os._exit(255)
    os.close(report)
    failure = os.read(failure_pipe, 100).decode()
    os.close(failure_pipe)
    return (0 if failure else server), failure


def _reap(control: socket, server: int) -> tuple[int, bool]:
    """Wait for children that have ended; return the server (0 once it has ended) and whether a child is
    left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return server, False
        if not pid:
            return server, True
        if pid == server:
            server = 0
            _send(control, f"exit {os.waitstatus_to_exitcode(status)}")


def _kill_all(control: socket, server: int) -> None:
    """Kill children until there are none: descendants become children when their parents die."""
    if server:
        try:  # noqa: SIM105
            os.killpg(server, signal.SIGKILL)
        except OSError:
            pass
    began, rounds = monotonic(), 0
    while True:
        server, left = _reap(control, server)
        if not left or monotonic() > began + HOPELESS:
            return
        for pid in _children():
            _kill(pid)
        rounds += 1
        if rounds > PATIENCE:
            sleep(0.001 if monotonic() < began + 1 else 0.05)


def _kill(pid: int) -> None:
    try:  # noqa: SIM105
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        pass
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == me:
                    found.append(int(entry))
        except (OSError, ValueError):
            pass
    return found


def _poll(*descriptors: int, deadline: float | None = None) -> list[tuple[int, int]]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll.poll(None if deadline is None else max(0, 1000 * (deadline - monotonic())))


def _receive(control: socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = control.recv(size - len(data))
        if not piece:
            os._exit(1)
        data += piece
    return data


def _send(control: socket, line: str) -> None:
    try:  # noqa: SIM105
        control.send(f"{line}\n".encode())
    except OSError:  # the host has ended
        pass


if __name__ == "__main__":
    main()
