"""Processes on Windows: programs found through PATHEXT, and Job Objects that end a process tree.

Only Windows imports this module at run time. The system calls are behind `Kernel`, so that tests run the rest
on any platform.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import (
    Structure,
    byref,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    c_wchar_p,
    sizeof,
)
from typing import Any, Protocol

from mooring.config.logs import logger

log = logger("mooring.server")

CREATE_SUSPENDED, CREATE_NO_WINDOW = 0x4, 0x0800_0000
CREATION_FLAGS = CREATE_SUSPENDED | CREATE_NO_WINDOW
"""A process starts suspended, so that it cannot start another one before it is in its job."""
BATCH_FILES = (".bat", ".cmd")
SHELL_CHARACTERS = frozenset('"%&|<>^!\r\n')
"""Characters that `cmd.exe`, which runs every batch file, does not pass on as they are."""

_KILL_ON_JOB_CLOSE = 0x2000
_BASIC_ACCOUNTING, _EXTENDED_LIMITS = 1, 9
_TERMINATE, _SET_QUOTA, _SUSPEND_RESUME = 0x0001, 0x0100, 0x0800


def find_program(
    argv: Sequence[str], env: Mapping[str, str], which: Callable[..., str | None] = shutil.which
) -> list[str]:
    """Return `argv` with the full path of its program, such as that of `npx.cmd` for `npx`.

    Args:
        argv: the program and its arguments.
        env: the environment of the child. Its PATH is searched.
        which: `shutil.which`, which tries the extensions in PATHEXT.

    Raises:
        FileNotFoundError: there is no such program.
        ValueError: the program is a batch file, and `cmd.exe` would change one of its arguments.
    """
    path = next((value for name, value in env.items() if name.upper() == "PATH"), None)
    program = which(argv[0], path=path)
    if program is None:
        raise FileNotFoundError(argv[0])
    if program.lower().endswith(BATCH_FILES):
        for argument in argv[1:]:
            if not SHELL_CHARACTERS.isdisjoint(argument):
                raise ValueError(
                    f"{program!r} is a batch file, and cmd.exe would interpret the argument {argument!r}; "
                    "name an .exe (such as node.exe with a script), or set the value in `env`"
                )
    return [program, *argv[1:]]


class Kernel(Protocol):
    """The system calls that `JobObject` needs. Each raises OSError when it fails."""

    def create_job(self) -> int:
        """Return the handle of a new job, whose processes are killed when the handle is closed."""
        ...

    def open_process(self, pid: int) -> int:
        """Return a handle of the process."""
        ...

    def assign(self, job: int, process: int) -> None:
        """Add the process, and every process that it starts from now on, to the job."""
        ...

    def resume(self, process: int) -> None:
        """Resume a process that was created suspended."""
        ...

    def active(self, job: int) -> int:
        """Return the number of running processes in the job."""
        ...

    def terminate(self, job: int) -> None:
        """Kill every process in the job."""
        ...

    def close(self, handle: int) -> None:
        """Close a handle."""
        ...


class JobObject:
    """A Job Object: a process and its descendants, which are killed together.

    The system also kills them when this process dies, because the only handle of the job is closed then.
    """

    def __init__(self, server: str, kernel: Kernel | None = None) -> None:
        self._kernel = kernel if kernel is not None else _kernel()
        self._handle: int | None = None
        try:
            self._handle = self._kernel.create_job()
        except OSError as problem:
            self._warn(server, problem)
        self._server = server

    def run(self, pid: int) -> None:
        """Add a suspended process to the job and resume it.

        Raises:
            OSError: it cannot be resumed.
        """
        process = self._kernel.open_process(pid)
        try:
            if self._handle is not None:
                try:
                    self._kernel.assign(self._handle, process)
                except OSError as problem:
                    self._warn(self._server, problem)
                    self.close()
            self._kernel.resume(process)
        finally:
            self._kernel.close(process)

    @property
    def active(self) -> bool:
        """Whether a process of the job still runs."""
        if self._handle is None:
            return False
        try:
            return self._kernel.active(self._handle) > 0
        except OSError:
            return False

    def terminate(self) -> None:
        """Kill every process of the job."""
        if self._handle is not None:
            with suppress(OSError):
                self._kernel.terminate(self._handle)

    def close(self) -> None:
        """Close the handle, which kills every process that is left in the job."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                self._kernel.close(handle)

    @staticmethod
    def _warn(server: str, problem: OSError) -> None:
        log.warning(
            "no job object: server=%s error=%s; processes that the server starts may outlive it",
            server,
            problem,
        )


