"""The worker processes of a host: started when needed, used for one script at a time, killed on overrun."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic_core import from_json, to_json

from mooring.concurrency import shielded
from mooring.config.logs import logger
from mooring.errors import ConfigError
from mooring.scripts.worker import HEAD, LARGEST_FRAME, LARGEST_SNAPSHOT, LONGEST_OUTPUT
from mooring.transport.confine import landlock_abi, seccomp_supported

__all__ = ["Worker", "WorkerLost", "Workers", "missing_walls", "scripts_installed"]

log = logger("mooring.scripts")

MOST_WORKERS = 4
"""Scripts that run at once in one host; others wait."""
MOST_IDLE = 2
IDLE = 60.0
"""Seconds after which an unused worker ends."""
START = 20.0
STORES = ("/nix/store", "/gnu/store")
"""Where other distributions keep their libraries."""
_PROGRAM = Path(__file__).with_name("worker.py")
_LARGEST = LARGEST_FRAME + 6 * LONGEST_OUTPUT + (8 << 20)


class WorkerLost(Exception):
    """The worker process ended. Its text says how."""


def scripts_installed() -> bool:
    """Return whether the extra `scripts` is installed."""
    return importlib.util.find_spec("pydantic_monty") is not None


def missing_walls() -> list[str]:
    """Return the parts of the operating-system sandbox that this machine does not support."""
    walls = {"Landlock": landlock_abi() > 0, "seccomp": seccomp_supported()}
    return [name for name, there in walls.items() if not there]


@cache
def _setup() -> tuple[list[str], str]:
    """Return the arguments of a worker, and the problem if scripts are not installed."""
    spec = importlib.util.find_spec("pydantic_monty")
    if spec is None or not spec.submodule_search_locations:
        return (
            [],
            "Scripts need the extra `mooring[scripts]`: install it with `pip install 'mooring[scripts]'`.",
        )
    package = Path(next(iter(spec.submodule_search_locations)))
    binary = _binary()
    if binary is None:
        return [], "The program `monty` of pydantic-monty was not found; install `mooring[scripts]` again."
    libraries = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", *STORES)
    stdlib = Path(os.__file__).parent
    setup = {
        "paths": [str(Path(__file__).parents[2]), str(package.parent)],
        "read": [binary, str(package), str(stdlib), str(Path(sys.base_prefix) / "lib"), *libraries],
        "binary": binary,
        "confine": sys.platform == "linux",
        "longest": 3600.0,
    }
    return [sys.executable, "-I", "-S", str(_PROGRAM), json.dumps(setup)], ""


def _binary() -> str | None:
    """Return the interpreter that pydantic-monty brings. The environment cannot replace it."""
    import sysconfig

    name = "monty.exe" if sys.platform == "win32" else "monty"
    schemes = [sysconfig.get_path("scripts")]
    with suppress(KeyError):
        schemes.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    return next((str(path) for one in schemes if (path := Path(one) / name).is_file()), None)


class _WorkerOutput(asyncio.Protocol):
    """Receives what a worker writes at once: asyncio's own protocol would need one more turn of the loop."""

    def __init__(self, received: Callable[[bytes], None], own: asyncio.BaseProtocol) -> None:
        self._received = received
        self.connection_lost = own.connection_lost

    def data_received(self, data: bytes) -> None:
        self._received(data)


