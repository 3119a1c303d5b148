"""Limits how many child processes start at once, and times each start fairly on a busy machine.

A start needs CPU time, so a slot is held only while the child uses the CPU (or waits for it, or for a disk).
A child that sleeps, downloads or hangs releases its slot for the next one and continues without it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Urgency = Literal[0, 1, 2]
"""0: nothing waits for the server; 1: a refresh or a listing does; 2: a call does."""

SAMPLE = 0.01
"""Seconds between two measurements of the children that hold slots, while others wait for one."""
BUSY = 0.25
"""Share of the time between two measurements in which a busy child runs or waits for a CPU."""
BLIND = 2.0
"""Seconds for which a slot is held where the use of the CPU cannot be measured (not Linux)."""
MOST_EXTENSION = 10
"""A start never takes longer than this multiple of `connect_timeout`, however busy the machine is."""
MAX_TREE = 64
"""Most processes of one child that are measured."""


def default_limit() -> int:
    """Return twice the number of CPUs that this process may use."""
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return 2 * max(cpus, 1)


class StartSlot:
    """The right to start one child. `release()` it when the server is connected or has failed."""

    def __init__(self, limit: StartLimit) -> None:
        self._limit = limit
        self._pid: int | None = None
        self._since = self._seen = time.monotonic()
        self._used = 0.0

    def started(self, pid: int) -> None:
        """Record that the child runs: from now on its use of the CPU decides how long the slot is held."""
        self._pid = pid
        self._since = self._seen = time.monotonic()

    def release(self) -> None:
        """Give the slot to the next start. Idempotent."""
        self._limit.release(self)

    def spare(self) -> bool:
        """Whether the child does not need its slot any more."""
        if self._pid is None:
            return False
        now, usage = time.monotonic(), cpu_usage(self._pid)
        if usage is None:
            return now - self._since > BLIND
        used = usage[0] + usage[1]
        busy = usage[2] or used - self._used >= BUSY * (now - self._seen)
        self._used, self._seen = used, now
        return not busy


class StartLimit:
    """Slots for starts, granted to the most urgent start first, then in the order of arrival.

    A start that a call waits for does not wait behind others: such starts have the same number of additional
    slots.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._held: set[StartSlot] = set()
        self._queue: dict[asyncio.Future[StartSlot], Callable[[], Urgency]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def starting(self) -> int:
        """Slots that are held."""
        return len(self._held)

    async def enter(self, urgency: Callable[[], Urgency]) -> StartSlot:
        """Wait for a slot. Call `update_order()` when `urgency` has risen."""
        turn: asyncio.Future[StartSlot] = asyncio.get_running_loop().create_future()
        self._queue[turn] = urgency
        self.update_order()
        try:
            return await turn
        except BaseException:
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled():
                turn.result().release()
            raise

    def update_order(self) -> None:
        """Grant the slots that are free."""
        while self._queue:
            turn = max(self._queue, key=lambda one: self._queue[one]())  # the first of the most urgent
            room = self._limit() * (2 if self._queue[turn]() == 2 else 1)
            if not turn.done() and len(self._held) >= room:
                break
            del self._queue[turn]
            if not turn.done():
                slot = StartSlot(self)
                self._held.add(slot)
                turn.set_result(slot)
        if self._queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAMPLE, self._sample)

    def release(self, slot: StartSlot) -> None:
        if slot in self._held:
            self._held.discard(slot)
            self.update_order()

    def _sample(self) -> None:
        self._timer = None
        if self._queue:
            self._held -= {slot for slot in self._held if slot.spare()}
            self.update_order()


class ConnectTimer:
    """Calls `expire` after `timeout` seconds of an attempt to connect.

    Not counted: the time in the start queue (`pause`), the time in which the child was ready to run and the
    machine had no CPU for it, and the time in which our own event loop was blocked.
    """

    def __init__(self, timeout: float, expire: Callable[[], None]) -> None:
        self._timeout = self._left = timeout
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._due = self._due_monotonic = 0.0
        self._checked = 0.0
        self._extended = 0.0
        self._pid: int | None = None
        self._waited = 0.0

    def resume(self) -> None:
        """Run for the time that is left."""
        self._run(self._left)

    def pause(self) -> None:
        """Stop counting until `resume()`."""
        self._left = max(self._due - self._loop.time(), 0.0)
        self.stop()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def watch(self, pid: int) -> None:
        """Leave out the time that the child `pid` spends waiting for a CPU."""
        self._pid, self._waited = pid, 0.0
        self._checked = time.monotonic()

    def _run(self, seconds: float) -> None:
        self.stop()
        self._due, self._due_monotonic = self._loop.time() + seconds, time.monotonic() + seconds
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._handle = None
        extension = min(self._lost_time(), MOST_EXTENSION * self._timeout - self._timeout - self._extended)
        if extension < max(0.05, self._timeout / 100):
            self._expire()
            return
        self._extended += extension
        self._run(extension)

    def _lost_time(self) -> float:
        """Return the seconds since the last check in which the child could not run or the event loop was
        blocked."""
        now = time.monotonic()
        # A clock that was turned forward (`mooring.testing`) is not a blocked loop: that takes real time.
        late = max(min(now - self._due_monotonic, self._loop.time() - self._due), 0.0)
        if self._pid is None or (usage := cpu_usage(self._pid)) is None:
            return late
        waited, passed = usage[1] - self._waited, now - self._checked
        self._waited, self._checked = usage[1], now
        return late + min(max(waited, 0.0), passed)


def cpu_usage(pid: int) -> tuple[float, float, bool] | None:
    """Return the seconds that a process and its descendants ran and waited for a CPU, and whether one of them
    runs, could run, or waits for a disk now. None if that is unknown, or the process has ended."""
    ran = waited = 0
    active = False
    tree = [pid]
    for one in tree:
        place = f"/proc/{one}"
        try:
            times = Path(f"{place}/schedstat").read_bytes().split()
            state = Path(f"{place}/stat").read_bytes().rpartition(b") ")[2][:1]
            children = Path(f"{place}/task/{one}/children").read_bytes().split()
        except OSError:
            if one == pid:
                return None
            continue
        # The kernel adds the time in the run queue when the process leaves it: until then only its state
        # shows it.
        ran, waited, active = ran + int(times[0]), waited + int(times[1]), active or state in (b"R", b"D")
        tree.extend(map(int, children[: max(MAX_TREE - len(tree), 0)]))
    return ran / 1e9, waited / 1e9, active
