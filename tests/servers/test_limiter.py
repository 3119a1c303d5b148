"""The call queue of one server: permits are never lost and never exceeded, however requests leave it."""

from __future__ import annotations

import asyncio
import random

import pytest

from mooring.servers.requests import ConcurrencyLimiter, QueueFull

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("granted_first", [True, False])
async def test_a_request_cancelled_in_the_moment_of_its_permit_is_cancelled(granted_first: bool) -> None:
    gate = ConcurrencyLimiter()
    assert gate.take(1)
    waiter = asyncio.create_task(gate.enter(1, 10, 30))
    await asyncio.sleep(0)
    steps = [lambda: gate.leave(1), waiter.cancel]
    for step in steps if granted_first else reversed(steps):
        step()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (gate.under_way, gate.waiting) == (0, 0)


async def test_a_request_without_time_left_times_out() -> None:
    gate = ConcurrencyLimiter()
    assert gate.take(1)
    with pytest.raises(TimeoutError):
        await gate.enter(1, 10, 0.0)
    assert (gate.under_way, gate.waiting) == (1, 0)


async def test_a_queue_of_length_zero_refuses_at_once() -> None:
    gate = ConcurrencyLimiter()
    await gate.enter(1, 0, 30)
    with pytest.raises(QueueFull):
        await gate.enter(1, 0, 30)


async def test_permits_are_granted_in_the_order_of_arrival() -> None:
    gate, order = ConcurrencyLimiter(), list[int]()

    async def request(number: int) -> None:
        await gate.enter(1, 100, 30)
        order.append(number)
        gate.leave(1)

    assert gate.take(1)
    tasks = [asyncio.create_task(request(number)) for number in range(20)]
    await asyncio.sleep(0)
    gate.leave(1)
    assert not gate.take(1)  # a newcomer does not overtake the queue
    await asyncio.gather(*tasks)
    assert order == list(range(20))


@pytest.mark.parametrize("seed", range(5))
async def test_random_cancels_timeouts_and_changed_limits_never_lose_or_exceed_a_permit(seed: int) -> None:
    chance = random.Random(seed)
    gate, outcomes = ConcurrencyLimiter(), set[str]()
    limit = 3
    held = most = 0

    async def request() -> None:
        nonlocal held, most
        await gate.enter(limit, 8, chance.choice([0.0, 0.001, 30]))
        held += 1
        most = max(most, held)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            held -= 1
            gate.leave(limit)

    running = set[asyncio.Task[None]]()
    for _ in range(3000):
        if len(running) < 16:
            running.add(asyncio.create_task(request()))
        if chance.random() < 0.3:
            chance.choice(list(running)).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
        assert gate.under_way <= 3
        for task in [task for task in running if task.done()]:
            running.discard(task)
            problem = asyncio.CancelledError() if task.cancelled() else task.exception()
            outcomes.add(type(problem).__name__)
    await asyncio.gather(*running, return_exceptions=True)
    assert outcomes <= {"NoneType", "CancelledError", "TimeoutError", "QueueFull"}
    assert len(outcomes) == 4
    assert most == 3
    assert (gate.under_way, gate.waiting, held) == (0, 0, 0)


async def test_a_raised_limit_lets_waiting_requests_pass() -> None:
    gate = ConcurrencyLimiter()
    for _ in range(4):
        assert gate.take(4)
    waiters = [asyncio.create_task(gate.enter(1, 10, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.leave(1)  # the limit is 1 now, and three requests are under way
    assert gate.under_way == 3
    gate.leave(None)
    await asyncio.gather(*waiters)
    assert (gate.under_way, gate.waiting) == (5, 0)
