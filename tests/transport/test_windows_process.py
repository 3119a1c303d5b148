"""The Windows side of child processes, run on any platform through the `Kernel` seam."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from ctypes import sizeof
from typing import Any

import pytest

from mooring.core.redact import Redactor
from mooring.transport import process, windows_process
from mooring.transport.process import Child
from mooring.transport.windows_process import (
    Accounting,
    ExtendedLimits,
    JobObject,
    Kernel32,
    find_program,
)

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="the fake ends processes with POSIX signals")


class FakeKernel:
    """Records the calls; processes of a job are real processes of this system."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.calls: list[str] = []
        self.jobs: dict[int, set[int]] = {}
        self.open: set[int] = set()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise OSError(f"{name} failed")

    def create_job(self) -> int:
        self._called("create_job")
        self.jobs[1] = set()
        self.open.add(1)
        return 1

    def open_process(self, pid: int) -> int:
        self._called("open_process")
        self.open.add(pid + 1_000_000)
        return pid + 1_000_000

    def assign(self, job: int, process: int) -> None:
        self._called("assign")
        self.jobs[job].add(process - 1_000_000)

    def resume(self, process: int) -> None:
        self._called("resume")

    def active(self, job: int) -> int:
        self._called("active")
        return sum(_runs(pid) for pid in self.jobs[job])

    def terminate(self, job: int) -> None:
        self._called("terminate")
        for pid in self.jobs[job]:
            if _runs(pid):
                os.kill(pid, signal.SIGKILL)

    def close(self, handle: int) -> None:
        self._called("close")
        self.open.remove(handle)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def which(**found: str) -> Any:
    def look(name: str, *, path: str | None) -> str | None:
        assert path == "C:\\tools"
        return found.get(name)

    return look


@pytest.mark.parametrize("variable", ["PATH", "Path"])
def test_a_program_is_found_through_the_path_of_the_child(variable: str) -> None:
    found = find_program(["npx", "-y", "it"], {variable: "C:\\tools"}, which(npx="C:\\tools\\npx.cmd"))
    assert found == ["C:\\tools\\npx.cmd", "-y", "it"]


def test_a_program_that_is_not_there_is_reported_as_not_found() -> None:
    with pytest.raises(FileNotFoundError, match="uvx"):
        find_program(["uvx"], {"PATH": "C:\\tools"}, which())


@pytest.mark.parametrize("argument", ["a&calc", "%PATH%", 'x" y', "a|b", "a^b", "a\nb", "a>b"])
def test_a_batch_file_gets_no_argument_that_cmd_would_interpret(argument: str) -> None:
    with pytest.raises(ValueError, match="batch file"):
        find_program(["npx", argument], {"PATH": "C:\\tools"}, which(npx="C:\\tools\\npx.CMD"))


def test_an_executable_gets_any_argument() -> None:
    found = find_program(["uvx", "a&b"], {"PATH": "C:\\tools"}, which(uvx="C:\\tools\\uvx.exe"))
    assert found == ["C:\\tools\\uvx.exe", "a&b"]


def test_a_process_is_in_its_job_before_it_runs() -> None:
    kernel = FakeKernel()
    job = JobObject("clock", kernel)
    job.run(os.getpid())
    assert kernel.calls == ["create_job", "open_process", "assign", "resume", "close"]
    assert job.active
    kernel.jobs[1].clear()
    assert not job.active
    job.close()
    job.close()
    assert kernel.open == set()


