"""Counts that the workers of one machine share: a table in shared memory, and permits as locks of a file.

A worker that is killed leaves nothing behind: the system releases its locks, and its successor clears its
column of the table.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from mooring.gateway.clients import SessionCounts
from mooring.gateway.routes import RateLimited
from mooring.servers.requests import ConcurrencyLimiter

assert sys.platform != "win32"

__all__ = ["ClientTable", "SharedGate", "SharedLimits", "SharedSessions"]

BUCKETS = 4096
PER_BUCKET = 16
"""Clients in one bucket. A further one replaces one that has no request and no session, the oldest first."""
_HEAD = struct.Struct("=16sdd")
"""Digest of the client, tokens of its bucket, and when they were counted (monotonic clock of the system)."""
_POLL = 0.005
"""Seconds between two tries to get a permit that another worker holds."""
EVERYONE = "*"
"""Account of the sessions of all clients."""


@lru_cache(maxsize=10_000)
def _digest(client: str) -> bytes:
    return blake2b(client.encode("utf-8", "surrogateescape"), digest_size=16).digest()


class ClientTable:
    """One row for each client: its rate, and for each worker its running requests and its sessions."""

    def __init__(self, folder: str, workers: int, number: int) -> None:
        self.workers, self._number = workers, number
        self._size = _HEAD.size + 2 * workers * 4
        length = BUCKETS * PER_BUCKET * self._size
        self._file = os.open(Path(folder, "clients"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, length)
        self._memory = mmap.mmap(self._file, length)
        # Counts are read without a lock. `struct` writes zeros first, which other processes would see.
        self._counts = memoryview(self._memory).cast("I")
        self._clear()

    def _clear(self) -> None:
        """Forget what an earlier process with this number counted."""
        width = PER_BUCKET * self._size
        for bucket in range(BUCKETS):
            start = bucket * width
            if any(self._memory[start : start + width]):
                with self._locked(bucket):
                    for row in range(start, start + width, self._size):
                        for kind in (0, 1):
                            self._put(row, kind, 0)

    @contextmanager
    def row(self, client: str) -> Generator[int]:
        """Lock the row of a client while the block runs; a new client gets an empty one."""
        digest = _digest(client)
        bucket = int.from_bytes(digest[:4], "little") % BUCKETS
        with self._locked(bucket):
            yield self._find(digest, bucket)

    @contextmanager
    def _locked(self, bucket: int) -> Generator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, bucket)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, bucket)

    def _find(self, digest: bytes, bucket: int) -> int:
        start = bucket * PER_BUCKET * self._size
        rows = range(start, start + PER_BUCKET * self._size, self._size)
        free: tuple[float, int] | None = None
        for row in rows:
            known, _, at = _HEAD.unpack_from(self._memory, row)
            if known == digest:
                return row
            if (free is None or at < free[0]) and not any(self._columns(row)):
                free = (at, row)
        row = rows[0] if free is None else free[1]  # all in use: they share a row, which is stricter
        if free is not None:
            _HEAD.pack_into(self._memory, row, digest, -1.0, 0.0)
        return row

    def _columns(self, row: int) -> memoryview:
        place = (row + _HEAD.size) // 4
        return self._counts[place : place + 2 * self.workers]

    def _put(self, row: int, kind: int, value: int) -> None:
        self._columns(row)[kind * self.workers + self._number] = value

    def total(self, row: int, kind: int) -> int:
        """Return a count over all workers: 0 running requests, 1 sessions."""
        return sum(self._columns(row)[kind * self.workers : (kind + 1) * self.workers])

    def add(self, row: int, kind: int, change: int) -> None:
        columns, place = self._columns(row), kind * self.workers + self._number
        columns[place] = max(columns[place] + change, 0)

    def rate(self, row: int) -> tuple[float, float]:
        """Return the tokens and when they were counted; negative tokens for a new client."""
        return _HEAD.unpack_from(self._memory, row)[1:]

    def set_rate(self, row: int, tokens: float, at: float) -> None:
        struct.pack_into("=dd", self._memory, row + 16, tokens, at)

    def close(self) -> None:
        self._counts.release()
        self._memory.close()
        os.close(self._file)


class SharedLimits:
    """Token bucket and concurrency limit of each client, over all workers."""

    def __init__(self, table: ClientTable, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._table = table
        self._held: dict[str, list[int]] = {}
        """For each client with running requests in this worker: its row, and how many there are."""
        self.set(rate=rate, burst=burst, concurrency=concurrency)

    def set(self, *, rate: float | None, burst: int, concurrency: int) -> None:
        self._rate, self._burst, self._concurrency = rate, float(burst), concurrency

    def enter(self, client: str, now: float) -> None:
        held = self._held.get(client)
        if held is not None and self._rate is None and self._enter_below(held[0]):
            held[1] += 1
            return
        row = self._enter_locked(client, now)
        if held is None:
            self._held[client] = [row, 1]
        else:
            held[1] += 1

    def _enter_below(self, row: int) -> bool:
        """Count a request without a lock if the limit is far; False if nothing was counted.

        The row stays that of the client, because this worker has a request of it under way. The count is
        written before the others are read, and each other worker may add one at the same instant.
        """
        table = self._table
        table.add(row, 0, 1)
        if table.total(row, 0) + table.workers <= self._concurrency:
            return True
        table.add(row, 0, -1)
        return False

    def _enter_locked(self, client: str, now: float) -> int:
        table = self._table
        with table.row(client) as row:
            if table.total(row, 0) >= self._concurrency:
                raise RateLimited(
                    f"{self._concurrency} requests of this client are running (concurrency)", 1.0
                )
            if self._rate is not None:
                tokens, at = table.rate(row)
                known = self._burst if tokens < 0 else tokens + max(now - at, 0.0) * self._rate
                tokens = min(self._burst, known)
                table.set_rate(row, tokens - 1 if tokens >= 1 else tokens, now)
                if tokens < 1:
                    raise RateLimited(
                        f"more than {self._rate:g} requests per second (gateway.rate)",
                        (1 - tokens) / self._rate,
                    )
            table.add(row, 0, 1)
            return row

    def leave(self, client: str) -> None:
        held = self._held[client]
        self._table.add(held[0], 0, -1)  # no other worker writes this count
        held[1] -= 1
        if not held[1]:
            del self._held[client]


class SharedSessions(SessionCounts):
    """The numbers of sessions over all workers."""

    def __init__(self, table: ClientTable) -> None:
        self._table = table

    def enter(self, account: str, per_account: int, limit: int) -> str | None:
        table = self._table
        with table.row(account) as row:
            if table.total(row, 1) >= per_account:
                return account
            table.add(row, 1, 1)
        with table.row(EVERYONE) as row:
            if table.total(row, 1) < limit:
                table.add(row, 1, 1)
                return None
        with table.row(account) as row:
            table.add(row, 1, -1)
        return EVERYONE

    def leave(self, account: str) -> None:
        for name in (account, EVERYONE):
            with self._table.row(name) as row:
                self._table.add(row, 1, -1)

    def of(self, account: str) -> int:
        """Return the number of sessions of an account."""
        with self._table.row(account) as row:
            return self._table.total(row, 1)


class SharedGate(ConcurrencyLimiter):
    """Permits of one server over all workers: each is the lock of one byte of a file."""

    def __init__(self, folder: str, server: str) -> None:
        super().__init__()
        self._path = Path(folder, f"permits-{_digest(server).hex()}")
        self._file: int | None = None
        self._held: list[int | None] = []
        self._polling: asyncio.TimerHandle | None = None

    def take(self, limit: int | None) -> bool:
        if self._queue or not self._permit(limit):
            return False
        self.under_way += 1
        return True

    def leave(self, limit: int | None) -> None:
        self.under_way -= 1
        permit = self._held.pop()  # any of them: they are alike
        if permit is not None and self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, permit)
        self._grant(limit)

    def _permit(self, limit: int | None) -> bool:
        """Hold one more permit; False if all are held."""
        if limit is None:
            self._held.append(None)
            return True
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for number in range(limit):
            if number in self._held:
                continue
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except OSError:
                continue
            self._held.append(number)
            return True
        return False

    def _grant(self, limit: int | None) -> None:
        while self._queue:
            turn = next(iter(self._queue))
            if turn.done():  # its request was cancelled in this moment
                del self._queue[turn]
                continue
            if not self._permit(limit):
                break
            del self._queue[turn]
            self.under_way += 1
            turn.set_result(None)
        if self._queue and self._polling is None:
            self._polling = asyncio.get_running_loop().call_later(_POLL, self._poll, limit)

    def _poll(self, limit: int | None) -> None:
        self._polling = None
        self._grant(limit)