class Worker(asyncio.SubprocessProtocol):
    """One worker process. Each frame that is sent has one event as its answer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[int] = loop.create_future()
        """Done when the process has ended."""
        self.pid = 0
        self.idle: asyncio.TimerHandle | None = None
        self.waiting: Callable[[dict[str, Any]], bool] | None = None
        """Called with each event `waiting`; returns whether it handles it."""
        self._transport: asyncio.SubprocessTransport | None = None
        self._in: Any = None
        self._received = bytearray()
        self._events: deque[tuple[dict[str, Any], bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    @classmethod
    async def start(cls) -> Worker:
        """Start a worker; return it when it is ready.

        Raises:
            ConfigError: Scripts are not installed.
            WorkerLost: It did not start.
        """
        arguments, problem = _setup()
        if problem:
            raise ConfigError(problem)
        _, worker = await asyncio.get_running_loop().subprocess_exec(
            cls,
            *arguments,
            stderr=subprocess.DEVNULL,
            env={"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")} if sys.platform == "win32" else {},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(START):
                ready, _ = await worker.event()
        except TimeoutError:
            await worker.kill()
            raise WorkerLost(f"the worker did not start within {START:g} s") from None
        except BaseException:
            await worker.kill()
            raise
        _report(ready.get("missing") or [])
        return worker

    # --- for the event loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid, self._in = self._transport.get_pid(), self._transport.get_pipe_transport(0)
        out = cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))
        out.set_protocol(_WorkerOutput(self._read, out.get_protocol()))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._read(data)

    def _read(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= HEAD.size:
            text, more = HEAD.unpack_from(received)
            end = HEAD.size + text
            if text > _LARGEST or more > LARGEST_SNAPSHOT:
                self._ended = True  # no genuine worker sends such a frame
                break
            if len(received) < end + more:
                return
            try:
                event = from_json(bytes(received[HEAD.size : end]))
            except ValueError:
                self._ended = True
                break
            binary = bytes(received[end : end + more])
            del received[: end + more]
            if event["event"] != "waiting" or self.waiting is None or not self.waiting(event):
                self._events.append((event, binary))
        if self._events or self._ended:
            self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._ended = True
            self._wake()

    def process_exited(self) -> None:
        assert self._transport is not None
        if not self.gone.done():
            self.gone.set_result(self._transport.get_returncode() or 0)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- frames ---------------------------------------------------------------------------------

    async def exchange(self, do: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Send a frame and return the next event.

        Raises:
            WorkerLost: The process ended.
        """
        self._send(to_json({"do": do, **fields}), data)
        return await self.event()

    async def results(self, results: list[tuple[int, bool, bytes]]) -> tuple[dict[str, Any], bytes]:
        """Give the script the results of calls; return the next event."""
        self.give(results)
        return await self.event()

    def give(self, results: list[tuple[int, bool, bytes]]) -> None:
        """Give the script the results of calls, each with its id, whether it succeeded, and its JSON."""
        parts = [b"[%d,%s,%s]" % (id_, b"true" if ok else b"false", value) for id_, ok, value in results]
        self._send(b'{"do":"results","results":[' + b",".join(parts) + b"]}", b"")

    def _send(self, text: bytes, data: bytes) -> None:
        self._in.write(HEAD.pack(len(text), len(data)) + text + data)

    async def event(self) -> tuple[dict[str, Any], bytes]:
        """Return the next event of the worker."""
        while not self._events:
            if self._ended:
                await asyncio.wait({self.gone}, timeout=2)
                raise self.lost()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def interrupt(self, problem: Exception) -> None:
        """Let `event` raise an exception."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)

    def lost(self) -> WorkerLost:
        """Return the error that says how the process ended."""
        code = self.gone.result() if self.gone.done() else None
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return WorkerLost(f"the worker process ended ({how})")

    @property
    def alive(self) -> bool:
        return not self.gone.done() and not self._ended

    async def kill(self) -> None:
        """End the worker and its interpreter at once."""
        assert self._transport is not None
        if self.idle is not None:
            self.idle.cancel()
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._transport.kill()
            else:
                import signal

                os.killpg(self.pid, signal.SIGKILL)
        with shielded():
            await asyncio.wait({self.gone}, timeout=5)
        self._transport.close()


class Workers:
    """The workers of one host."""

    def __init__(self, most: int = MOST_WORKERS) -> None:
        self._free: list[Worker] = []
        self._all: set[Worker] = set()
        self._slots = asyncio.Semaphore(most)
        self._closed = False

    async def acquire(self) -> Worker:
        """Return a worker for one script, started if there is none; give it back with `release`."""
        await self._slots.acquire()
        try:
            while self._free:
                worker = self._free.pop()
                if worker.idle is not None:
                    worker.idle.cancel()
                if worker.alive:
                    return worker
                await self._drop(worker)
            worker = await Worker.start()
        except BaseException:
            self._slots.release()
            raise
        self._all.add(worker)
        return worker

    async def release(self, worker: Worker, *, usable: bool) -> None:
        """Give a worker back; one that is not usable is killed."""
        self._slots.release()
        if not usable or self._closed or len(self._free) >= MOST_IDLE or not worker.alive:
            await self._drop(worker)
            return
        self._free.append(worker)
        worker.idle = asyncio.get_running_loop().call_later(IDLE, self._expire, worker)

    def _expire(self, worker: Worker) -> None:
        if worker in self._free:
            self._free.remove(worker)
            task = asyncio.get_running_loop().create_task(self._drop(worker))
            worker.idle = None
            _ending.add(task)
            task.add_done_callback(_ending.discard)

    async def _drop(self, worker: Worker) -> None:
        self._all.discard(worker)
        await worker.kill()

    async def close(self) -> None:
        """Kill all workers."""
        self._closed = True
        self._free.clear()
        await asyncio.gather(*(self._drop(worker) for worker in list(self._all)))


_ending: set[asyncio.Task[None]] = set()
_reported: set[str] = set()


def _report(missing: list[str]) -> None:
    """Log once which parts of the sandbox the operating system does not support."""
    key = ",".join(missing)
    if missing and key not in _reported:
        _reported.add(key)
        log.warning(
            "scripts run without a part of the operating-system sandbox missing=%s",
            key,
        )
