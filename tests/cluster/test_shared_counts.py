"""What workers count together: rows of clients, permits of servers, sums of metrics."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

import pytest

from mooring.cluster import limits
from mooring.cluster.limits import ClientTable, SharedGate, SharedLimits, SharedSessions
from mooring.cluster.metrics import Retired, counters, merged
from mooring.cluster.workers import home_of
from mooring.gateway.routes import ClientLimits, RateLimited

pytestmark = pytest.mark.anyio

SETTINGS = {"rate": 0.5, "burst": 3, "concurrency": 2}
HOLD = """
import sys
from mooring.cluster.limits import ClientTable, SharedGate, SharedLimits
kind, folder = sys.argv[1:]
if kind == "permit":
    gate = SharedGate(folder, "server")
    assert gate.take(2) and gate.take(2) and not gate.take(2)
else:
    SharedLimits(ClientTable(folder, 2, 1), rate=None, burst=1, concurrency=2).enter("ana", 0.0)
print("held", flush=True)
sys.stdin.read()
"""

RACE = """
import sys
from mooring.cluster.limits import ClientTable, SharedLimits
from mooring.gateway.routes import RateLimited
limits = SharedLimits(ClientTable(sys.argv[1], 3, int(sys.argv[2])), rate=None, burst=1, concurrency=500)
print("ready", flush=True)
for line in sys.stdin:
    if line == "go\\n":
        count = 0
        for _ in range(600):
            try:
                limits.enter("ana", 0.0)
                count += 1
            except RateLimited:
                pass
        print(count, flush=True)
    else:
        for _ in range(count):
            limits.leave("ana")
        print("done", flush=True)