class BasicLimits(Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("PerProcessUserTimeLimit", c_int64),
        ("PerJobUserTimeLimit", c_int64),
        ("LimitFlags", c_uint32),
        ("MinimumWorkingSetSize", c_size_t),
        ("MaximumWorkingSetSize", c_size_t),
        ("ActiveProcessLimit", c_uint32),
        ("Affinity", c_size_t),
        ("PriorityClass", c_uint32),
        ("SchedulingClass", c_uint32),
    )


class ExtendedLimits(Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", c_uint64 * 6),
        ("ProcessMemoryLimit", c_size_t),
        ("JobMemoryLimit", c_size_t),
        ("PeakProcessMemoryUsed", c_size_t),
        ("PeakJobMemoryUsed", c_size_t),
    )


class Accounting(Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION."""

    _fields_ = (
        ("Times", c_int64 * 4),
        ("TotalPageFaultCount", c_uint32),
        ("TotalProcesses", c_uint32),
        ("ActiveProcesses", c_uint32),
        ("TotalTerminatedProcesses", c_uint32),
    )


class Kernel32:
    """`Kernel` through kernel32.dll and ntdll.dll.

    Args:
        kernel32: the library; a fake in tests.
        ntdll: the library; a fake in tests.
        error: makes the exception for the last error of this thread.
    """

    def __init__(self, kernel32: Any, ntdll: Any, error: Callable[[], OSError]) -> None:
        self._kernel32, self._ntdll, self._error = kernel32, ntdll, error
        for function, result, *arguments in (
            (kernel32.CreateJobObjectW, c_void_p, c_void_p, c_wchar_p),
            (kernel32.SetInformationJobObject, c_int32, c_void_p, c_int32, c_void_p, c_uint32),
            (kernel32.QueryInformationJobObject, c_int32, c_void_p, c_int32, c_void_p, c_uint32, c_void_p),
            (kernel32.AssignProcessToJobObject, c_int32, c_void_p, c_void_p),
            (kernel32.TerminateJobObject, c_int32, c_void_p, c_uint32),
            (kernel32.OpenProcess, c_void_p, c_uint32, c_int32, c_uint32),
            (kernel32.CloseHandle, c_int32, c_void_p),
            (ntdll.NtResumeProcess, c_int32, c_void_p),
        ):
            function.restype, function.argtypes = result, arguments

    def create_job(self) -> int:
        job = self._check(self._kernel32.CreateJobObjectW(None, None))
        limits = ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
        if not self._kernel32.SetInformationJobObject(job, _EXTENDED_LIMITS, byref(limits), sizeof(limits)):
            problem = self._error()
            self.close(job)
            raise problem
        return job

    def open_process(self, pid: int) -> int:
        return self._check(self._kernel32.OpenProcess(_TERMINATE | _SET_QUOTA | _SUSPEND_RESUME, False, pid))

    def assign(self, job: int, process: int) -> None:
        self._check(self._kernel32.AssignProcessToJobObject(job, process))

    def resume(self, process: int) -> None:
        if (status := self._ntdll.NtResumeProcess(process)) < 0:
            raise OSError(f"NtResumeProcess failed with status {status & 0xFFFF_FFFF:#x}")

    def active(self, job: int) -> int:
        found = Accounting()
        self._check(
            self._kernel32.QueryInformationJobObject(
                job, _BASIC_ACCOUNTING, byref(found), sizeof(found), None
            )
        )
        return found.ActiveProcesses

    def terminate(self, job: int) -> None:
        self._check(self._kernel32.TerminateJobObject(job, 1))

    def close(self, handle: int) -> None:
        self._check(self._kernel32.CloseHandle(handle))

    def _check(self, result: int | None) -> int:
        if not result:
            raise self._error()
        return result


def _kernel() -> Kernel:
    if sys.platform != "win32":
        raise OSError(f"there are no job objects on {os.name}")
    import ctypes

    return Kernel32(
        ctypes.WinDLL("kernel32", use_last_error=True),
        ctypes.WinDLL("ntdll"),
        lambda: ctypes.WinError(ctypes.get_last_error()),
    )