@pytest.mark.parametrize("step", ["create_job", "assign"])
def test_a_process_runs_without_a_job_when_there_can_be_none(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = FakeKernel(step)
    job = JobObject("clock", kernel)
    job.run(os.getpid())
    assert "resume" in kernel.calls
    assert not job.active
    job.terminate()
    job.close()
    assert kernel.open == set()
    assert "server=clock" in caplog.text


def test_a_process_that_cannot_be_resumed_fails_to_start() -> None:
    kernel = FakeKernel("resume")
    job = JobObject("clock", kernel)
    with pytest.raises(OSError, match="resume failed"):
        job.run(os.getpid())
    job.close()
    assert kernel.open == set()


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel()
    monkeypatch.setattr(process, "WINDOWS", True)
    monkeypatch.setattr(windows_process, "CREATION_FLAGS", 0)  # subprocess refuses them elsewhere
    monkeypatch.setattr(windows_process, "_kernel", lambda: kernel)
    return kernel


async def spawn(code: str, env: Mapping[str, str] | None = None) -> Child:
    return await Child.spawn(
        "lab", [sys.executable, "-c", code], env=dict(env or os.environ), cwd=None, redact=Redactor(())
    )


@posix_only
async def test_a_child_talks_through_its_pipes_and_ends_when_its_input_does(on_windows: FakeKernel) -> None:
    child = await spawn(
        "import sys; print(sys.stdin.readline().upper()); sys.stderr.write('bye\\n'); sys.stdin.read()"
    )
    got = asyncio.Queue[bytes]()
    child.listen(got.put_nowait, lambda: None)
    child.pause()
    child.resume()
    child.write(b"hello\n")
    assert (await asyncio.wait_for(got.get(), 10)).startswith(b"HELLO")
    await child.end(10)
    assert child.returncode == 0
    assert child.stderr_tail == ("bye",)
    assert on_windows.open == set()


@posix_only
async def test_a_child_that_does_not_end_is_terminated_with_its_job(on_windows: FakeKernel) -> None:
    child = await spawn("import time; time.sleep(600)")
    await child.end(0.1)
    assert "terminate" in on_windows.calls
    assert child.returncode == -signal.SIGKILL
    assert on_windows.open == set()


@posix_only
async def test_a_child_that_cannot_be_resumed_is_not_left_behind(on_windows: FakeKernel) -> None:
    on_windows.failing = ("resume",)
    with pytest.raises(OSError, match="resume failed"):
        await spawn("import time; time.sleep(600)")
    (pid,) = on_windows.jobs[1]
    for _ in range(100):
        if not _runs(pid):
            break
        await asyncio.sleep(0.05)
    assert not _runs(pid)
    assert on_windows.open == set()


class _Function:
    def __init__(self, name: str, library: FakeLibrary) -> None:
        self.name, self.library = name, library

    def __call__(self, *arguments: Any) -> int:
        self.library.calls.append(self.name)
        assert len(arguments) == len(self.argtypes), self.name
        return self.library.results.get(self.name, 1)

    argtypes: Any = ()
    restype: Any = None


class FakeLibrary:
    """A DLL whose functions return 1, or what `results` says."""

    def __init__(self, **results: int) -> None:
        self.results = results
        self.calls: list[str] = []
        self._functions: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> _Function:
        return self._functions.setdefault(name, _Function(name, self))


def kernel32(ntdll: FakeLibrary | None = None, **results: int) -> tuple[Kernel32, FakeLibrary]:
    library = FakeLibrary(**results)
    return Kernel32(library, ntdll or FakeLibrary(NtResumeProcess=0), lambda: OSError("last error")), library


def test_the_structures_have_the_sizes_that_windows_expects() -> None:
    assert (sizeof(ExtendedLimits), sizeof(Accounting)) == (144, 48)


def test_each_system_call_is_made_with_its_declared_arguments() -> None:
    kernel, library = kernel32()
    job = kernel.create_job()
    process = kernel.open_process(7)
    kernel.assign(job, process)
    kernel.resume(process)
    assert kernel.active(job) == 0
    kernel.terminate(job)
    kernel.close(process)
    assert library.calls == [
        *("CreateJobObjectW", "SetInformationJobObject", "OpenProcess", "AssignProcessToJobObject"),
        *("QueryInformationJobObject", "TerminateJobObject", "CloseHandle"),
    ]


def test_a_failing_system_call_raises_the_last_error() -> None:
    kernel, library = kernel32(SetInformationJobObject=0, AssignProcessToJobObject=0)
    with pytest.raises(OSError, match="last error"):
        kernel.create_job()
    assert library.calls[-1] == "CloseHandle"
    with pytest.raises(OSError, match="last error"):
        kernel.assign(1, 2)
    kernel, _ = kernel32(FakeLibrary(NtResumeProcess=-1073741816))
    with pytest.raises(OSError, match="0xc0000008"):
        kernel.resume(2)
