"""Confine a process on Linux: Landlock for files and ports, seccomp for sockets. Standard library only.

Run as a program, it confines itself and then becomes another program:

    python -I -S confine.py '{"read": ["/usr", "/lib"], "write": [], "sockets": false}' -- COMMAND ARGS...

`confine` does the same to the current process and everything that it starts later. Neither needs root. The
parts that this kernel does not support are returned by name; `Confinement` says what a process may still do.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import sys
from typing import Any

__all__ = ["Confinement", "confine", "landlock_abi", "seccomp_supported"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights by the Landlock version that introduced them."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_TCP = 3
_SCOPES = 3
"""No abstract unix sockets and no signals to processes outside."""

_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""By machine: audit number and number of `socket`. `socketpair` stays: it reaches no other process."""
_IO_URING_SETUP, _PTRACE = 425, {"x86_64": 101, "aarch64": 117}
_X32 = 0x40000000


class Confinement:
    """The permissions of a confined process."""

    def __init__(
        self, *, read: tuple[str, ...] = (), write: tuple[str, ...] = (), sockets: bool = False
    ) -> None:
        """
        Args:
            read: Files and directories that may be read and executed.
            write: Files and directories that may also be changed.
            sockets: Whether sockets may be created. TCP stays forbidden in either case.
        """
        self.read, self.write, self.sockets = read, write, sockets


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel; 0 if there is none or it is disabled."""
    if sys.platform != "linux":
        return 0
    version = _libc().syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(int(version), 0)


def seccomp_supported() -> bool:
    """Return whether the filter for sockets is known for this machine."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def confine(policy: Confinement) -> list[str]:
    """Confine this process and its future children, which cannot be undone.

    Call it before other threads are started: they would not be confined.

    Returns:
        What could not be applied: `landlock`, `seccomp`, `signals`; empty if everything was.

    Raises:
        OSError: The kernel has the feature and refused to apply it.
    """
    if sys.platform != "linux":
        return ["landlock", "seccomp", "signals"]
    libc = _libc()
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    missing: list[str] = []
    abi = landlock_abi()
    if abi:
        _restrict_files(libc, policy, abi)
    else:
        missing.append("landlock")
    if abi < 6:
        missing.append("signals")
    if not seccomp_supported():
        missing.append("seccomp")
    else:
        _filter_calls(libc, sockets=policy.sockets)
    return missing


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _restrict_files(libc: Any, policy: Confinement, abi: int) -> None:
    handled = max(rights for version, rights in _FILE_RIGHTS.items() if version <= abi)
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _checked(
        libc.syscall(
            ctypes.c_long(_CREATE_RULESET), attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)
        ),
        "landlock_create_ruleset",
    )
    try:
        for path in policy.read:
            _allow(libc, ruleset, path, _READ & handled)
        for path in policy.write:
            _allow(libc, ruleset, path, handled)
        _checked(
            libc.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0)),
            "landlock_restrict_self",
        )
    finally:
        os.close(ruleset)


_O_PATH, _O_CLOEXEC = 0o10000000, 0o2000000
"""Linux values of `os.O_PATH` and `os.O_CLOEXEC`, which other systems do not have."""


def _allow(libc: Any, ruleset: int, path: str, rights: int) -> None:
    """Allow rights below a path. A path that does not exist is left out."""
    try:
        descriptor = os.open(path, _O_PATH | _O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(
            libc.syscall(
                ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0)
            ),
            "landlock_add_rule",
        )
    finally:
        os.close(descriptor)


def _filter_calls(libc: Any, *, sockets: bool) -> None:
    """Install a seccomp filter: calls of another architecture kill the process, refused calls give EPERM."""
    machine = platform.machine()
    audit, socket = _MACHINES[machine]
    refused = [_IO_URING_SETUP, _PTRACE[machine]] + ([] if sockets else [socket])
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    kill, deny, allow = 0x80000000, 0x00050000 | 1, 0x7FFF0000
    program = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, audit),
        (give, 0, 0, kill),
        (load, 0, 0, 0),  # the number of the call
    ]
    if machine == "x86_64":
        program += [(at_least, 0, 1, _X32), (give, 0, 0, kill)]
    for number in refused:
        program += [(equal, 0, 1, number), (give, 0, 0, deny)]
    program.append((give, 0, 0, allow))
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _checked(libc.prctl(_PR_SET_SECCOMP, 2, filters, 0, 0), "seccomp")


def main(argv: list[str]) -> int:
    """Confine this process, then execute the command after `--`."""
    try:
        given, command = json.loads(argv[1]), argv[argv.index("--") + 1 :]
        policy = Confinement(
            read=tuple(given.get("read", ())),
            write=tuple(given.get("write", ())),
            sockets=bool(given.get("sockets", False)),
        )
    except (IndexError, ValueError):
        sys.stderr.write("usage: confine.py POLICY -- COMMAND [ARGS...]\n")
        return 2
    if missing := confine(policy):
        sys.stderr.write(f"confine: this kernel has no {', '.join(missing)}\n")
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        sys.stderr.write(f"confine: {command[0]}: {problem.strerror}\n")
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv))