"""


class Limit(TypedDict):
    rate: float | None
    burst: int
    concurrency: int


def entered(one: SharedLimits | ClientLimits, client: str, now: float) -> bool:
    try:
        one.enter(client, now)
    except RateLimited:
        return False
    return True


def test_two_workers_count_like_one_process(tmp_path: Path) -> None:
    table = [ClientTable(str(tmp_path), 2, number) for number in range(2)]
    shared = [SharedLimits(one, **SETTINGS) for one in table]
    alone = ClientLimits(**SETTINGS)
    for step in range(200):
        client, now = ("ana", "bob")[step % 3 == 0], step * 0.7
        let = entered(shared[step % 2], client, now)
        assert let == entered(alone, client, now), step
        if let and step % 4:
            shared[step % 2].leave(client)
            alone.leave(client)


def test_far_below_the_limit_two_workers_count_like_one_process(tmp_path: Path) -> None:
    limit: Limit = {"rate": None, "burst": 1, "concurrency": 20}
    shared = [SharedLimits(ClientTable(str(tmp_path), 2, number), **limit) for number in range(2)]
    alone = ClientLimits(**limit)
    running = list[tuple[int, str]]()
    chance = random.Random(7)
    for step in range(5_000):
        number, client = chance.randrange(2), chance.choice(("ana", "bob", "cleo"))
        let = entered(shared[number], client, 0.0)
        assert let == entered(alone, client, 0.0), step
        if let:
            running.append((number, client))
        if running and chance.random() < 0.49:
            number, client = running.pop(chance.randrange(len(running)))
            shared[number].leave(client)
            alone.leave(client)


async def test_workers_that_count_at_the_same_time_admit_exactly_as_many_as_the_limit(tmp_path: Path) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RACE, str(tmp_path), str(number)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(3)
    ]
    outputs = [one.stdout for one in processes if one.stdout is not None]
    for output in outputs:
        assert await output.readline() == b"ready\n"
    for _ in range(20):
        for one in processes:
            assert one.stdin is not None
            one.stdin.write(b"go\n")
        assert sum([int(await output.readline()) for output in outputs]) == 500
        for one in processes:
            assert one.stdin is not None
            one.stdin.write(b"back\n")
        assert [await output.readline() for output in outputs] == [b"done\n"] * 3
    for one in processes:
        assert one.stdin is not None
        one.stdin.close()
        await one.wait()


def test_what_a_killed_process_counted_is_cleared_by_the_next_one_with_its_number(tmp_path: Path) -> None:
    here = SharedLimits(ClientTable(str(tmp_path), 2, 0), rate=None, burst=1, concurrency=2)
    here.enter("ana", 0.0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, "client", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert not entered(here, "ana", 0.0)
        process.kill()
    ClientTable(str(tmp_path), 2, 1).close()
    assert entered(here, "ana", 0.0)
    assert not entered(here, "ana", 0.0)


def test_a_full_bucket_drops_clients_that_have_nothing_running_and_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUCKETS", 1)
    table = ClientTable(str(tmp_path), 1, 0)
    counted = SharedLimits(table, rate=None, burst=1, concurrency=1)
    counted.enter("held", 0.0)
    for number in range(100):
        assert entered(counted, f"client {number}", 0.0)
        counted.leave(f"client {number}")
    assert not entered(counted, "held", 0.0)


def test_sessions_are_counted_by_account_and_in_total(tmp_path: Path) -> None:
    one, two = (SharedSessions(ClientTable(str(tmp_path), 2, number)) for number in range(2))
    assert [one.enter("ana", 2, 3), two.enter("ana", 2, 3), one.enter("ana", 2, 3)] == [None, None, "ana"]
    assert [two.enter("bob", 2, 3), one.enter("bob", 2, 3)] == [None, "*"]
    assert (one.of("ana"), two.of("bob")) == (2, 1)  # what was refused is not counted
    two.leave("ana")
    assert one.enter("bob", 2, 3) is None


async def test_permits_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    gate = SharedGate(str(tmp_path), "server")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD, "permit", str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    assert not gate.take(2)
    assert gate.take(None)
    waiting = asyncio.create_task(gate.enter(2, 4, 30))
    process.kill()
    await waiting
    await process.wait()
    assert gate.under_way == 2


async def test_permits_are_given_in_order_and_none_is_lost_when_a_wait_ends(tmp_path: Path) -> None:
    gate = SharedGate(str(tmp_path), "server")
    assert gate.take(1)
    order = list[int]()

    async def work(number: int) -> None:
        await gate.enter(1, 10, 30)
        order.append(number)
        await asyncio.sleep(0)
        gate.leave(1)

    tasks = [asyncio.create_task(work(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    gate.leave(1)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 4, 5]
    assert (gate.under_way, gate.waiting) == (0, 0)
    assert gate.take(1)


TEXT = """\
# HELP mooring_calls_total Calls.
# TYPE mooring_calls_total counter
mooring_calls_total{tool="a b"} 2
# HELP mooring_server_up Up.
# TYPE mooring_server_up gauge
mooring_server_up{server="s"} 1
# HELP mooring_seconds Time.
# TYPE mooring_seconds histogram
mooring_seconds_bucket{le="1.0"} 1
mooring_seconds_sum 0.5
mooring_seconds_count 1
"""


def test_counts_are_added_and_a_state_is_that_of_the_worst(tmp_path: Path) -> None:
    other = TEXT.replace('{server="s"} 1', '{server="s"} 0').replace('"a b"} 2', '"c"} 3')
    retired = Retired(str(tmp_path))
    retired.note("gone", TEXT)
    retired.note("here", TEXT)
    text = merged([TEXT, other], retired.ended({"here"}))
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found == {
        'mooring_calls_total{tool="a b"}': "4",
        'mooring_calls_total{tool="c"}': "3",
        'mooring_server_up{server="s"}': "0",
        'mooring_seconds_bucket{le="1.0"}': "3",
        "mooring_seconds_sum": "1.5",
        "mooring_seconds_count": "3",
    }
    assert text.count("# TYPE mooring_calls_total") == 1
    assert "mooring_server_up" not in "".join(counters(TEXT))


def test_a_full_disk_does_not_break_the_metrics(tmp_path: Path) -> None:
    Retired(str(tmp_path / "gone")).note("a", TEXT)
    assert Retired(str(tmp_path / "gone")).ended(set()) == {}


def test_the_home_of_a_key_is_the_same_everywhere_and_spread_over_all() -> None:
    names = tuple(f"worker-{number}" for number in range(4))
    homes = [home_of(names, f"key {number}") for number in range(4000)]
    assert homes == [home_of(tuple(reversed(names)), f"key {number}") for number in range(4000)]
    assert min(homes.count(name) for name in names) > 800


def test_a_count_takes_microseconds_not_milliseconds(tmp_path: Path) -> None:
    counted = SharedLimits(ClientTable(str(tmp_path), 2, 0), rate=1e9, burst=10**9, concurrency=10**6)
    started = time.process_time()
    for _ in range(1000):
        counted.enter("ana", 0.0)
        counted.leave("ana")
    assert time.process_time() - started < 1.0
