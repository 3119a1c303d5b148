"""How many children start at once, in which order, and which time counts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mooring.servers.start_queue import ConnectTimer, StartLimit, StartSlot, Urgency, cpu_usage
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", request.param], start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)  # with what it started
    process.wait()


async def _waiting(limit: StartLimit, level: Urgency) -> asyncio.Task[StartSlot]:
    task = asyncio.create_task(limit.enter(lambda: level))
    await asyncio.sleep(0)
    return task


async def test_the_most_urgent_start_goes_first_then_the_oldest() -> None:
    limit = StartLimit(lambda: 1)
    slot = await limit.enter(lambda: 0)
    levels: tuple[Urgency, ...] = (0, 1, 0, 1)
    tasks = [await _waiting(limit, level) for level in levels]
    order: list[int] = []
    for _ in tasks:
        slot.release()
        await asyncio.sleep(0)
        (index,) = [n for n, task in enumerate(tasks) if task.done() and n not in order]
        order.append(index)
        slot = tasks[index].result()
    assert order == [1, 3, 0, 2]


async def test_a_start_that_a_call_waits_for_does_not_wait_for_background_starts() -> None:
    limit = StartLimit(lambda: 1)
    level: Urgency = 0
    await limit.enter(lambda: 0)
    behind = await _waiting(limit, 0)
    later = asyncio.create_task(limit.enter(lambda: level))
    await asyncio.sleep(0)
    assert not later.done()
    level = 2
    limit.update_order()
    await later
    assert limit.starting == 2
    third = await _waiting(limit, 2)
    assert not third.done()
    assert not behind.done()
    for task in (third, behind):
        task.cancel()


async def test_random_cancels_and_releases_never_lose_or_exceed_a_slot() -> None:
    chance, limit = random.Random(7), StartLimit(lambda: 3)

    async def start() -> None:
        slot = await limit.enter(lambda: 0)
        try:
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        finally:
            slot.release()
            slot.release()

    tasks: list[asyncio.Task[None]] = []
    for _ in range(2000):
        tasks.append(asyncio.create_task(start()))
        if chance.random() < 0.4:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
        assert limit.starting <= 3
    await asyncio.gather(*tasks, return_exceptions=True)
    assert limit.starting == 0


@pytest.mark.parametrize("child", ["import time; time.sleep(60)"], indirect=True)
async def test_a_child_that_sleeps_gives_its_slot_to_the_next(child: subprocess.Popen[bytes]) -> None:
    limit = StartLimit(lambda: 1)
    slot = await limit.enter(lambda: 0)
    slot.started(child.pid)
    await asyncio.wait_for(limit.enter(lambda: 0), 20)


@pytest.mark.skipif(cpu_usage(1) is None, reason="the use of the CPU cannot be measured here")
@pytest.mark.parametrize("child", ["while True: pass"], indirect=True)
async def test_a_child_that_works_keeps_its_slot(child: subprocess.Popen[bytes]) -> None:
    limit = StartLimit(lambda: 1)
    slot = await limit.enter(lambda: 0)
    await until(lambda: (cpu_usage(child.pid) or (0,))[0] > 0.1)
    slot.started(child.pid)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(limit.enter(lambda: 0), 0.3)


@pytest.mark.parametrize(
    "child", ["import subprocess; subprocess.run(['sh', '-c', 'while :; do :; done'])"], indirect=True
)
async def test_the_descendants_of_a_child_count_as_its_own_work(child: subprocess.Popen[bytes]) -> None:
    if cpu_usage(child.pid) is None:
        pytest.skip("the use of the CPU cannot be measured here")
    await until(lambda: (cpu_usage(child.pid) or (0,))[0] > 0.5)


async def test_a_paused_timer_does_not_count_and_one_that_runs_out_expires() -> None:
    expired = asyncio.Event()
    timer = ConnectTimer(0.1, expired.set)
    timer.resume()
    timer.pause()
    await asyncio.sleep(0.2)
    assert not expired.is_set()
    timer.resume()
    await asyncio.wait_for(expired.wait(), 20)


async def test_a_blocked_event_loop_does_not_expire_the_timer_before_answers_are_read() -> None:
    expired = asyncio.Event()
    timer = ConnectTimer(0.2, expired.set)
    timer.resume()
    time.sleep(0.5)  # user code that blocks the loop
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not expired.is_set()
    await asyncio.wait_for(expired.wait(), 20)
